"""The ports of the engine: one small protocol for each outside system.

Rule 1  A failure of an outside system is returned as a fault and becomes a fact. It is not raised.
Rule 2  All times and deadlines come from the clock, so a run on a step clock takes no real time.
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
HookFunction: TypeAlias = Callable[[Any], Any]
"""Called with a `HookQuestion`, returns a `HookAnswer`. Plain or async."""
PerformEffect: TypeAlias = Callable[[Effect], Coroutine[Any, Any, Fact | None]]
"""None: there is no fact, because a sub-agent was parked."""
AskPerson: TypeAlias = Callable[[Question], Coroutine[Any, Any, Fact | None]]
"""None: the question stays open until an answer comes from outside."""


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970. Never goes back."""

    async def sleep_until(self, at: int) -> None: ...

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, _T]) -> _T:
        """If the work takes longer, stop it and raise TimeoutError."""

    async def aside(self, function: Callable[[], _T]) -> _T:
        """Run a function that may block."""


class Provider(Protocol):
    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        """Return the complete reply. `delta` is called with parts of the text as they arrive."""


class Executor(Protocol):
    """Runs the calls of one tool, or of all tools of a kind."""

    async def run(self, call: RunTool) -> ToolReturn: ...


class SinkPort(Protocol):
    async def deliver(self, delivery: Deliver) -> Fault | None: ...


class Blobs(Protocol):
    """Storage for contents that are too large for a journal, by `sha256:` and their hash."""

    def put(self, data: bytes) -> str: ...

    def get(self, blob: str) -> bytes:
        """Raises KeyError if there is no such blob."""


class Approver(Protocol):
    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        """Return the answer and its author."""


class Journal(Protocol):
    @property
    def epoch(self) -> int:
        """The number of the owner that writes here."""

    @property
    def head(self) -> str:
        """The hash of the last line, which is `prev` of the next record."""

    @property
    def torn(self) -> int:
        """The size of an incomplete last line, which was cut off when the journal was opened."""

    def append(self, record: Record) -> None:
        """Raises a `StorageError`, and UnicodeEncodeError for a text with half of a surrogate pair."""

    def records(self) -> Iterable[Record]: ...

    def lines_after(self, seq: int) -> Iterable[bytes]:
        """The lines after a sequence number, without line ends."""


class Crew(Protocol):
    """Performs effects, and collects the facts that are posted from outside."""

    @property
    def free(self) -> int:
        """How many more effects can be started."""

    @property
    def busy(self) -> bool:
        """Whether there are running effects, open questions or posted facts."""

    @property
    def parks_at(self) -> int | None: ...

    def start(self, effect: Effect) -> None: ...
    def post(self, fact: Fact) -> None: ...
    @property
    def posted(self) -> Sequence[Fact]: ...

    def take_posted(self) -> Sequence[Fact]: ...

    def consult(self, questions: Sequence[Question]) -> None:
        """Ask the approver, each question once. Without an approver this does nothing."""

    def park(self, until: int) -> None:
        """Running effects may end until this moment, and are stopped then."""

    def keep_only(self, effects: Iterable[str]) -> None:
        """Stop all running effects except these."""

    async def next_fact(self, deadline: int | None) -> Fact | None:
        """Wait for the next fact of an effect or from outside. None: the deadline passed, the run is parked, or without
        a deadline nothing is left to wait for."""

    async def close(self) -> None:
        """Stop all work. When this returns, nothing is running, except work of a parked run that cannot be stopped."""


class ReplyDelta(Struct, frozen=True):
    """A part of a reply that is still arriving."""

    run: str
    effect: str
    text: str | None
    """Null: the earlier parts of this effect are withdrawn."""


class ToolProgress(Struct, frozen=True):
    """The text that a running tool reports with `progress`, or its output."""

    run: str
    effect: str
    tool: str
    text: str
    """One line, redacted."""


TransientEvent: TypeAlias = ReplyDelta | ToolProgress
"""An event that is not written to the journal."""
