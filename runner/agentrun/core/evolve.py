"""How facts change state.

Rule 1  Every change of `State` happens in this file and in `evolve_gates.py`.
Rule 2  No decisions here: `decide` handles budgets, contracts, guards and retries. A fact has already happened.
Rule 3  `transitions.py` defines which fact may follow. Any other fact is refused before anything changes.
Rule 4  Facts of one batch commute: any order of arrival gives the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, assert_never, get_args

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core import facts
from agentrun.core.budget import charged_tokens, estimate_tokens
from agentrun.core.call_validation import parse_arguments
from agentrun.core.effect_ids import DeliveryId
from agentrun.core.evolve_gates import (
    add_messages,
    end_deferral,
    evolve_gate,
    extend_conversation,
    forget_ruling,
    start_next_turn,
)
from agentrun.core.fault import Fault
from agentrun.core.guards import add_batch, add_results, add_text, call_signature, first_guard_state
from agentrun.core.messages import Assistant, Text, ToolResult, Transcript, text_of
from agentrun.core.outcome import answer_of
from agentrun.core.spend import BudgetShare, ChildSpend
from agentrun.core.state import (
    NO_GATE,
    CallState,
    ConversationState,
    GuardState,
    PendingRequest,
    Phase,
    SpendMeter,
    State,
    find_call,
    pending_effects,
)
from agentrun.core.transitions import find_violation
from agentrun.errors import StorageError

MAYBE_CHARGED = ("provider.timeout", "provider.zero_output", "provider.empty", "provider.decode")
"""Faults after which the provider may charge an unknown amount. The reserved amount counts as spent."""
OUTSIDE_FACTS = frozenset(
    (facts.ApprovalAnswered, facts.CallSettled, facts.CancelRequested, facts.MessageQueued, facts.RunResumed)
)
"""Facts that can end a pause: a time in which the run waited for people or for a resume. Pauses are not counted."""


def evolve_request(state: State, fact: facts.ModelFact) -> State:
    requests = state.requests
    match fact:
        case facts.ModelAsked():
            return _begin_request(state, fact)
        case facts.ModelReplied():
            return _receive_reply(state, fact)
        case facts.ModelFailed():
            is_overflow = fact.fault.code == "provider.context_overflow"
            overflow = state.compaction.overflow if requests.purpose == "compact" else is_overflow
            state = charge_reserved(state) if fact.fault.code in MAYBE_CHARGED else state
            return replace(
                state,
                phase="failed",
                requests=replace(requests, asking=None, fault=fact.fault, tries=requests.tries + 1),
                compaction=replace(state.compaction, overflow=overflow),
            )
        case facts.RetryPlanned():
            waited = requests.waited + fact.wait
            return replace(state, phase="waiting", requests=replace(requests, waited=waited, until=fact.until))
        case facts.RouteSwitched():
            return replace(
                state,
                phase="thinking",
                requests=replace(requests, route=requests.route + 1, tries=0, waited=0),
                compaction=replace(state.compaction, overflow=False),
            )
        case facts.ReplyDiscarded():
            replies = replace(state.replies, latest=None, truncations=state.replies.truncations + 1, cap=fact.cap)
            return replace(
                state,
                phase="thinking",
                replies=replies,
                calls=(),
                detector=state.detector_before_reply,
                gate=NO_GATE,
            )
        case _:
            assert_never(fact)


def _begin_request(state: State, fact: facts.ModelAsked) -> State:
    asking = PendingRequest(fact.effect, fact.purpose, fact.reserved, fact.cost)
    if fact.purpose == "compact":
        requests = replace(state.requests, asking=asking, purpose="compact")
        return replace(state, phase="asking", attempt=fact.attempt, requests=requests)
    return replace(
        state,
        phase="asking",
        turns=fact.turn,
        in_turn=True,
        attempt=fact.attempt,
        conversation=replace(state.conversation, checked_messages=len(state.conversation.transcript)),
        requests=replace(state.requests, asking=asking, purpose="answer", hidden=fact.hidden),
        replies=replace(state.replies, latest=None),
    )


def _receive_reply(state: State, fact: facts.ModelReplied) -> State:
    assert state.requests.asking is not None
    tokens = charged_tokens(fact.reply.usage, state.requests.asking.reserved)
    before = state.meter
    usage = before.usage.plus(fact.reply.usage)
    meter = replace(before, usage=usage, tokens=before.tokens + tokens, cost=before.cost + fact.cost)
    requests = replace(state.requests, asking=None, tries=0, waited=0)
    if requests.purpose == "compact":
        compaction = replace(state.compaction, summary=fact.reply)
        return replace(state, phase="answered", requests=requests, meter=meter, compaction=compaction)
    calls, detector = new_call_states(fact.reply.message, state.detector)
    return replace(
        state,
        phase="answered",
        requests=requests,
        replies=replace(state.replies, latest=fact.reply, original_text=fact.reply.message.text),
        compaction=replace(state.compaction, overflow=False),
        calls=calls,
        gate=NO_GATE,
        meter=meter,
        meter_at_batch_start=meter,
        detector=detector,
        detector_before_reply=state.detector,
        ending=state.ending if state.ending.answer is None else replace(state.ending, answer=None),
    )


def charge_reserved(state: State) -> State:
    asking = state.requests.asking
    assert asking is not None
    return replace(state, meter=state.meter.plus(tokens=asking.reserved, cost=asking.cost))


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
            runs = meter.runs + isinstance(fact, facts.ChildStarted)
            return replace(meter, tool_calls=meter.tool_calls + 1, runs=runs, calls=calls)
        case facts.ToolFinished() if fact.spent is not None:
            return _charge(meter, fact.spent)
        case facts.CallCancelled() | facts.CallSettled(how="result") if call.share is not None:
            return _charge(meter, call.share)  # what it used is not known, so its whole share counts
    return meter


def _charge(meter: SpendMeter, spent: ChildSpend | BudgetShare) -> SpendMeter:
    amounts = {name: getattr(spent, name) for name in ChildSpend.__struct_fields__}
    return meter.plus(**{name: amount for name, amount in amounts.items() if amount not in (None, UNSET)})


def _give_results(state: State, fact: facts.ResultsGiven) -> State:
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
        conversation=extend_conversation(state.conversation, state.reply.message, *results),
        replies=replace(state.replies, earlier_text="", truncations=0, cap=None),
        calls=(),
        gate=NO_GATE,
        ending=replace(state.ending, answer=answer, ended_by=fact.ended_by),
        detector=detector,
    )


EVOLVE_BY_TYPE: Mapping[type[facts.Fact], Callable[[State, Any], State]] = {
    **dict.fromkeys(get_args(facts.CallFact), evolve_call),
    **dict.fromkeys(get_args(facts.GateFact), evolve_gate),
    **dict.fromkeys(get_args(facts.ModelFact), evolve_request),
}
"""The function for each type of fact. The types that are missing are facts of the run as a whole."""


def fold(records: Iterable[facts.Record]) -> State:
    return reduce(evolve, records, State())


def evolve(state: State, record: facts.Record) -> State:
    """The state after one more record. Raises `recovery.failed` for a record that cannot follow."""
    if why := find_violation(state, record):
        message = f"record {record.seq} ({facts.fact_kind(record.fact)}) does not fit into its journal: {why}"
        raise StorageError("recovery.failed", message, fields={"seq": record.seq})
    fact = record.fact
    if type(fact) in OUTSIDE_FACTS:
        is_idle = state.phase != "waiting" and not pending_effects(state)  # the wait before a retry is not a pause
        if is_idle or isinstance(fact, facts.RunResumed):
            state = replace(state, paused=state.paused + max(record.at - state.now, 0))
    family = EVOLVE_BY_TYPE.get(type(fact))
    after = family(state, fact) if family else _evolve_run(state, record, fact)  # type: ignore[arg-type]  # the rest of the union
    return replace(after, seq=record.seq, now=record.at)


def _evolve_run(state: State, record: facts.Record, fact: facts.RunFact) -> State:
    match fact:
        case facts.RunStarted():
            return _start_run(record, fact)
        case facts.MessageQueued():
            return replace(state, queue=(*state.queue, fact.message))
        case facts.CancelRequested():
            return replace(state, cancelled=state.cancelled or fact)
        case facts.TimePassed():
            return state
        case facts.RunResumed():
            return _resume_run(state, fact, record.at)
        case facts.WorkLost():
            return _lose_effect(state, fact.effect)
        case facts.ModelTold():
            return _add_runtime_message(state, fact)
        case facts.OutputRefused():
            after = start_next_turn(state, fact.repair)
            return replace(after, ending=replace(after.ending, repairs=after.ending.repairs + 1))
        case facts.ContextCompacted():
            return _replace_by_summary(state, fact)
        case facts.CompactionFailed():
            return replace(state, phase="thinking", compaction=replace(state.compaction, failures=fact.failures))
        case facts.AnswerReached():
            cut_short = state.ending.cut_short or fact.label == "budget.turns"
            ending = replace(state.ending, answer=answer_of(state), label=fact.label, cut_short=cut_short)
            return replace(state, phase="ending", ending=ending, gate=NO_GATE)
        case facts.DeliveryStarted():
            return replace(state, ending=replace(state.ending, delivering=fact.sink))
        case facts.DeliveryFinished() | facts.DeliverySkipped():
            delivered = {**state.ending.delivered, fact.sink: fact.fault}
            return replace(state, ending=replace(state.ending, delivering=None, delivered=delivered), gate=NO_GATE)
        case facts.RunEnding():
            after = _abandon_pending(state)
            return replace(after, phase="stopping", ending=replace(after.ending, stop=fact.stop), gate=NO_GATE)
        case facts.RunStopped():
            return replace(_abandon_pending(state), phase="stopped", stopped=fact, gate=NO_GATE)
        case _:
            assert_never(fact)


def _start_run(record: facts.Record, fact: facts.RunStarted) -> State:
    messages = fact.earlier.messages if fact.input is None else (*fact.earlier.messages, fact.input)
    return State(
        phase="starting",
        began=record.at,
        start=fact,
        package=fact.package,
        conversation=ConversationState(fact.instructions, Transcript(messages), sum(map(estimate_tokens, messages))),
        detector=first_guard_state(fact.earlier),
        grants=fact.earlier.grants,
    )


def _replace_by_summary(state: State, fact: facts.ContextCompacted) -> State:
    before = state.conversation
    rest = before.transcript.since(fact.replaced)
    transcript, estimate = Transcript((fact.summary, *rest)), before.estimate - fact.before + fact.after
    return replace(
        state,
        phase="thinking",
        conversation=ConversationState(before.instructions, transcript, estimate, checked_messages=1 + len(rest)),
        compaction=replace(state.compaction, overflow=False, failures=0),
    )


def _add_runtime_message(state: State, fact: facts.ModelTold) -> State:
    match fact.why:
        case "wrap_up":
            return replace(add_messages(state, *fact.messages), phase="thinking", warned=True)
        case "continue":
            kept = state.replies.earlier_text + state.reply.message.text
            after = start_next_turn(state, *fact.messages)
            truncations = state.replies.truncations + 1
            replies = replace(after.replies, latest=None, earlier_text=kept, truncations=truncations)
            return replace(after, replies=replies)
        case "nudge":
            detector = add_text(state.detector, state.replies.original_text)
            return replace(start_next_turn(state, *fact.messages), detector=replace(detector, empty=detector.empty + 1))
        case "follow_up":
            return replace(start_next_turn(state, *fact.messages), queue=())
        case _:
            assert_never(fact.why)


def _resume_run(state: State, fact: facts.RunResumed, at: int) -> State:
    """With another package, calls that have not started are checked again, and the first route is used."""
    calls = tuple(_wake_call(call, at) for call in state.calls)
    state = replace(state, calls=calls, gate=end_deferral(state.gate, at))
    if fact.package == state.package:
        return state
    return replace(
        state,
        phase="thinking" if state.phase in ("failed", "waiting") else state.phase,
        package=fact.package,
        requests=replace(state.requests, route=0, tries=0, waited=0),
        compaction=replace(state.compaction, overflow=False),
        calls=tuple(_recheck_call(call) for call in state.calls),
        gate=forget_ruling(state.gate),
    )


def _recheck_call(call: CallState) -> CallState:
    if call.counted or call.status not in ("new", "asking", "deferred", "ready"):
        return call
    gate = forget_ruling(call.gate)
    return replace(call, status="new", checked=False, completed_arguments=None, gate=gate)


def _wake_call(call: CallState, at: int) -> CallState:
    """Rules that deferred a call are asked again, if it is time. A sub-agent that waited may have its answer now."""
    if call.status == "asleep":
        return replace(call, status="ready")
    gate = end_deferral(call.gate, at) if call.status == "deferred" else call.gate
    return call if gate is call.gate else replace(call, status="new", gate=gate)


def _lose_effect(state: State, effect: str) -> State:
    if state.requests.asking is not None and state.requests.asking.effect == effect:
        return replace(charge_reserved(state), phase="thinking", requests=replace(state.requests, asking=None))
    if state.gate.hook == effect:
        return replace(state, gate=replace(state.gate, hook=None))
    if state.ending.delivering is not None and effect == str(DeliveryId(state.ending.delivering)):
        return replace(state, ending=replace(state.ending, delivering=None))
    return replace(state, calls=tuple(_lose_call_effect(call, effect) for call in state.calls))


def _lose_call_effect(call: CallState, effect: str) -> CallState:
    if call.id == effect:
        return replace(call, status="lost")
    if call.gate.hook == effect:
        return replace(call, gate=replace(call.gate, hook=None))
    if call.result_gate.hook == effect:
        return replace(call, result_gate=replace(call.result_gate, hook=None))
    return call


def _abandon_pending(state: State) -> State:
    """Nothing is waited for any more. A running request is charged what was reserved for it."""
    return replace(
        charge_reserved(state) if state.requests.asking else state,
        calls=tuple(replace(call, gate=NO_GATE, result_gate=NO_GATE) for call in state.calls),
        requests=replace(state.requests, asking=None),
        ending=replace(state.ending, delivering=None),
    )
