"""What is lost when the owner of a run goes away, and what may still come in from outside."""

from __future__ import annotations

from agentrun.core.facts import Fact, Record, WorkLost
from agentrun.core.legal import refusal
from agentrun.core.state import State, under_way


def lost_work(state: State) -> tuple[WorkLost, ...]:
    """What a new owner of the run has to record first."""
    return tuple(WorkLost(effect) for effect in under_way(state))


def is_welcome(state: State, fact: Fact) -> bool:
    """Whether something from outside still matters: a late result or a second answer does not."""
    return refusal(state, Record(state.seq + 1, state.now, 0, "", fact)) is None
