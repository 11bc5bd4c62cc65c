"""The steps of one tool call at its gates: before it runs, and with its result."""

from __future__ import annotations

from agentrun.core.call_validation import refuse, validate_call
from agentrun.core.effects import Commit, Wait
from agentrun.core.fault import Fault
from agentrun.core.gate import Allowed, Blocked, GateRequest, GateResult, has_gate, pass_gate
from agentrun.core.messages import text_of
from agentrun.core.package import Package, find_tool
from agentrun.core.state import State


def admit_call(package: Package, state: State, index: int) -> GateResult:
    """Complete and validate the call, then pass the gate. Calls are ruled on in their order."""
    call = state.calls[index]
    if not call.checked and (fact := validate_call(package, state, call)):
        return Commit((fact,))
    passed = _pass_call_gate(package, state, index)
    waits = call.status == "new" and any(each.status == "new" for each in state.calls[:index])
    return Wait() if waits and isinstance(passed, Commit) else passed


def refuse_if_denied(package: Package, state: State, index: int) -> GateResult:
    """The denial of a call or of its result becomes a result that the model reads."""
    passed = _pass_own_gate(package, state, index)
    if not isinstance(passed, Blocked):
        return passed
    fields = {**passed.fault.fields, "reason": passed.fault.code}
    return Commit((refuse(state.calls[index], "tool.denied", passed.fault.message, **fields),))


def check_tool_exists(package: Package, state: State, index: int) -> GateResult:
    """Refuse an allowed call whose tool is gone: the run may have been resumed with another package."""
    call = state.calls[index]
    if find_tool(package, call.tool) is None and (refusal := validate_call(package, state, call)):
        return Commit((refusal,))
    return Allowed()


def no_step(_: Package, __: State, ___: int) -> GateResult:
    """The call runs, waits for someone outside, or is over."""
    return Allowed()


def denial_fault(package: Package, state: State, index: int) -> Fault | None:
    call = state.calls[index]
    if call.fault is not None and call.fault.code == "tool.denied":
        return call.fault
    passed = _pass_own_gate(package, state, index)
    return passed.fault if isinstance(passed, Blocked) else None


def has_succeeded(package: Package, state: State, index: int) -> bool:
    return state.calls[index].fault is None and isinstance(_pass_result_gate(package, state, index), Allowed)


def _pass_own_gate(package: Package, state: State, index: int) -> GateResult:
    before_it_runs = state.calls[index].status == "denied"
    return (_pass_call_gate if before_it_runs else _pass_result_gate)(package, state, index)


def _pass_call_gate(package: Package, state: State, index: int) -> GateResult:
    call = state.calls[index]
    request = GateRequest(
        subject=call.id,
        target=call.tool,
        value=call.all_arguments,
        point="before_tool",
        stage="tool_call",
        arguments=call.all_arguments,
        index=index,
        value_without_defaults=None if call.completed_arguments is None else call.arguments,
    )
    return pass_gate(package, state, call.gate, request)


def _pass_result_gate(package: Package, state: State, index: int) -> GateResult:
    if not has_gate(package, "after_tool", "tool_result"):
        return Allowed()
    call = state.calls[index]
    text, arguments = text_of(call.parts), call.all_arguments
    request = GateRequest(call.id, call.tool, text, "after_tool", "tool_result", arguments, index + 1)
    return pass_gate(package, state, call.result_gate, request)
