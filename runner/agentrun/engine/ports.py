"""Where the engine meets the world: one small protocol per outside thing.

Rule 1  Nothing here raises for what the outside does wrong: that is a fault, and becomes a fact.
Rule 2  Time comes from the clock alone, also for deadlines: a run under a clock that is moved by hand takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from agentrun.core.effects import AskModel, Deliver, Effect, RunTool, ToolReturn
from agentrun.core.facts import ApprovalAnswer, Fact, Record
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Question

_T = TypeVar("_T")


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970. Never goes back."""

    async def sleep_until(self, at: int) -> None:
        """Return at that moment, or at once if it is over."""

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of some work. Raises TimeoutError, after stopping the work, when it takes longer."""

    async def aside(self, function: Callable[[], _T]) -> _T:
        """The result of a function that may block."""


class Provider(Protocol):
    """A model behind a route."""

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        """The whole reply. `delta` hears pieces of its text as they arrive."""


class Executor(Protocol):
    """Runs the calls of a tool, or of all tools of a kind."""

    async def run(self, call: RunTool) -> ToolReturn: ...


HookFunction: TypeAlias = Callable[[Any], Any]
"""Called with a `HookQuestion`, gives a `HookAnswer`; plain or async."""


class SinkPort(Protocol):
    async def deliver(self, delivery: Deliver) -> Fault | None: ...


class Blobs(Protocol):
    """Contents too large for a journal, by their hash."""

    def put(self, data: bytes) -> str:
        """`sha256:` and the hash."""

    def get(self, blob: str) -> bytes:
        """Raises KeyError for what is not there."""


class Approver(Protocol):
    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        """The answer, and who gave it."""


class Journal(Protocol):
    @property
    def epoch(self) -> int:
        """Which owner of the run writes here."""

    @property
    def head(self) -> str:
        """Hash of the last line: what the next record names as `prev`."""

    def append(self, record: Record) -> None:
        """Write a record. When this returns, it happened. Raises a `StorageError` when it cannot be written."""

    def records(self) -> Iterable[Record]:
        """All records so far."""

    def lines_after(self, seq: int) -> Iterable[bytes]:
        """The lines of the records after this one, as they stand in a journal file, without their line ends."""


class Crew(Protocol):
    """Performs effects, and brings in what comes from outside."""

    @property
    def free(self) -> int:
        """How many effects may still be started."""

    @property
    def busy(self) -> bool:
        """Whether a fact may still come without anybody outside doing something."""

    def start(self, effect: Effect) -> None: ...

    def consult(self, questions: Sequence[Question]) -> None:
        """Ask people, each question once. Without anybody to ask it does nothing."""

    def post(self, fact: Fact) -> None:
        """Bring in a fact from outside."""

    def park(self, until: int) -> None:
        """Ask for the run to be left as it is. What is under way may end until then."""

    @property
    def parks_at(self) -> int | None:
        """When what is under way is given up, because the run is to be parked. None: it is not."""

    def take_posted(self) -> Sequence[Fact]:
        """What outsiders posted since the last look."""

    def keep_only(self, effects: Iterable[str]) -> None:
        """Stop everything under way but these effects."""

    async def next_fact(self, deadline: int | None) -> Fact | None:
        """The fact of the next effect that is done, or of an outsider. None: the deadline came first, or the wish to
        park the run."""

    async def close(self) -> None:
        """Stop everything. When this returns nothing is running."""


PerformEffect: TypeAlias = Callable[[Effect], Coroutine[Any, Any, Fact | None]]
"""Performs an effect. None: nothing came of it, because its run is parked."""
AskPerson: TypeAlias = Callable[[Question], Coroutine[Any, Any, Fact]]
"""Asks a person."""


class ReplyDelta(Struct, frozen=True):
    """A piece of a reply, in passing: it is no part of what happened."""

    run: str
    effect: str
    text: str | None
    """Null: what came of this effect so far is void."""


class ToolProgress(Struct, frozen=True):
    """How far a call is, in passing: it is no part of what happened."""

    run: str
    effect: str
    """The call's id."""
    tool: str
    text: str
    """One line, without what must not be shown."""


TransientEvent: TypeAlias = ReplyDelta | ToolProgress
"""What passes: whoever does not look has missed it."""
