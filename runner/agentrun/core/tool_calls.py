"""The tool calls of a reply. The model reads all results together, in call order.

The first of these that applies is the next step:
    a result that ends the run → calls that became unnecessary → the step of each call → starts → results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.budget import child_share, limit_share_time, tool_calls_fault
from agentrun.core.call_gate import (
    admit_call,
    check_tool_exists,
    denial_fault,
    has_succeeded,
    no_step,
    refuse_if_denied,
)
from agentrun.core.call_validation import refuse
from agentrun.core.effects import (
    Commit,
    Effect,
    NextStep,
    Perform,
    RunChild,
    RunTool,
    SharedResult,
    ToolReturn,
    Wait,
)
from agentrun.core.facts import CallCancelled, Fact, Parent, ResultsGiven
from agentrun.core.fault import Fault
from agentrun.core.gate import Allowed, GateResult
from agentrun.core.guards import find_source, repeated_reads
from agentrun.core.outcome import Question
from agentrun.core.package import Package, find_tool, tool_effect
from agentrun.core.package_tools import AgentTool, McpTool, Tool
from agentrun.core.run_end import fail
from agentrun.core.spend import BudgetShare
from agentrun.core.state import NO_GATE, CallState, CallStatus, State, pending_effects

RUN_ENDING_STATUSES = ("abandoned", "denied", "finished")
"""Statuses in which a call can end the run or cancel other calls."""
READABLE_FAULTS = ("tool.execution", "tool.timeout", "tool.denied")
"""Faults of a call that the model reads. Any other fault ends the run."""
OPEN_STATUSES = ("new", "asking", "deferred", "denied", "ready", "started", "lost", "asleep", "abandoned")
CALL_STEPS: Mapping[CallStatus, Callable[[Package, State, int], GateResult]] = {
    "new": admit_call,
    "asking": admit_call,
    "deferred": admit_call,
    "denied": refuse_if_denied,
    "ready": check_tool_exists,
    "started": no_step,
    "lost": no_step,
    "asleep": no_step,
    "abandoned": no_step,
    "finished": refuse_if_denied,
    "done": no_step,
}
"""The step of a call in each status. `Allowed` means that there is nothing to do."""
ACTIVE_STATUSES = frozenset(status for status, step in CALL_STEPS.items() if step is not no_step)


def next_call_step(package: Package, state: State) -> NextStep:
    statuses = {call.status for call in state.calls}
    if statuses == {"started"}:
        return Wait(pending_effects(state))
    if not statuses.isdisjoint(RUN_ENDING_STATUSES):
        if fault := _fatal_fault(package, state):
            return fail(package, state, fault)
        if facts := tuple(_cancellations(package, state)):
            return Commit(facts)
    hooks: list[Effect] = []
    questions: list[Question] = []
    is_open = not statuses.isdisjoint(OPEN_STATUSES)
    for index in range(len(state.calls)) if not statuses.isdisjoint(ACTIVE_STATUSES) else ():
        passed = CALL_STEPS[state.calls[index].status](package, state, index)
        if isinstance(passed, Allowed):
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
        repeats = repeated_reads(package, state) or UNSET
        return Commit((ResultsGiven(state.turns, _terminal_call(package, state), repeats),))
    ready = ready_calls(package, state)
    if any(not call.counted for call, _ in ready) and (fault := tool_calls_fault(package, state)):
        return fail(package, state, fault)
    effects = (*hooks, *call_effects(package, state, ready))
    waits_for = tuple([call.id for call in state.calls if waits_for_outside(package, call)])
    if effects:
        return Perform(effects, tuple(questions), waits_for)
    return Wait(pending_effects(state), tuple(questions), waits_for)


def _fatal_fault(package: Package, state: State) -> Fault | None:
    for index, call in enumerate(state.calls):
        if call.status == "finished" and call.fault is None and call.result_gate == NO_GATE:
            continue  # nearly always
        if call.status == "abandoned":
            fields = {"call": call.id, "tool": call.tool}
            return Fault("tool.indeterminate", texts.OUTCOME_UNKNOWN.format(call.tool), fields)
        if call.status == "finished" and call.fault is not None and call.fault.code not in READABLE_FAULTS:
            return call.fault
        if call.status in ("denied", "finished") and (fault := _fatal_denial(package, state, index)):
            return fault
    return None


def _fatal_denial(package: Package, state: State, index: int) -> Fault | None:
    call, fault = state.calls[index], denial_fault(package, state, index)
    if fault is None or fault.code == "policy.interrupted":
        return fault
    tool = find_tool(package, call.tool)
    if tool is None or tool.on_denied == "tell":
        return None
    code = fault.code if fault.code.startswith("approval.") else "tool.denied"
    return Fault(code, fault.message, {**fault.fields, "tool": call.tool, "call": call.id}, fault.hint)


def _cancellations(package: Package, state: State) -> Iterator[Fact]:
    for index, call in enumerate(state.calls):
        if call.status != "finished":
            continue
        tool = find_tool(package, call.tool)
        if tool is None or not (tool.terminal or tool.aborts_siblings) or not has_succeeded(package, state, index):
            continue
        for other in state.calls:
            if other.status in OPEN_STATUSES and not (other.status == "lost" and waits_for_outside(package, other)):
                text = texts.with_code("tool.aborted", texts.CALL_UNNECESSARY.format(call.tool))
                yield CallCancelled(other.id, text, call.id)
        return


def _terminal_call(package: Package, state: State) -> str | None:
    for call in state.calls:
        tool = find_tool(package, call.tool)
        if tool is not None and tool.terminal and call.status == "finished" and call.fault is None:
            return call.id
    return None


def _may_run(call: CallState, tool: Tool) -> bool:
    return call.status == "ready" or (call.status == "lost" and tool_effect(tool, call.tool) != "at_most_once")


def ready_calls(package: Package, state: State) -> list[tuple[CallState, Tool]]:
    if all(call.status not in ("ready", "lost") for call in state.calls):
        return []
    known = [
        (call, tool)
        for call in state.calls
        if call.status in OPEN_STATUSES and (tool := find_tool(package, call.tool)) is not None
    ]
    together = [each for each in known if each[1].parallel]
    return [
        (call, tool)
        for call, tool in together or known[:1]
        if _may_run(call, tool) and not _waits_for_source(package, state, call)
    ]


def _waits_for_source(package: Package, state: State, call: CallState) -> bool:
    source = find_source(package, state, call)
    return source is not None and source.returned is None


def waits_for_outside(package: Package, call: CallState) -> bool:
    if call.status != "lost":
        return call.status in ("asleep", "deferred")
    tool = find_tool(package, call.tool)
    return tool is None or not _may_run(call, tool)


def call_effects(package: Package, state: State, ready: list[tuple[CallState, Tool]]) -> Iterator[Effect]:
    children = sum(isinstance(tool, AgentTool) and call.share is None for call, tool in ready)
    if children:  # further ones may run together with these, once a hook or a person allows them
        pending = (package.tools.get(call.tool) for call in state.calls if call.status in ("new", "asking"))
        children += sum(isinstance(tool, AgentTool) and tool.parallel for tool in pending)
    held: list[BudgetShare] = []
    for call, tool in ready:
        if isinstance(tool, AgentTool):
            share = call.share
            if share is None:
                share = limit_share_time(child_share(package, state, held, children - len(held)), tool.timeout)
                if not package.agents[call.tool].agents:
                    share = replace(share, runs=UNSET)  # it has no sub-agents to start
                held.append(share)
            yield _run_child(package, state, call, tool, share)
        else:
            yield make_run_tool(package, state, call, tool)


def make_run_tool(package: Package, state: State, call: CallState, tool: Tool) -> RunTool:
    """The effect of a call. The server of an MCP tool gets what the model wrote and fills in its defaults itself."""
    completed = None if isinstance(tool, McpTool) else call.completed_arguments
    return RunTool(
        id=call.id,
        name=call.tool,
        tool=tool,
        arguments=(call.arguments if completed is None else completed) or {},
        key=data_hash(sorted_json([state.started.run, call.id, call.tool, call.all_arguments])),
        max_lines=package.limits.output_lines,
        max_bytes=package.limits.output_bytes,
        params=state.started.params,
        arguments_without_defaults=None if completed is None else call.arguments,
        shared=_shared_result(find_source(package, state, call)),
    )


def _shared_result(source: CallState | None) -> SharedResult | None:
    returned = source.returned if source else None
    if returned is None:
        return None
    return SharedResult(returned.call, ToolReturn(returned.parts, returned.fault, returned.blob))


def _run_child(package: Package, state: State, call: CallState, tool: AgentTool, share: BudgetShare) -> RunChild:
    started, arguments = state.started, call.arguments or {}
    return RunChild(
        id=call.id,
        name=call.tool,
        run=f"{started.run}.{call.id}",
        package=package.agents[call.tool],
        params={**{name: value for name, value in arguments.items() if name != "message"}, **tool.params},
        message=arguments.get("message"),
        parent=Parent(started.run, call.id, started.parent.depth + 1 if started.parent else 1, share),
        max_lines=package.limits.output_lines,
        max_bytes=package.limits.output_bytes,
        seed=None if started.seed is UNSET else f"{started.seed}.{call.id}",
    )


def advance_calls(package: Package, state: State) -> NextStep:
    """The next step of the calls. Calls beyond the limit of one reply are refused first."""
    limit, count = package.limits.parallel_tools, len(state.calls)
    if count <= limit:
        return next_call_step(package, state)
    first = 0 if package.limits.on_oversize_batch == "reject_all" else limit
    message = texts.too_many_calls(count, limit)
    refused = tuple(
        refuse(call, "tool.invalid_call", message, reason="parallel_tools", count=count, limit=limit)
        for call in state.calls[first:]
        if call.status == "new"
    )
    return Commit(refused) if refused else next_call_step(package, state)
