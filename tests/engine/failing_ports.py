"""Ports that count every call and fail at a chosen one."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from agentrun.compiler.package_file import PackageFile
from agentrun.core.effects import AskModel, Deliver, RunTool, ToolReturn
from agentrun.core.facts import (
    ApprovalAnswer,
    ApprovalAsked,
    DeliveryStarted,
    HookAsked,
    ModelAsked,
    Record,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply
from agentrun.core.outcome import Question
from agentrun.engine.clock import StepClock
from agentrun.engine.event_bus import EventBus
from agentrun.engine.hooks import HookQuestion
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.ports import Approver, Executor, Journal, Provider, SinkPort, TransientEvent
from agentrun.errors import InternalError, StorageError

T = TypeVar("T")

INTENTS = {
    "provider.ask": ModelAsked,
    "executor.run": ToolStarted,
    "hook": HookAsked,
    "sink.deliver": DeliveryStarted,
    "approver.answer": ApprovalAsked,
}
"""The fact without which a port must not be called. A question that stays open is one fact, whoever asks it again."""


class Halt(BaseException):
    """The host is told to end, as by Ctrl-C."""


class Point(NamedTuple):
    """The nth call of a port, and what happens there."""

    port: str
    number: int
    how: str

    def error(self) -> BaseException:
        if self.how == "halt":
            return Halt()
        if self.how == "error":
            return ValueError("a secret")
        if self.port.startswith("clock"):
            return InternalError("internal", "the clock is broken")
        return StorageError("storage.failed", "no space left", fields={"path": "somewhere", "errno": 28})

    @property
    def fails_journal(self) -> bool:
        return self.port.startswith("journal.") and self.how == "code"


HOWS = ("error", "code", "halt")


class PortReports:
    """What all ports of one runtime report to."""

    def __init__(self, point: Point | None = None) -> None:
        self.point = point
        self.calls: Counter[str] = Counter()
        self.active: Counter[str] = Counter()
        """Calls that have not ended."""
        self.before: Counter[str] = Counter()
        self.hit = False
        self.wrong: list[str] = []
        """What was done that must never be."""
        self.journals = CountingJournals(self)

    def through(self, port: str) -> None:
        """A call of a port."""
        self.calls[port] += 1
        if self.point is None or self.hit or port != self.point.port:
            return
        if self.calls[port] - self.before[port] == self.point.number:
            self.hit = True
            raise self.point.error()

    @contextmanager
    def inside(self, port: str) -> Iterator[None]:
        """A call of a port that has an effect."""
        self._look(port)
        self.active[port] += 1
        try:
            self.through(port)
            yield
        finally:
            self.active[port] -= 1

    def _look(self, port: str) -> None:
        if self.hit and self.point is not None and self.point.fails_journal:
            self.wrong.append(f"{port} was called after the journal had failed")
        written = (record.fact for records in self.journals.kept().values() for record in records)
        intents = sum(isinstance(fact, INTENTS[port]) for fact in written)
        needed = 1 if port == "approver.answer" else self.calls[port] + 1
        if intents < needed:
            self.wrong.append(f"{port} was called without its intent")
        if self.wrong:
            raise Halt

    def arm(self, point: Point | None) -> None:
        """From now on it is this that fails, and nothing else."""
        self.point, self.hit = point, False
        self.before = Counter(self.calls)

    @property
    def strikes_twice(self) -> bool:
        """Whether a child that is being ended may be struck again: by its journal, or by the end of the host."""
        point = self.point
        return point is not None and (
            point.port == "journal.append" or (point.port, point.how) == ("clock.now", "halt")
        )

    @property
    def since(self) -> Counter[str]:
        """Calls since then."""
        return self.calls - self.before


class CountingJournals(MemoryJournals):
    def __init__(self, ports: PortReports) -> None:
        super().__init__()
        self._ports = ports

    def __contains__(self, run: object) -> bool:
        self._ports.through("journal.contains")
        return super().__contains__(run)

    def keep(self, run: str, package: PackageFile) -> None:
        self._ports.through("journal.keep")
        super().keep(run, package)

    def open(self, run: str) -> Journal:
        self._ports.through("journal.open")
        return super().open(run)

    def append(self, run: str, record: Record) -> None:
        self._ports.through("journal.append")
        super().append(run, record)

    def records(self, run: str) -> tuple[Record, ...]:
        self._ports.through("journal.records")
        return super().records(run)

    def kept(self) -> dict[str, tuple[Record, ...]]:
        """The records of all runs, for the test itself."""
        return {run: journal.records() for run, journal in self._journals.items() if journal.records()}


class CountingClock(StepClock):
    def __init__(self, ports: PortReports) -> None:
        super().__init__(1000)
        self._ports = ports

    def now(self) -> int:
        self._ports.through("clock.now")
        return super().now()

    async def sleep_until(self, at: int) -> None:
        self._ports.through("clock.sleep_until")
        await super().sleep_until(at)

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._ports.through("clock.within")
        except BaseException:
            work.close()
            raise
        return await super().within(milliseconds, work)


class CountingBus(EventBus):
    def __init__(self, ports: PortReports) -> None:
        super().__init__()
        self._ports = ports

    def publish(self, run: str, news: Record | TransientEvent) -> None:
        self._ports.through("listener")
        super().publish(run, news)


class CountingBlobs(MemoryBlobs):
    def __init__(self, ports: PortReports) -> None:
        super().__init__()
        self._ports = ports

    def put(self, data: bytes) -> str:
        self._ports.through("blobs.put")
        return super().put(data)

    def get(self, blob: str) -> bytes:
        self._ports.through("blobs.get")
        return super().get(blob)


class CountingProvider:
    def __init__(self, ports: PortReports, inner: Provider) -> None:
        self._ports, self._inner = ports, inner

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        with self._ports.inside("provider.ask"):
            return await self._inner.ask(effect, delta)


class CountingExecutor:
    def __init__(self, ports: PortReports, inner: Executor) -> None:
        self._ports, self._inner = ports, inner

    async def run(self, call: RunTool) -> ToolReturn:
        with self._ports.inside("executor.run"):
            return await self._inner.run(call)


class CountingSink:
    def __init__(self, ports: PortReports, inner: SinkPort) -> None:
        self._ports, self._inner = ports, inner

    async def deliver(self, delivery: Deliver) -> Fault | None:
        with self._ports.inside("sink.deliver"):
            return await self._inner.deliver(delivery)


class CountingApprover:
    def __init__(self, ports: PortReports, inner: Approver) -> None:
        self._ports, self._inner = ports, inner

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        with self._ports.inside("approver.answer"):
            return await self._inner.answer(question)


def counting_hook(ports: PortReports, inner: Callable[[HookQuestion], Any]) -> Callable[[HookQuestion], Any]:
    def asked(question: HookQuestion) -> Any:
        with ports.inside("hook"):
            return inner(question)

    return asked
