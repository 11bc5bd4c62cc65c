"""Subscriptions to events.

Rule 1  An event is published after its record is in the journal. Subscribers cannot influence a run.
Rule 2  Subscribers read records from the journals, so they lose none, and get those of other processes too. What is
        published says what to read next, and between which records a transient event belongs.
Rule 3  A subscriber has a queue of limited size. If it is full, transient events are dropped, and a `Gap` says so.
Rule 4  A subscriber of one run that waits for more gets one event if the run does not continue on its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from agentrun.core.facts import Record
from agentrun.core.outcome import Outcome
from agentrun.engine.events import Cursor, Event, Gap, Scope
from agentrun.engine.follower import FollowedJournals, JournalFollower
from agentrun.engine.ports import TransientEvent
from agentrun.store.run_ids import root_run

if TYPE_CHECKING:
    from agentrun.store.watch import StoreWatch

MAX_QUEUED_EVENTS = 256
"""The queue size of a subscriber."""


class EventBus:
    def __init__(self, *, queue: int = MAX_QUEUED_EVENTS) -> None:
        self._queue = queue
        self._subscriptions: list[Subscription] = []

    def publish(self, run: str, news: Record | TransientEvent) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.offer(run, news)

    def wake(self, run: str) -> None:
        """Let the subscribers look at a run that is not worked on any more, and at its sub-agents."""
        for subscription in tuple(self._subscriptions):
            if subscription.scope.run is not None and root_run(subscription.scope.run) == root_run(run):
                subscription.wake()

    def subscribe(
        self,
        scope: Scope,
        journals: FollowedJournals,
        cursor: Cursor | None = None,
        find_pause: Callable[[str], Outcome | None] = lambda run: None,
    ) -> Subscription:
        """`find_pause`: why a run does not continue; None if it does. Raises `run.not_found`, `cursor.scope`."""
        follower = JournalFollower(journals, scope, cursor)
        subscription = Subscription(follower, self._queue, self._subscriptions.remove, find_pause)
        self._subscriptions.append(subscription)
        return subscription


class Subscription:
    """The events that one subscriber has not read yet. `for` yields the available events; `async for` also waits for
    more, until the subscription is closed or, in the scope of one run, the run is finished. If that run is suspended or
    was left, an event says so, and `async for` waits on."""

    def __init__(
        self,
        follower: JournalFollower,
        limit: int,
        leave: Callable[[Any], None],
        find_pause: Callable[[str], Outcome | None],
    ) -> None:
        self._follower = follower
        self._limit = limit
        self._leave = leave
        self._find_pause = find_pause
        self._paused_at = -1
        """The number of the last record when the subscriber learned that the run does not continue."""
        self._lock = Lock()
        """For the queue: events can be published in another thread."""
        self._queue: deque[tuple[str, Record | TransientEvent]] = deque()
        self._first_queued: dict[str, int] = {}
        """For each run, the record before the first one in the queue. History ends there."""
        self._has_lost = False
        self._looks = False
        """Whether to look into all journals when the queue is empty."""
        self._reading: Iterator[Event] | None = follower.read(self._first_queued.get)
        self._closed = False
        self._wake: Callable[[], object] = _wake_nobody

    @property
    def scope(self) -> Scope:
        return self._follower.scope

    @property
    def cursor(self) -> Cursor:
        """The position after the last event that was read."""
        return self._follower.cursor

    def offer(self, run: str, news: Record | TransientEvent) -> None:
        if not self.scope.may_see(run):
            return
        with self._lock:
            if isinstance(news, Record):
                self._make_room()
                self._first_queued.setdefault(run, news.seq - 1)
            elif len(self._queue) >= self._limit:
                self._has_lost = True
                return
            self._queue.append((run, news))
        self._wake()

    def _make_room(self) -> None:
        """Drop transient events. If the queue is still full, read the records by looking into all journals instead."""
        if len(self._queue) < self._limit:
            return
        records = [item for item in self._queue if isinstance(item[1], Record)]
        self._has_lost = self._has_lost or len(records) < len(self._queue)
        self._queue = deque(records)
        if len(self._queue) >= self._limit:
            self._queue.clear()
            self._first_queued.clear()
            self._looks = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._leave(self)
            self._wake()

    def __iter__(self) -> Iterator[Event]:
        self._looks = True
        while (event := self._next()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        from asyncio import get_running_loop  # late: a run without an event loop does not need one

        loop = get_running_loop()
        with ExitStack() as stack:
            stack.callback(setattr, self, "_wake", _wake_nobody)
            watch = self._follower.watch()
            if watch is not None:
                stack.enter_context(watch)
                if watch.fileno() >= 0:
                    loop.add_reader(watch.fileno(), self._note_change, watch)
                    stack.callback(loop.remove_reader, watch.fileno())
            while True:
                more = loop.create_future()
                self._wake = partial(loop.call_soon_threadsafe, _resolve_future, more)
                for event in self:
                    yield event
                if self._closed:
                    return
                if (event := self._pause_event()) is not None:  # type: ignore[assignment]  # or None
                    yield event
                    continue
                if watch is None:
                    await more
                elif not watch.follow(self._follower.open_runs):
                    timer = loop.call_later(watch.pause, _resolve_future, more)
                    await more
                    timer.cancel()

    def _pause_event(self) -> Event | None:
        """Only if all records are read, and once for each of them that is the last one."""
        run, cursor = self.scope.run, self.cursor
        if run is None or (seq := cursor.runs.get(run, 0)) == self._paused_at:
            return None
        pause = self._find_pause(run)
        if pause is None:
            return None
        self._paused_at = seq
        return Event(cursor, run, pause.agent, pause)

    def wake(self) -> None:
        self._wake()

    def _note_change(self, watch: StoreWatch) -> None:
        watch.clear()
        self._wake()

    def _next(self) -> Event | None:
        while not self._closed:
            with self._lock:
                has_lost, self._has_lost = self._has_lost, False
            if has_lost:
                return Event(self.cursor, None, None, Gap(self.cursor))
            if self._reading is not None:
                if (event := next(self._reading, None)) is not None:
                    if event.is_terminal and event.run == self.scope.run:
                        self.close()
                    return event
                self._reading = None
            with self._lock:
                run, news = self._queue.popleft() if self._queue else ("", None)
            if isinstance(news, Record):
                self._reading = self._follower.read_run(run, news.seq)
            elif news is not None:
                event = Event(self.cursor, run, self._follower.agent_of(run), news)
                if self.scope.sees(event):
                    return event
            elif self._looks:
                self._looks = False
                self._reading = self._follower.read()
            else:
                return None
        return None


def _wake_nobody() -> None:
    """No subscriber is waiting."""


def _resolve_future(future: Any) -> None:
    if not future.done():
        future.set_result(None)
