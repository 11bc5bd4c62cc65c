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
from agentrun.core.evolve_gates import evolve_gate, went_on
from agentrun.core.evolve_requests import charged, evolve_request
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
from agentrun.core.state import CallState, Detector, Gate, State, under_way
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
            return replace(went_on(state, fact.repair), repairs=state.repairs + 1)
        case ContextCompacted():
            rest = state.transcript.since(fact.replaced)
            return replace(
                state,
                phase="thinking",
                transcript=Transcript((fact.summary, *rest)),
                estimate=state.estimate - fact.before + fact.after,
                looked_at=1 + len(rest),
                failed_compactions=0,
                overflow=False,
            )
        case CompactionFailed():
            return replace(state, phase="thinking", failed_compactions=fact.failures)
        case AnswerReached():
            cut_short = state.cut_short or fact.label == "budget.turns"
            return replace(
                state, phase="ending", answer=answer_of(state), label=fact.label, cut_short=cut_short, gate=Gate()
            )
        case DeliveryStarted():
            return replace(state, delivering=fact.sink)
        case DeliveryFinished() | DeliverySkipped():
            return replace(state, delivering=None, delivered={**state.delivered, fact.sink: fact.fault}, gate=Gate())
        case RunEnding():
            return replace(_given_up(state), phase="stopping", ending=fact.stop, gate=Gate())
        case RunStopped():
            return replace(_given_up(state), phase="stopped", stopped=fact, gate=Gate())
        case _:
            assert_never(fact)


def _started(record: Record, fact: RunStarted) -> State:
    messages = fact.earlier.messages if fact.input is None else (*fact.earlier.messages, fact.input)
    return State(
        phase="starting",
        began=record.at,
        start=fact,
        package=fact.package,
        instructions=fact.instructions,
        transcript=Transcript(messages),
        estimate=sum(estimated(message) for message in messages),
        detector=Detector(batches=Tally(fact.earlier.batches), texts=TextTally(fact.earlier.texts)),
        grants=fact.earlier.grants,
    )


def _told(state: State, fact: ModelTold) -> State:
    match fact.why:
        case "wrap_up":
            added = sum(estimated(message) for message in fact.messages)
            transcript = state.transcript.plus(*fact.messages)
            return replace(state, phase="thinking", warned=True, transcript=transcript, estimate=state.estimate + added)
        case "continue":
            assert state.reply is not None
            kept, truncations = state.kept + state.reply.message.text, state.truncations + 1
            return replace(went_on(state, *fact.messages), reply=None, kept=kept, truncations=truncations)
        case "nudge":
            detector = with_text(state.detector, state.spoken)
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
        route=0,
        tries=0,
        waited=0,
        overflow=False,
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
    if state.asking is not None and state.asking.effect == effect:
        return replace(charged(state), phase="thinking", asking=None)
    if state.gate.hook == effect:
        return replace(state, gate=replace(state.gate, hook=None))
    if state.delivering is not None and effect == str(DeliveryId(state.delivering)):
        return replace(state, delivering=None)
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
    calls = tuple(replace(call, gate=Gate(), after=Gate()) for call in state.calls)
    return replace(charged(state) if state.asking else state, asking=None, delivering=None, calls=calls)
