"""How facts change state.

Rule 1  Every change of `State` happens in this file and the three beside it, for requests, gates and calls.
Rule 2  No judgement here: budgets, contracts, guards and retries are judged by `decide`. A fact already happened.
Rule 3  `legal.py` says which fact may follow. Anything else is refused before anything changes.
Rule 4  Facts of one batch commute: any order of arrival gives the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, assert_never, get_args

from msgspec.structs import replace

from agentrun.core.budget import estimated
from agentrun.core.effect_ids import DeliveryId
from agentrun.core.evolve_calls import evolve_call
from agentrun.core.evolve_gates import added, evolve_gate, went_on
from agentrun.core.evolve_requests import charged, drop_overflow, evolve_request
from agentrun.core.facts import (
    AnswerReached,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    DeliveryFinished,
    DeliverySkipped,
    DeliveryStarted,
    Fact,
    MessageQueued,
    ModelFact,
    ModelTold,
    OutputRefused,
    Record,
    RunEnding,
    RunFact,
    RunResumed,
    RunStarted,
    RunStopped,
    TimePassed,
    WorkLost,
    kind_of,
)
from agentrun.core.facts_calls import CallFact, CallSettled
from agentrun.core.facts_gates import ApprovalAnswered, GateFact
from agentrun.core.guards import with_text
from agentrun.core.legal import refusal
from agentrun.core.messages import Transcript
from agentrun.core.outcome import answer_of
from agentrun.core.state import NO_GATE, CallState, Conversation, Detector, Gate, Replies, State, under_way
from agentrun.core.tally import Tally, TextTally
from agentrun.errors import StorageError

FAMILIES: Mapping[type[Fact], Callable[[State, Any], State]] = {
    **dict.fromkeys(get_args(CallFact), evolve_call),
    **dict.fromkeys(get_args(GateFact), evolve_gate),
    **dict.fromkeys(get_args(ModelFact), evolve_request),
}
"""Who knows what a fact means; the others are those of the run as a whole. Looked up by type, for every record."""
FROM_OUTSIDE = frozenset((ApprovalAnswered, CallSettled, CancelRequested, MessageQueued, RunResumed))
"""What can end a time in which the run waited for people, or for an owner. Such time is not counted."""


def fold(records: Iterable[Record]) -> State:
    """The state a journal stands for. Resume, replay, report and test all begin with it."""
    return reduce(evolve, records, State())


def evolve(state: State, record: Record) -> State:
    """The state after one more record. Refuses with `recovery.failed` what cannot follow."""
    if why := refusal(state, record):
        message = f"record {record.seq} ({kind_of(record.fact)}) does not fit its journal: {why}"
        raise StorageError("recovery.failed", message, fields={"seq": record.seq})
    fact = record.fact
    if type(fact) in FROM_OUTSIDE and _was_pause(state, fact):
        state = replace(state, paused=state.paused + max(record.at - state.now, 0))
    family = FAMILIES.get(type(fact))
    after = family(state, fact) if family else _run(state, record, fact)  # type: ignore[arg-type]  # the rest of the union
    return replace(after, seq=record.seq, now=record.at)


def _was_pause(state: State, fact: Fact) -> bool:
    """Whether nothing was done in the time before a fact. A wait before a request is sent again is not a pause."""
    return isinstance(fact, RunResumed) or (state.phase != "waiting" and not under_way(state))


def _run(state: State, record: Record, fact: RunFact) -> State:
    match fact:
        case RunStarted():
            return _started(record, fact)
        case MessageQueued():
            return replace(state, queue=(*state.queue, fact.message))
        case CancelRequested():
            return replace(state, cancelled=state.cancelled or fact)
        case TimePassed():
            return state
        case RunResumed():
            return _resumed(state, fact)
        case WorkLost():
            return _lost(state, fact.effect)
        case ModelTold():
            return _told(state, fact)
        case OutputRefused():
            after = went_on(state, fact.repair)
            return replace(after, ending=replace(after.ending, repairs=after.ending.repairs + 1))
        case ContextCompacted():
            return _compacted(state, fact)
        case CompactionFailed():
            return replace(state, phase="thinking", compaction=replace(state.compaction, failures=fact.failures))
        case AnswerReached():
            cut_short = state.ending.cut_short or fact.label == "budget.turns"
            ending = replace(state.ending, answer=answer_of(state), label=fact.label, cut_short=cut_short)
            return replace(state, phase="ending", ending=ending, gate=NO_GATE)
        case DeliveryStarted():
            return replace(state, ending=replace(state.ending, delivering=fact.sink))
        case DeliveryFinished() | DeliverySkipped():
            delivered = {**state.ending.delivered, fact.sink: fact.fault}
            return replace(state, ending=replace(state.ending, delivering=None, delivered=delivered), gate=NO_GATE)
        case RunEnding():
            after = _given_up(state)
            return replace(after, phase="stopping", ending=replace(after.ending, stop=fact.stop), gate=NO_GATE)
        case RunStopped():
            return replace(_given_up(state), phase="stopped", stopped=fact, gate=NO_GATE)
        case _:
            assert_never(fact)


def _started(record: Record, fact: RunStarted) -> State:
    messages = fact.earlier.messages if fact.input is None else (*fact.earlier.messages, fact.input)
    return State(
        phase="starting",
        began=record.at,
        start=fact,
        package=fact.package,
        conversation=Conversation(
            fact.instructions, Transcript(messages), sum(estimated(message) for message in messages)
        ),
        detector=Detector(batches=Tally(fact.earlier.batches), texts=TextTally(fact.earlier.texts)),
        grants=fact.earlier.grants,
    )


def _compacted(state: State, fact: ContextCompacted) -> State:
    before = state.conversation
    rest = before.transcript.since(fact.replaced)
    transcript, estimate = Transcript((fact.summary, *rest)), before.estimate - fact.before + fact.after
    return replace(
        state,
        phase="thinking",
        conversation=Conversation(before.instructions, transcript, estimate, looked_at=1 + len(rest)),
        compaction=replace(state.compaction, overflow=False, failures=0),
    )


def _told(state: State, fact: ModelTold) -> State:
    match fact.why:
        case "wrap_up":
            return replace(added(state, *fact.messages), phase="thinking", warned=True)
        case "continue":
            assert state.replies.latest is not None
            kept = state.replies.kept + state.replies.latest.message.text
            replies = Replies(None, state.replies.spoken, kept, state.replies.truncations + 1)
            return replace(went_on(state, *fact.messages), replies=replies)
        case "nudge":
            detector = with_text(state.detector, state.replies.spoken)
            return replace(went_on(state, *fact.messages), detector=replace(detector, empty=detector.empty + 1))
        case "follow_up":
            return replace(went_on(state, *fact.messages), queue=())
        case _:
            assert_never(fact.why)


def _resumed(state: State, fact: RunResumed) -> State:
    """Another owner. Under another package, all that has not begun is judged again, and the first route is asked."""
    state = replace(state, calls=tuple(_woken(call) for call in state.calls), gate=_again(state.gate))
    if fact.package == state.package:
        return state
    return replace(
        state,
        phase="thinking" if state.phase in ("failed", "waiting") else state.phase,
        package=fact.package,
        requests=replace(state.requests, route=0, tries=0, waited=0),
        compaction=drop_overflow(state.compaction),
        calls=tuple(_anew(call) for call in state.calls),
        gate=_unruled(state.gate),
    )


def _anew(call: CallState) -> CallState:
    if call.counted or call.status not in ("new", "asking", "ready"):
        return call
    return replace(call, status="new", checked=False, gate=_unruled(call.gate))


def _unruled(gate: Gate) -> Gate:
    return Gate(gate.subject, gate.hooked, gate.hook, gate.denial, gate.by, rewritten=gate.rewritten, text=gate.text)


def _woken(call: CallState) -> CallState:
    """Rules that deferred a call are asked again; a child that waits for somebody may have its answer."""
    if call.status == "asleep":
        return replace(call, status="ready")
    return replace(call, status="new", gate=_again(call.gate)) if call.status == "deferred" else call


def _again(gate: Gate) -> Gate:
    return replace(gate, ruling=None, rules=(), reason=None) if gate.ruling == "defer" else gate


def _lost(state: State, effect: str) -> State:
    """What an owner that went away left undone. What a request may have cost counts as spent."""
    if state.requests.asking is not None and state.requests.asking.effect == effect:
        return replace(charged(state), phase="thinking", requests=replace(state.requests, asking=None))
    if state.gate.hook == effect:
        return replace(state, gate=replace(state.gate, hook=None))
    if state.ending.delivering is not None and effect == str(DeliveryId(state.ending.delivering)):
        return replace(state, ending=replace(state.ending, delivering=None))
    return replace(state, calls=tuple(_lost_call(call, effect) for call in state.calls))


def _lost_call(call: CallState, effect: str) -> CallState:
    if call.call.id == effect:
        return replace(call, status="lost")
    if call.gate.hook == effect:
        return replace(call, gate=replace(call.gate, hook=None))
    if call.after.hook == effect:
        return replace(call, after=replace(call.after, hook=None))
    return call


def _given_up(state: State) -> State:
    """Nothing is waited for any more; a request that was under way counts as what was reserved for it."""
    calls = tuple(replace(call, gate=NO_GATE, after=NO_GATE) for call in state.calls)
    return replace(
        charged(state) if state.requests.asking else state,
        calls=calls,
        requests=replace(state.requests, asking=None),
        ending=replace(state.ending, delivering=None),
    )
