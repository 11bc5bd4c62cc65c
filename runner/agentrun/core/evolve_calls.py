"""How the calls of a reply change state. The rules of `evolve.py` hold here."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from agentrun.core.call_validation import parse_arguments
from agentrun.core.evolve_gates import extend_conversation
from agentrun.core.facts import (
    CallCancelled,
    CallFact,
    CallRefused,
    CallSettled,
    ChildStarted,
    ChildSuspended,
    ResultsGiven,
    SingleCallFact,
    ToolFinished,
    ToolStarted,
    runs_or_zero,
)
from agentrun.core.fault import Fault
from agentrun.core.guards import add_batch, add_text, extend_streaks
from agentrun.core.messages import Assistant, Text, ToolResult, words
from agentrun.core.state import NO_GATE, CallState, GuardState, Phase, ReplyState, SpendMeter, State, find_call


def new_call_states(message: Assistant, detector: GuardState) -> tuple[tuple[CallState, ...], GuardState]:
    """The calls of a reply, none of which is judged yet, and what the guards remember with them."""
    asked = message.calls
    if not asked:
        return (), detector
    read = [(call, parse_arguments(call.arguments)) for call in asked]
    calls = tuple(
        [
            CallState(call, arguments, streaks, recent)
            for (call, arguments), (streaks, recent) in zip(read, extend_streaks(detector, read), strict=True)
        ]
    )
    return calls, add_batch(add_text(detector, message.text), calls)


def evolve_call(state: State, fact: CallFact) -> State:
    if isinstance(fact, ResultsGiven):
        return _give_results(state, fact)
    call = find_call(state, fact.call)
    assert call is not None
    after = _evolve_call_state(call, fact)
    calls = tuple([after if each is call else each for each in state.calls])
    phase: Phase = "stopping" if state.phase == "stopping" else "acting"
    return replace(state, phase=phase, calls=calls, meter=_evolve_meter(state.meter, call, fact))


def _evolve_call_state(call: CallState, fact: SingleCallFact) -> CallState:
    match fact:
        case ToolStarted():
            return replace(call, status="started", counted=True)
        case ToolFinished():
            return replace(call, status="finished", parts=fact.parts, fault=fact.fault)
        case CallRefused():
            return replace(
                call, status="done", parts=(Text(fact.told),), fault=Fault(fact.code, fact.told, fact.fields)
            )
        case CallCancelled():
            fields = {"tool": call.call.tool, "reason": "unnecessary" if fact.by else "stopped"}
            fault = Fault("tool.aborted", fact.told, fields)
            return replace(call, status="done", parts=(Text(fact.told),), fault=fault, gate=NO_GATE)
        case ChildStarted():
            return replace(call, status="started", counted=True, share=fact.share)
        case ChildSuspended():
            return replace(call, status="asleep")
        case CallSettled():
            if fact.how == "retry":
                return replace(call, status="ready")
            if fact.how == "stop":
                return replace(call, status="abandoned")
            return replace(call, status="finished", parts=fact.parts)
        case _:
            assert_never(fact)


def _evolve_meter(meter: SpendMeter, call: CallState, fact: SingleCallFact) -> SpendMeter:
    match fact:
        case ToolStarted() | ChildStarted() if not call.counted:
            tool = call.call.tool
            return replace(
                meter,
                tool_calls=meter.tool_calls + 1,
                runs=meter.runs + isinstance(fact, ChildStarted),
                calls={**meter.calls, tool: meter.calls.get(tool, 0) + 1},
            )
        case ToolFinished() if fact.spent is not None:
            return replace(
                meter,
                tokens=meter.tokens + fact.spent.tokens,
                cost=meter.cost + fact.spent.cost,
                tool_calls=meter.tool_calls + fact.spent.tool_calls,
                runs=meter.runs + runs_or_zero(fact.spent.runs),
            )
        case CallCancelled() | CallSettled(how="result") if call.share is not None:
            # what it used is not known: all that it was given
            return replace(
                meter,
                tokens=meter.tokens + (call.share.tokens or 0),
                cost=meter.cost + (call.share.cost or 0),
                tool_calls=meter.tool_calls + (call.share.tool_calls or 0),
                runs=meter.runs + runs_or_zero(call.share.runs),
            )
    return meter


def _give_results(state: State, fact: ResultsGiven) -> State:
    assert state.replies.latest is not None
    results = [ToolResult(call.call.id, call.parts) for call in state.calls]
    ran = state.detector.empty and any(call.counted for call in state.calls)
    ended_by = find_call(state, fact.ended_by) if fact.ended_by else None
    answer = words(ended_by.parts) if ended_by else None
    return replace(
        state,
        phase="thinking" if answer is None else "answered",
        in_turn=False,
        attempt=0,
        conversation=extend_conversation(state.conversation, state.replies.latest.message, *results),
        replies=ReplyState(state.replies.latest, state.replies.original_text),
        calls=(),
        gate=NO_GATE,
        ending=replace(state.ending, answer=answer, ended_by=fact.ended_by),
        detector=replace(state.detector, empty=0) if ran else state.detector,
    )
