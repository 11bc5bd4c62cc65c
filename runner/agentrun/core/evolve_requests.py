"""How requests to a model change state. The rules of `evolve.py` apply here."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from agentrun.core.budget import settled
from agentrun.core.evolve_calls import calls_of
from agentrun.core.facts import (
    ModelAsked,
    ModelFact,
    ModelFailed,
    ModelReplied,
    ReplyDiscarded,
    RetryPlanned,
    RouteSwitched,
)
from agentrun.core.state import NO_GATE, Asking, Compaction, State

MAY_HAVE_WORKED = ("provider.timeout", "provider.zero_output", "provider.empty", "provider.decode")
"""Faults after which the provider may ask to be paid. Nobody knows how much: what was reserved counts as spent."""


def evolve_request(state: State, fact: ModelFact) -> State:
    requests = state.requests
    match fact:
        case ModelAsked():
            return _asked(state, fact)
        case ModelReplied():
            return _replied(state, fact)
        case ModelFailed():
            says_so = fact.fault.code == "provider.context_overflow"
            overflow = state.compaction.overflow if requests.purpose == "compact" else says_so
            state = charged(state) if fact.fault.code in MAY_HAVE_WORKED else state
            return replace(
                state,
                phase="failed",
                requests=replace(requests, asking=None, fault=fact.fault, tries=requests.tries + 1),
                compaction=replace(state.compaction, overflow=overflow),
            )
        case RetryPlanned():
            waited = requests.waited + fact.wait
            return replace(state, phase="waiting", requests=replace(requests, waited=waited, until=fact.until))
        case RouteSwitched():
            return replace(
                state,
                phase="thinking",
                requests=replace(requests, route=requests.route + 1, tries=0, waited=0),
                compaction=drop_overflow(state.compaction),
            )
        case ReplyDiscarded():
            truncations = state.replies.truncations + 1
            return replace(
                state,
                phase="thinking",
                replies=replace(state.replies, latest=None, truncations=truncations, cap=fact.cap),
                calls=(),
                detector=state.before,
                gate=NO_GATE,
            )
        case _:
            assert_never(fact)


def _asked(state: State, fact: ModelAsked) -> State:
    asking = Asking(fact.effect, fact.purpose, fact.reserved, fact.cost)
    if fact.purpose == "compact":
        requests = replace(state.requests, asking=asking, purpose="compact")
        return replace(state, phase="asking", attempt=fact.attempt, requests=requests)
    return replace(
        state,
        phase="asking",
        turns=fact.turn,
        in_turn=True,
        attempt=fact.attempt,
        conversation=replace(state.conversation, looked_at=len(state.conversation.transcript)),
        requests=replace(state.requests, asking=asking, purpose="answer", hidden=fact.hidden),
        replies=replace(state.replies, latest=None),
    )


def _replied(state: State, fact: ModelReplied) -> State:
    assert state.requests.asking is not None
    meter = replace(
        state.meter,
        usage=state.meter.usage.plus(fact.reply.usage),
        tokens=state.meter.tokens + settled(fact.reply.usage, state.requests.asking.reserved),
        cost=state.meter.cost + fact.cost,
    )
    requests = replace(state.requests, asking=None, tries=0, waited=0)
    if requests.purpose == "compact":
        compaction = replace(state.compaction, summary=fact.reply)
        return replace(state, phase="answered", requests=requests, meter=meter, compaction=compaction)
    calls, detector = calls_of(fact.reply.message, state.detector)
    return replace(
        state,
        phase="answered",
        requests=requests,
        replies=replace(state.replies, latest=fact.reply, spoken=fact.reply.message.text),
        compaction=drop_overflow(state.compaction),
        calls=calls,
        gate=NO_GATE,
        meter=meter,
        at_batch=meter,
        detector=detector,
        before=state.detector,
        ending=state.ending if state.ending.answer is None else replace(state.ending, answer=None),
    )


def drop_overflow(compaction: Compaction) -> Compaction:
    """What the provider said of the conversation's size does not count any more."""
    return replace(compaction, overflow=False) if compaction.overflow else compaction


def charged(state: State) -> State:
    """The state after a request whose cost is not known: what was reserved counts as spent."""
    assert state.requests.asking is not None
    tokens, cost = state.meter.tokens + state.requests.asking.reserved, state.meter.cost + state.requests.asking.cost
    return replace(state, meter=replace(state.meter, tokens=tokens, cost=cost))
