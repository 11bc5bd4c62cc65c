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
from agentrun.core.state import Asking, Gate, State

MAY_HAVE_WORKED = ("provider.timeout", "provider.zero_output", "provider.empty", "provider.decode")
"""Faults after which the provider may ask to be paid. Nobody knows how much: what was reserved counts as spent."""


def evolve_request(state: State, fact: ModelFact) -> State:
    match fact:
        case ModelAsked():
            return replace(
                state,
                phase="asking",
                turns=fact.turn if fact.purpose == "answer" else state.turns,
                in_turn=state.in_turn or fact.purpose == "answer",
                attempt=fact.attempt,
                asking=Asking(fact.effect, fact.purpose, fact.reserved, fact.cost),
                purpose=fact.purpose,
                hidden=fact.hidden if fact.purpose == "answer" else state.hidden,
                reply=None if fact.purpose == "answer" else state.reply,
                looked_at=len(state.transcript) if fact.purpose == "answer" else state.looked_at,
            )
        case ModelReplied():
            return _replied(state, fact)
        case ModelFailed():
            says_so = fact.fault.code == "provider.context_overflow"
            overflow = state.overflow if state.purpose == "compact" else says_so
            state = charged(state) if fact.fault.code in MAY_HAVE_WORKED else state
            return replace(
                state, phase="failed", asking=None, fault=fact.fault, tries=state.tries + 1, overflow=overflow
            )
        case RetryPlanned():
            return replace(state, phase="waiting", waited=state.waited + fact.wait, until=fact.until)
        case RouteSwitched():
            return replace(state, phase="thinking", route=state.route + 1, tries=0, waited=0, overflow=False)
        case ReplyDiscarded():
            return replace(
                state,
                phase="thinking",
                cap=fact.cap,
                reply=None,
                calls=(),
                detector=state.before,
                truncations=state.truncations + 1,
                gate=Gate(),
            )
        case _:
            assert_never(fact)


def _replied(state: State, fact: ModelReplied) -> State:
    assert state.asking is not None
    meter = replace(
        state.meter,
        usage=state.meter.usage.plus(fact.reply.usage),
        tokens=state.meter.tokens + settled(fact.reply.usage, state.asking.reserved),
        cost=state.meter.cost + fact.cost,
    )
    if state.purpose == "compact":
        return replace(state, phase="answered", asking=None, tries=0, waited=0, meter=meter, summary=fact.reply)
    calls, detector = calls_of(fact.reply.message, state.detector)
    return replace(
        state,
        phase="answered",
        asking=None,
        tries=0,
        waited=0,
        meter=meter,
        at_batch=meter,
        reply=fact.reply,
        spoken=fact.reply.message.text,
        calls=calls,
        detector=detector,
        before=state.detector,
        overflow=False,
        gate=Gate(),
        answer=None,
    )


def charged(state: State) -> State:
    """The state after a request whose cost is not known: what was reserved counts as spent."""
    assert state.asking is not None
    tokens, cost = state.meter.tokens + state.asking.reserved, state.meter.cost + state.asking.cost
    return replace(state, meter=replace(state.meter, tokens=tokens, cost=cost))
