"""What becomes of the calls of a reply.

Rule 1  Each call goes its way: checked, past hooks, policy and people, run, past hooks and policy again. Rulings are
        made in call order, so that a call sees those before it, whatever is done first.
Rule 2  Calls of tools that may run together are started together; the others after them, one at a time, in call order.
Rule 3  A call that can harm when it runs twice is never run again by itself: somebody has to decide.
Rule 4  The model reads all results together, in call order.

The first of these that has something to do is the next step:
    a result that ends the run → siblings that are not waited for → checks and rulings → denials → results → starts
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canon import compact, data_hash
from agentrun.core.arguments import refused
from agentrun.core.budget import carved, in_time, out_of_calls
from agentrun.core.effects import Effect, RunChild, RunTool
from agentrun.core.facts import Fact, Parent
from agentrun.core.facts_base import Fault, Share
from agentrun.core.facts_calls import CallCancelled, CallRefused, ResultsGiven
from agentrun.core.gate import Open, Passage, Passed, Shut, is_guarded, pass_gate
from agentrun.core.messages import words
from agentrun.core.names import effect_of, find_tool
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.core.package_tools import AgentTool, Tool
from agentrun.core.state import CallState, Gate, State, under_way
from agentrun.core.steps import Commit, Next, Perform, Wait
from agentrun.core.stop import fail

READABLE = ("tool.execution", "tool.timeout", "tool.denied")
"""Faults of a call that the model reads. Any other ends the run."""
ABORTED = "tool.aborted: {} made this call unnecessary"
OPEN = ("new", "asking", "deferred", "denied", "ready", "started", "lost", "asleep", "abandoned")


ENDED = ("abandoned", "denied", "finished")
"""Statuses that can mean something to the whole run."""
ON_THE_WAY = ("new", "asking", "deferred", "denied", "finished", "ready")
"""Statuses in which something may have to be said about a call."""


NO_GATE = Gate()


def act(package: Package, state: State) -> Next:
    """The next step of the calls under way."""
    statuses = {call.status for call in state.calls}
    if statuses == {"started"}:
        return Wait(under_way(state))
    if not statuses.isdisjoint(ENDED):
        if fault := _fatal(package, state):
            return fail(package, state, fault)
        if facts := tuple(_cancelled(package, state)):
            return Commit(facts)
    hooks: list[Effect] = []
    questions: list[Question] = []
    is_open = not statuses.isdisjoint(OPEN)
    for index in range(len(state.calls)) if not statuses.isdisjoint(ON_THE_WAY) else ():
        passed = _passed(package, state, index)
        if isinstance(passed, Open):
            continue
        if isinstance(passed, Commit):
            return passed
        is_open = True
        if isinstance(passed, Perform):
            hooks += passed.effects
        else:
            assert isinstance(passed, Wait)
            questions += passed.questions
    if not is_open:
        return Commit((ResultsGiven(state.turns, _ended_by(package, state)),))
    return _start(package, state, hooks, tuple(questions))


def _start(package: Package, state: State, hooks: list[Effect], questions: tuple[Question, ...]) -> Next:
    """Start what can be started, or wait."""
    ready = _ready(package, state)
    if any(not call.counted for call, _ in ready) and (fault := out_of_calls(package, state)):
        return fail(package, state, fault)
    effects = (*hooks, *_effects(package, state, ready))
    waits_for = tuple([call.call.id for call in state.calls if _needs_somebody(package, call)])
    if effects:
        return Perform(effects, questions, waits_for)
    return Wait(under_way(state), questions, waits_for)


def _fatal(package: Package, state: State) -> Fault | None:
    """Why a call ends the run."""
    for index, call in enumerate(state.calls):
        if call.status == "finished" and call.fault is None and call.after == NO_GATE:
            continue  # nearly always
        if call.status == "abandoned":
            fields = {"call": call.call.id, "tool": call.call.tool}
            return Fault("tool.indeterminate", f"it is not known whether {call.call.tool} took place", fields)
        if call.status == "finished" and call.fault is not None and call.fault.code not in READABLE:
            return call.fault
        if call.status in ("denied", "finished") and (fault := _fatal_denial(package, state, index)):
            return fault
    return None


def _fatal_denial(package: Package, state: State, index: int) -> Fault | None:
    call, fault = state.calls[index], _denial(package, state, index)
    if fault is None or fault.code == "policy.interrupted":
        return fault
    tool = find_tool(package, call.call.tool)
    if tool is None or tool.on_denied == "tell":
        return None
    code = fault.code if fault.code.startswith("approval.") else "tool.denied"
    return Fault(code, fault.message, {**fault.fields, "tool": call.call.tool, "call": call.call.id}, fault.hint)


def _denial(package: Package, state: State, index: int) -> Fault | None:
    """What stands against a call, or against its result."""
    call = state.calls[index]
    if call.fault is not None and call.fault.code == "tool.denied":
        return call.fault
    passed = _before(package, state, index) if call.status == "denied" else _after(package, state, index)
    return passed.fault if isinstance(passed, Shut) else None


def _cancelled(package: Package, state: State) -> Iterator[Fact]:
    """The calls that a successful one makes unnecessary."""
    for index, call in enumerate(state.calls):
        if call.status != "finished":
            continue
        tool = find_tool(package, call.call.tool)
        if tool is None or not (tool.terminal or tool.aborts_siblings) or not _succeeded(package, state, index):
            continue
        for other in state.calls:
            if other.status in OPEN and not (other.status == "lost" and _needs_somebody(package, other)):
                yield CallCancelled(other.call.id, ABORTED.format(call.call.tool), call.call.id)
        return


def _succeeded(package: Package, state: State, index: int) -> bool:
    return state.calls[index].fault is None and isinstance(_after(package, state, index), Open)


def _passed(package: Package, state: State, index: int) -> Passed:
    """What a call needs next on its way in or out. Open: nothing."""
    call = state.calls[index]
    match call.status:
        case "new" | "asking" | "deferred":
            if not call.checked and (refusal := refused(package, state, call)):
                return Commit((refusal,))
            passed = _before(package, state, index)
            earlier = any(each.status == "new" for each in state.calls[:index])
            return Wait() if isinstance(passed, Commit) and earlier and call.status == "new" else passed
        case "denied":
            return _told(call, _before(package, state, index))
        case "finished":
            return _told(call, _after(package, state, index))
        case "ready" if find_tool(package, call.call.tool) is None and (refusal := refused(package, state, call)):
            return Commit((refusal,))
        case _:
            return Open()


def _told(call: CallState, passed: Passed) -> Passed:
    """The same; a denial is told to the model."""
    if not isinstance(passed, Shut):
        return passed
    fields = {**passed.fault.fields, "tool": call.call.tool, "reason": passed.fault.code}
    return Commit((CallRefused(call.call.id, "tool.denied", f"tool.denied: {passed.fault.message}", fields),))


def _before(package: Package, state: State, index: int) -> Passed:
    call = state.calls[index]
    passage = Passage(
        subject=call.call.id,
        target=call.call.tool,
        value=call.arguments,
        point="before_tool",
        stage="tool_call",
        arguments=call.arguments,
        index=index,
    )
    return pass_gate(package, state, call.gate, passage)


def _after(package: Package, state: State, index: int) -> Passed:
    if not is_guarded(package, "after_tool", "tool_result"):
        return Open()
    call = state.calls[index]
    passage = Passage(
        subject=call.call.id,
        target=call.call.tool,
        value=words(call.parts),
        point="after_tool",
        stage="tool_result",
        arguments=call.arguments,
        index=index + 1,
    )
    return pass_gate(package, state, call.after, passage)


def _ended_by(package: Package, state: State) -> str | None:
    for call in state.calls:
        tool = find_tool(package, call.call.tool)
        if tool is not None and tool.terminal and call.status == "finished" and call.fault is None:
            return call.call.id
    return None


def _may_run(call: CallState, tool: Tool) -> bool:
    """Whether a call is ready, or was lost and may run again."""
    if call.status != "lost":
        return call.status == "ready"
    return effect_of(tool, call.call.tool) != "at_most_once"


def _ready(package: Package, state: State) -> list[tuple[CallState, Tool]]:
    """The calls that can be started now."""
    if all(call.status not in ("ready", "lost") for call in state.calls):
        return []
    known = [
        (call, tool)
        for call in state.calls
        if call.status in OPEN and (tool := find_tool(package, call.call.tool)) is not None
    ]
    together = [each for each in known if each[1].parallel]
    return [(call, tool) for call, tool in together or known[:1] if _may_run(call, tool)]


def _needs_somebody(package: Package, call: CallState) -> bool:
    """Whether a call waits for somebody outside."""
    if call.status != "lost":
        return call.status in ("asleep", "deferred")
    tool = find_tool(package, call.call.tool)
    return tool is None or not _may_run(call, tool)


def _effects(package: Package, state: State, ready: list[tuple[CallState, Tool]]) -> Iterator[Effect]:
    children = sum(isinstance(tool, AgentTool) and call.share is None for call, tool in ready)
    children += _to_come(package, state) if children else 0
    held: list[Share] = []
    for call, tool in ready:
        if isinstance(tool, AgentTool):
            share = call.share
            if share is None:
                share = in_time(carved(package, state, held, children - len(held)), tool.timeout)
                if not package.agents[call.call.tool].agents:
                    share = replace(share, runs=UNSET)  # it can start nobody
                held.append(share)
            yield _child(package, state, call, tool, share)
        else:
            yield _run(package, state, call, tool)


def _to_come(package: Package, state: State) -> int:
    """Children that may run together with those that are ready, once a hook or a person has let them in."""
    tools = (package.tools.get(call.call.tool) for call in state.calls if call.status in ("new", "asking"))
    return sum(isinstance(tool, AgentTool) and tool.parallel for tool in tools)


def _run(package: Package, state: State, call: CallState, tool: Tool) -> RunTool:
    assert state.started is not None
    key = data_hash(compact([state.started.run, call.call.id, call.call.tool, call.arguments]))
    return RunTool(
        id=call.call.id,
        name=call.call.tool,
        tool=tool,
        arguments=call.arguments or {},
        key=key,
        max_lines=package.limits.output_lines,
        max_bytes=package.limits.output_bytes,
        params=state.started.params,
    )


def _child(package: Package, state: State, call: CallState, tool: AgentTool, share: Share) -> RunChild:
    assert state.started is not None
    started, arguments = state.started, call.arguments or {}
    depth = started.parent.depth + 1 if started.parent else 1
    return RunChild(
        id=call.call.id,
        name=call.call.tool,
        run=f"{started.run}.{call.call.id}",
        package=package.agents[call.call.tool],
        params={**{name: value for name, value in arguments.items() if name != "message"}, **tool.params},
        message=arguments.get("message"),
        parent=Parent(started.run, call.call.id, depth, share),
        max_lines=package.limits.output_lines,
        max_bytes=package.limits.output_bytes,
        seed=None if started.seed is UNSET else f"{started.seed}.{call.call.id}",
    )
