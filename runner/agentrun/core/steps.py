"""What `decide` can answer: the next step of a run."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact
from agentrun.core.outcome import Outcome, Question


class Commit(Struct, frozen=True):
    """Write these facts."""

    facts: tuple[Fact, ...]


class Perform(Struct, frozen=True):
    """Start these effects, each after its intent was written."""

    effects: tuple[Effect, ...]
    questions: tuple[Question, ...] = ()
    waits_for: tuple[str, ...] = ()
    deadline: int | None = None
    """When to look again at the latest, in milliseconds since 1970."""


class Wait(Struct, frozen=True):
    """Nothing to do before one of these settles."""

    inflight: tuple[str, ...] = ()
    """Effects under way."""
    questions: tuple[Question, ...] = ()
    """What people are asked."""
    waits_for: tuple[str, ...] = ()
    """Calls on which somebody outside must act: outcome not known, deferred by a rule, or a child that waits."""
    deadline: int | None = None
    """When to look again at the latest, in milliseconds since 1970."""


class Finished(Struct, frozen=True):
    """It is over."""

    outcome: Outcome


Next: TypeAlias = Commit | Perform | Wait | Finished
