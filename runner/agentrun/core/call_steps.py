"""The next step of one call, on its way in and on its way out. `tool_calls.py` has the table from status to step.

Rule 1  On its way in a call is checked, then passes hooks, policy and people. On its way out its result passes hooks
        and policy.
Rule 2  Rulings are made in call order, so that a call sees those before it, whatever is done first.
"""

from __future__ import annotations

from agentrun.core.arguments import refused
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import CallRefused
from agentrun.core.gate import Open, Passage, Passed, Shut, is_guarded, pass_gate
from agentrun.core.messages import words
from agentrun.core.names import find_tool
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.core.steps import Commit, Wait


def let_in(package: Package, state: State, index: int) -> Passed:
    """Check the arguments, then pass the gate. The first ruling on a call waits for those on the calls before it."""
    call = state.calls[index]
    if not call.checked and (refusal := refused(package, state, call)):
        return Commit((refusal,))
    passed = _before(package, state, index)
    waits = call.status == "new" and any(each.status == "new" for each in state.calls[:index])
    return Wait() if waits and isinstance(passed, Commit) else passed


def refuse(package: Package, state: State, index: int) -> Passed:
    """Tell the model that the call was denied."""
    return _tell(state, index, _before(package, state, index))


def let_out(package: Package, state: State, index: int) -> Passed:
    """Pass the gate after the call. If the result is withheld, the model reads why."""
    return _tell(state, index, _after(package, state, index))


def find_again(package: Package, state: State, index: int) -> Passed:
    """Refuse a call that was allowed if its tool is gone: another package may have come in between."""
    call = state.calls[index]
    if find_tool(package, call.call.tool) is None and (refusal := refused(package, state, call)):
        return Commit((refusal,))
    return Open()


def nothing_due(_: Package, __: State, ___: int) -> Passed:
    """The call runs, waits for somebody, or is over."""
    return Open()


def denial_of(package: Package, state: State, index: int) -> Fault | None:
    """Why a call, or its result, was denied."""
    call = state.calls[index]
    if call.fault is not None and call.fault.code == "tool.denied":
        return call.fault
    passed = _before(package, state, index) if call.status == "denied" else _after(package, state, index)
    return passed.fault if isinstance(passed, Shut) else None


def has_succeeded(package: Package, state: State, index: int) -> bool:
    """Whether a finished call has a result that the model may read."""
    return state.calls[index].fault is None and isinstance(_after(package, state, index), Open)


def _tell(state: State, index: int, passed: Passed) -> Passed:
    """The same, but a denial is a result that the model reads."""
    if not isinstance(passed, Shut):
        return passed
    call = state.calls[index].call
    fields = {**passed.fault.fields, "tool": call.tool, "reason": passed.fault.code}
    return Commit((CallRefused(call.id, "tool.denied", f"tool.denied: {passed.fault.message}", fields),))


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
