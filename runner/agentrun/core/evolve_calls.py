"""How the calls of a reply change state. The rules of `evolve.py` hold here."""

from __future__ import annotations

from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core import facts
from agentrun.core.call_validation import parse_arguments
from agentrun.core.evolve_gates import extend_conversation
from agentrun.core.fault import Fault
from agentrun.core.guards import add_batch, add_results, add_text, call_signature
from agentrun.core.messages import Assistant, Text, ToolResult, text_of
from agentrun.core.state import NO_GATE, CallState, GuardState, Phase, SpendMeter, State, find_call


def new_call_states(message: Assistant, detector: GuardState) -> tuple[tuple[CallState, ...], GuardState]:
    """The calls of a reply, none of them checked yet, and the detector that has counted them."""
    if not message.calls:
        return (), detector
    parsed = [(call, parse_arguments(call.arguments)) for call in message.calls]
    calls = tuple([CallState(*call, call_signature(*call)) for call in parsed])
    return calls, add_batch(add_text(detector, message.text), calls)


def evolve_call(state: State, fact: facts.CallFact) -> State:
    if isinstance(fact, facts.ResultsGiven):
        return _give_results(state, fact)
    call = find_call(state, fact.call)
    assert call is not None
    after = _evolve_call_state(call, fact)
    calls = tuple([after if each is call else each for each in state.calls])
    phase: Phase = "stopping" if state.phase == "stopping" else "acting"
    return replace(state, phase=phase, calls=calls, meter=_evolve_meter(state.meter, call, fact))


def _evolve_call_state(call: CallState, fact: facts.SingleCallFact) -> CallState:
    match fact:
        case facts.ArgumentsCompleted():
            return replace(call, completed_arguments=fact.arguments, checked=True)
        case facts.ToolStarted():
            return replace(call, status="started", counted=True)
        case facts.ResultShared():
            return replace(call, status="started")
        case facts.ToolFinished():
            return replace(call, status="finished", parts=fact.parts, fault=fact.fault, returned=fact)
        case facts.CallRefused():
            fault = Fault(fact.code, fact.told, fact.fields)
            return replace(call, status="done", parts=(Text(fact.told),), fault=fault)
        case facts.CallCancelled():
            fields = {"tool": call.tool, "reason": "unnecessary" if fact.by else "stopped"}
            fault = Fault("tool.aborted", fact.told, fields)
            return replace(call, status="done", parts=(Text(fact.told),), fault=fault, gate=NO_GATE)
        case facts.ChildStarted():
            return replace(call, status="started", counted=True, share=fact.share)
        case facts.ChildSuspended():
            return replace(call, status="asleep")
        case facts.CallSettled():
            if fact.how == "result":
                returned = facts.ToolFinished(call.id, fact.parts)
                return replace(call, status="finished", parts=fact.parts, returned=returned)
            return replace(call, status="ready" if fact.how == "retry" else "abandoned")
        case _:
            assert_never(fact)


def _evolve_meter(meter: SpendMeter, call: CallState, fact: facts.SingleCallFact) -> SpendMeter:
    match fact:
        case facts.ToolStarted() | facts.ChildStarted() if not call.counted:
            tool = call.tool
            calls = {**meter.calls, tool: meter.calls.get(tool, 0) + 1}
            return replace(meter.plus(tool_calls=1, runs=int(isinstance(fact, facts.ChildStarted))), calls=calls)
        case facts.ToolFinished() if fact.spent is not None:
            return _charge(meter, fact.spent)
        case facts.CallCancelled() | facts.CallSettled(how="result") if call.share is not None:
            return _charge(meter, call.share)  # what it used is not known, so its whole share counts
    return meter


def _charge(meter: SpendMeter, spent: facts.ChildSpend | facts.BudgetShare) -> SpendMeter:
    amounts = {name: getattr(spent, name) for name in facts.ChildSpend.__struct_fields__}
    return meter.plus(**{name: amount for name, amount in amounts.items() if amount not in (None, UNSET)})


def _give_results(state: State, fact: facts.ResultsGiven) -> State:
    assert state.replies.latest is not None
    results = [ToolResult(call.id, call.parts) for call in state.calls]
    detector = add_results(state.detector, state.calls, () if fact.repeats is UNSET else fact.repeats)
    if detector.empty and any(call.counted for call in state.calls):
        detector = replace(detector, empty=0)
    ended_by = find_call(state, fact.ended_by) if fact.ended_by else None
    answer = text_of(ended_by.parts) if ended_by else None
    return replace(
        state,
        phase="thinking" if answer is None else "answered",
        in_turn=False,
        attempt=0,
        conversation=extend_conversation(state.conversation, state.replies.latest.message, *results),
        replies=replace(state.replies, earlier_text="", truncations=0, cap=None),
        calls=(),
        gate=NO_GATE,
        ending=replace(state.ending, answer=answer, ended_by=fact.ended_by),
        detector=detector,
    )
