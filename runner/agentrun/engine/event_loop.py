"""Real time in an event loop: the loop, its clock, and the crew, in which every piece of work is a task.

Rule 1  `post` can be called from any thread at any time, also before and after the run.
Rule 2  When `close` returns, no task is running. A cancellation of `close` is raised after that. The exception is work
        that ignores its cancellation: it is abandoned after `MAX_CLEANUP_MS`, or after `MAX_STOP_MS` if the run is
        parked. Its result is not recorded, and the end of the event loop does not wait for it.
Rule 3  Results and exceptions of stopped work are ignored. An exception of other work is a bug in agentrun, and
        `next_fact` raises it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from agentrun.core.facts import Fact
from agentrun.engine.crew import BaseCrew
from agentrun.engine.guarded_call import RaisedException
from agentrun.engine.ports import AskPerson, Clock, PerformEffect
from agentrun.errors import InternalError
from agentrun.tools.threads import run_in_thread

MAX_CLEANUP_MS = 10_000
"""Milliseconds that work may take to end after it was stopped. A command needs some of it to end its processes."""
MAX_STOP_MS = 1_000
"""The same in a parked run. It has already waited for the grace time."""

_T = TypeVar("_T")
_Task: TypeAlias = "asyncio.Task[Fact | None]"


class SystemClock:
    """Reads the wall clock once and then adds the monotonic time, so that it never goes back."""

    def __init__(self) -> None:
        self._start = time.time_ns()
        self._began = time.monotonic_ns()

    def now(self) -> int:
        return (self._start + time.monotonic_ns() - self._began) // 1_000_000

    def skip_forward(self, milliseconds: int) -> None:
        """Advance the clock, for tests."""
        self._start += milliseconds * 1_000_000

    async def sleep_until(self, at: int) -> None:
        while (left := at - self.now()) > 0:  # noqa: ASYNC110  # a timer may fire early
            await asyncio.sleep(left / 1000)

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            async with asyncio.timeout(milliseconds / 1000):
                return await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("the work cancelled itself") from None

    async def aside(self, function: Callable[[], _T]) -> _T:
        """A thread cannot be stopped: after a cancellation it runs on, but the process exits without it."""

        def call() -> _T | RaisedException:
            try:
                return function()
            except BaseException as error:  # noqa: BLE001  # raised again below
                return RaisedException(error)

        result = await run_in_thread(call, "aside")
        if isinstance(result, RaisedException):
            raise result.error
        return result


class TaskCrew(BaseCrew[_Task]):
    def __init__(self, perform: PerformEffect, *, width: int, clock: Clock, consult: AskPerson | None = None) -> None:
        super().__init__(perform, width, consult)
        self._clock = clock
        self._stopped: set[_Task] = set()
        self._ended: deque[_Task] = deque()
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def post(self, fact: Fact) -> None:
        super().post(fact)
        self._wake()

    def park(self, until: int) -> None:
        super().park(until)
        self._wake()

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._news.set)

    async def next_fact(self, deadline: int | None) -> Fact | None:
        self._loop = asyncio.get_running_loop()
        was_parking = self._parks_at is not None
        while True:
            self._news.clear()
            if self._posted:
                return self._posted.popleft()
            has_ended = bool(self._ended)
            if (fact := self._next_ended()) is not None:
                return fact
            if has_ended and deadline is None and not self.busy:
                return None
            if self._parks_at is not None and not (was_parking and self.busy):
                return None
            if deadline is None:
                await self._news.wait()
                continue
            try:
                await self._clock.within(max(deadline - self._clock.now(), 0), self._news.wait())
            except TimeoutError:
                if self._clock.now() >= deadline:  # a timer may fire early
                    return None

    async def close(self) -> None:
        self._stop_all()
        cancelled: asyncio.CancelledError | None = None
        deadline = self._clock.now() + (MAX_CLEANUP_MS if self._parks_at is None else MAX_STOP_MS)
        while self._stopped:
            try:
                await self._clock.within(max(deadline - self._clock.now(), 0), asyncio.wait(self._stopped))
            except asyncio.CancelledError as error:
                cancelled = error
            except TimeoutError:
                break
        for task in self._stopped:
            _abandon(task)
        if cancelled is not None:
            raise cancelled

    def _begin(self, key: str, work: Coroutine[Any, Any, Fact | None]) -> _Task:
        task = asyncio.get_running_loop().create_task(work, name=key)
        task.add_done_callback(self._end)
        return task

    def _stop(self, task: _Task) -> None:
        if task.cancel():
            self._stopped.add(task)

    def _end(self, task: _Task) -> None:
        self._stopped.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that the loop does not report it
        self._ended.append(task)
        self._news.set()

    def _next_ended(self) -> Fact | None:
        while self._ended:
            task = self._ended.popleft()
            for tasks in (self._effects, self._questions):
                if tasks.get(task.get_name()) is task:
                    del tasks[task.get_name()]
                    if task.cancelled():
                        raise InternalError("internal", "an effect was cancelled, but not by its crew")
                    if (fact := task.result()) is not None:
                        return fact
        return None


def run_event_loop(work: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`, but tasks that ignore their cancellation are abandoned after `MAX_STOP_MS`."""
    with asyncio.Runner() as runner:
        try:
            return runner.run(work)
        finally:
            runner.run(stop_other_tasks())


async def stop_other_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        _, pending = await asyncio.wait(others, timeout=MAX_STOP_MS / 1000)
        for task in pending:
            _abandon(task)


def _abandon(task: asyncio.Task[Any]) -> None:
    """The end of the event loop neither waits for the task nor reports that it is still pending."""
    asyncio._unregister_task(task)  # noqa: SLF001  # documented for other implementations of tasks
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # as `asyncio.gather` does
