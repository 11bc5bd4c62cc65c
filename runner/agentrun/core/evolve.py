"""How facts change state.

Rule 1  Every change of `State` happens in this file.
Rule 2  No judgement here: budgets, contracts and retries are judged in `decide.py`. A fact already happened.
Rule 3  LEGAL says which fact may follow in which phase. Anything else is refused before anything changes:
        such a journal is not one that this runtime wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import assert_never

from msgspec.structs import replace

from agentrun.core.budget import estimated, settled
from agentrun.core.facts import (
    ModelAsked,
    ModelFailed,
    ModelReplied,
    OutputRefused,
    Record,
    RunStarted,
    RunStopped,
)
from agentrun.core.messages import Transcript
from agentrun.core.state import Phase, State
from agentrun.errors import StorageError

LEGAL: Mapping[Phase, tuple[type, ...]] = {
    "fresh": (RunStarted,),
    "thinking": (ModelAsked, RunStopped),
    "asking": (ModelReplied, ModelFailed),
    "answered": (OutputRefused, RunStopped),
    "failed": (RunStopped,),
    "stopped": (),
}


def fold(records: Iterable[Record]) -> State:
    """The state a journal stands for. Resume, replay, report and test all begin with it."""
    return reduce(evolve, records, State())


def evolve(state: State, record: Record) -> State:
    """The state after one more record. Refuses with `recovery.failed` what cannot follow."""
    _check(state, record)
    fact, seq = record.fact, record.seq
    match fact:
        case RunStarted():
            return replace(
                state,
                phase="thinking",
                seq=seq,
                started=fact,
                transcript=Transcript((fact.input,)),
                estimate=estimated(fact.input),
            )
        case ModelAsked():
            return replace(
                state,
                phase="asking",
                seq=seq,
                turns=fact.turn,
                attempt=fact.attempt,
                effect=fact.effect,
                reserved=fact.reserved,
            )
        case ModelReplied():
            return replace(
                state,
                phase="answered",
                seq=seq,
                effect=None,
                reply=fact.reply,
                usage=state.usage.plus(fact.reply.usage),
                reserved=0,
                tokens=state.tokens + settled(fact.reply.usage, state.reserved),
                transcript=state.transcript.plus(fact.reply.message),
                estimate=state.estimate + estimated(fact.reply.message),
            )
        case ModelFailed():
            return replace(state, phase="failed", seq=seq, effect=None, reserved=0, fault=fact.fault)
        case OutputRefused():
            return replace(
                state,
                phase="thinking",
                seq=seq,
                attempt=0,
                repairs=state.repairs + 1,
                transcript=state.transcript.plus(fact.repair),
                estimate=state.estimate + estimated(fact.repair),
            )
        case RunStopped():
            return replace(state, phase="stopped", seq=seq, stopped=fact)
        case _:
            assert_never(fact)


def _check(state: State, record: Record) -> None:
    fact = record.fact
    if record.seq != state.seq + 1:
        raise _refused(record, f"record {state.seq + 1} is missing")
    if not isinstance(fact, LEGAL[state.phase]):
        raise _refused(record, f"{_name(fact)} cannot follow while the run is {state.phase}")
    match fact:
        case ModelAsked() if (fact.turn, fact.attempt) != (state.turns + 1, state.attempt + 1):
            raise _refused(record, f"turn {fact.turn}, attempt {fact.attempt} is not the next one")
        case ModelReplied() | ModelFailed() if fact.effect != state.effect:
            raise _refused(record, f"it answers {fact.effect}, but {state.effect} is under way")


def _name(fact: object) -> str:
    return str(type(fact).__struct_config__.tag)  # type: ignore[attr-defined]  # every fact is a tagged Struct


def _refused(record: Record, why: str) -> StorageError:
    return StorageError(
        "recovery.failed",
        f"record {record.seq} ({_name(record.fact)}) does not fit its journal: {why}",
        fields={"seq": record.seq},
    )
