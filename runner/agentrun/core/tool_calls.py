"""The tool calls of a reply.

Rule 1  Each call is checked, passes hooks, policy and people, runs, and passes hooks and policy again: `CALL_STEPS`.
Rule 2  A result that ends the run, and calls that a result makes unnecessary, come before everything else.
Rule 3  The model reads all results together, in call order.

The first of these that has something to do is the next step:
    a result that ends the run → calls that became unnecessary → the step of each call → starts → results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agentrun.core.budget import out_of_calls
from agentrun.core.call_effects import OPEN, effects_of, needs_somebody, ready_calls
from agentrun.core.call_steps import denial_of, find_again, has_succeeded, let_in, let_out, nothing_due, refuse
from agentrun.core.effects import Effect
from agentrun.core.facts import Fact
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import CallCancelled, ResultsGiven
from agentrun.core.gate import Open, Passed
from agentrun.core.names import find_tool
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.core.state import NO_GATE, CallStatus, State, under_way
from agentrun.core.steps import Commit, Next, Perform, Wait
from agentrun.core.stop import fail

CALL_STEPS: Mapping[CallStatus, Callable[[Package, State, int], Passed]] = {
    "new": let_in,
    "asking": let_in,
    "deferred": let_in,
    "denied": refuse,
    "ready": find_again,
    "started": nothing_due,
    "lost": nothing_due,
    "asleep": nothing_due,
    "abandoned": nothing_due,
    "finished": let_out,
    "done": nothing_due,
}
"""What is done about a call in each status. `Open`: nothing."""
DUE = frozenset(status for status, step in CALL_STEPS.items() if step is not nothing_due)
"""Statuses in which something may have to be done about a call."""
ENDED = ("abandoned", "denied", "finished")
"""Statuses that can mean something to the whole run."""
READABLE = ("tool.execution", "tool.timeout", "tool.denied")
"""Faults of a call that the model reads. Any other ends the run."""
ABORTED = "tool.aborted: {} made this call unnecessary"


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
    for index in range(len(state.calls)) if not statuses.isdisjoint(DUE) else ():
        passed = CALL_STEPS[state.calls[index].status](package, state, index)
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
    ready = ready_calls(package, state)
    if any(not call.counted for call, _ in ready) and (fault := out_of_calls(package, state)):
        return fail(package, state, fault)
    effects = (*hooks, *effects_of(package, state, ready))
    waits_for = tuple([call.call.id for call in state.calls if needs_somebody(package, call)])
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
    call, fault = state.calls[index], denial_of(package, state, index)
    if fault is None or fault.code == "policy.interrupted":
        return fault
    tool = find_tool(package, call.call.tool)
    if tool is None or tool.on_denied == "tell":
        return None
    code = fault.code if fault.code.startswith("approval.") else "tool.denied"
    return Fault(code, fault.message, {**fault.fields, "tool": call.call.tool, "call": call.call.id}, fault.hint)


def _cancelled(package: Package, state: State) -> Iterator[Fact]:
    """The calls that a successful one makes unnecessary."""
    for index, call in enumerate(state.calls):
        if call.status != "finished":
            continue
        tool = find_tool(package, call.call.tool)
        if tool is None or not (tool.terminal or tool.aborts_siblings) or not has_succeeded(package, state, index):
            continue
        for other in state.calls:
            if other.status in OPEN and not (other.status == "lost" and needs_somebody(package, other)):
                yield CallCancelled(other.call.id, ABORTED.format(call.call.tool), call.call.id)
        return


def _ended_by(package: Package, state: State) -> str | None:
    for call in state.calls:
        tool = find_tool(package, call.call.tool)
        if tool is not None and tool.terminal and call.status == "finished" and call.fault is None:
            return call.call.id
    return None
