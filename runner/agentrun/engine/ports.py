"""Where the engine meets the world: one small protocol per outside thing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact, Record
from agentrun.wire import HttpCall, HttpReply


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970."""


class Sender(Protocol):
    async def send(self, call: HttpCall) -> HttpReply:
        """The reply to one request. Raises an `AgentrunError` when there is none."""


class Journal(Protocol):
    @property
    def epoch(self) -> int:
        """Which owner of the run writes here."""

    @property
    def head(self) -> str:
        """Hash of the last line: what the next record names as `prev`."""

    def append(self, record: Record) -> None:
        """Write a record. When this returns, it happened."""

    def records(self) -> Iterable[Record]:
        """All records so far."""


class Crew(Protocol):
    """Performs effects. It never raises for what an effect does wrong: that is a fact."""

    @property
    def free(self) -> int:
        """How many effects may still be started."""

    @property
    def busy(self) -> bool:
        """Whether an effect is under way."""

    def start(self, effect: Effect) -> None: ...

    async def settled(self) -> Fact:
        """The fact of the next effect that is done."""
