"""Events in memory: committed records and transient events.

Rule 1  An event is published after its record is in the journal. Subscribers cannot influence a run.
Rule 2  A cursor is the number of records of all runs so far, and is valid only for its own scope.
Rule 3  A subscriber has a queue of limited size. If it is full, transient events are dropped first. Then a `Gap`
        replaces the following records until it is read; subscribe from its cursor to get the lost records.
Rule 4  The terminal record of a run is never dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from agentrun.core.facts import Record, RunStarted, RunStopped
from agentrun.engine.ports import TransientEvent

MAX_QUEUED_EVENTS = 256
"""The queue size of a subscriber. Terminal records and a gap are added to it."""
ReadRecords: TypeAlias = Callable[[str], Iterable[Record]]


class Cursor(Struct, frozen=True):
    scope: str
    seen: int


class Gap(Struct, frozen=True):
    since: Cursor
    """Subscribe from here to get them."""


class Event(Struct, frozen=True):
    cursor: Cursor
    run: str | None
    """Null for a gap."""
    agent: str | None
    what: Record | TransientEvent | Gap

    @property
    def is_terminal(self) -> bool:
        return isinstance(self.what, Record) and isinstance(self.what.fact, RunStopped)


class Scope(Struct, frozen=True):
    name: str
    sees: Callable[[Event], bool]
    ends: bool = False


ALL_EVENTS = Scope("all", lambda event: True)


def run_scope(run: str) -> Scope:
    return Scope(f"run:{run}", lambda event: event.run == run, ends=True)


def agent_scope(agent: str) -> Scope:
    return Scope(f"agent:{agent}", lambda event: event.agent == agent)


def filter_scope(name: str, sees: Callable[[Event], bool]) -> Scope:
    """Filters with the same name are the same scope."""
    return Scope(f"filter:{name}", sees)


class EventBus:
    def __init__(self, *, queue: int = MAX_QUEUED_EVENTS) -> None:
        self._queue = queue
        self._places: list[tuple[str, int]] = []
        """The run and seq of every record, in the order of publication."""
        self._agents: dict[str, str] = {}
        self._subscriptions: list[Subscription] = []

    def publish(self, run: str, news: Record | TransientEvent) -> None:
        if isinstance(news, Record):
            self.add_history(run, [news])
        for subscription in tuple(self._subscriptions):
            subscription.offer(self._event(subscription.scope, len(self._places), run, news))

    def add_history(self, run: str, records: Iterable[Record]) -> None:
        """Add records without publishing them, so that subscribers can read them from a cursor."""
        for record in records:
            if isinstance(record.fact, RunStarted):
                self._agents[run] = record.fact.agent
            self._places.append((run, record.seq))

    def has_run(self, run: str) -> bool:
        return run in self._agents

    def subscribe(self, scope: Scope, read: ReadRecords, cursor: Cursor | None = None) -> Subscription:
        if cursor is not None and cursor.scope != scope.name:
            raise ValueError(f"a cursor of the scope {cursor.scope} cannot be used for {scope.name}")
        now = len(self._places)
        before = self._history(scope, read, range(now if cursor is None else cursor.seen, now))
        subscription = Subscription(scope, self._queue, before, self._subscriptions.remove, Cursor(scope.name, now))
        self._subscriptions.append(subscription)
        return subscription

    def _history(self, scope: Scope, read: ReadRecords, places: range) -> Iterator[Event]:
        journals: dict[str, tuple[Record, ...]] = {}
        for place in places:
            run, seq = self._places[place]
            if len(journals.get(run, ())) < seq:
                journals[run] = tuple(read(run))
            event = self._event(scope, place + 1, run, journals[run][seq - 1])
            if scope.sees(event):
                yield event

    def _event(self, scope: Scope, seen: int, run: str, news: Record | TransientEvent) -> Event:
        return Event(Cursor(scope.name, seen), run, self._agents.get(run), news)


class Subscription:
    """The events that one subscriber has not read yet. `for` yields the available events; `async for` also waits for
    more, until the subscription is closed or, in the scope of one run, the run is finished."""

    def __init__(
        self, scope: Scope, limit: int, before: Iterator[Event], leave: Callable[[Any], None], start: Cursor
    ) -> None:
        self.scope = scope
        self._limit = limit
        self._before = before
        self._waiting: deque[Event] = deque()
        self._leave = leave
        self._last = start
        """The cursor of the last queued record. A gap begins after it."""
        self._has_gap = False
        self._closed = False
        self._wake: Callable[[], object] = _wake_nobody

    def offer(self, event: Event) -> None:
        if not self.scope.sees(event):
            return
        if event.is_terminal or (not self._has_gap and self._has_room(event)):
            self._waiting.append(event)
            self._last = self._last if self._has_gap else event.cursor
        elif isinstance(event.what, Record) and not self._has_gap:
            self._has_gap = True
            self._waiting.append(Event(self._last, None, None, Gap(self._last)))
        self._wake()

    def _has_room(self, event: Event) -> bool:
        if len(self._waiting) >= self._limit and isinstance(event.what, Record):
            self._waiting = deque(each for each in self._waiting if not isinstance(each.what, TransientEvent))
        return len(self._waiting) < self._limit

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._leave(self)
            self._wake()

    def __iter__(self) -> Iterator[Event]:
        while (event := self._next()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        from asyncio import get_running_loop  # late: a run without an event loop does not need one

        loop = get_running_loop()
        try:
            while True:
                more = loop.create_future()
                self._wake = partial(loop.call_soon_threadsafe, _resolve_future, more)
                for event in self:
                    yield event
                if self._closed:
                    return
                await more
        finally:
            self._wake = _wake_nobody

    def _next(self) -> Event | None:
        event = next(self._before, None)
        if event is None and self._waiting:
            event = self._waiting.popleft()
            self._has_gap = self._has_gap and not isinstance(event.what, Gap)
        if event is not None and event.is_terminal and self.scope.ends:
            self.close()
        return event


def _wake_nobody() -> None:
    """No subscriber is waiting."""


def _resolve_future(future: Any) -> None:
    if not future.done():
        future.set_result(None)
