"""Threads for functions that may take any time, or for ever.

Rule 1  No exit of the process waits for them.
Rule 2  A thread that is done takes the next function, and ends after a while without one: starting one takes longer
        than most functions do. One whose function nobody waits for any more does not come back.
Rule 3  A function that forks and returns twice comes back once: the copy of this process ends on the spot. It would be
        a second owner of the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context, copy_context
from inspect import iscoroutine
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, TypeAlias, TypeVar

ResultT = TypeVar("ResultT")

MAX_IDLE_THREADS = 16
"""Threads that wait for a function."""
IDLE_SECONDS = 5.0
"""Seconds that they wait."""
FORK_EXIT_CODE = 70

ThreadWork: TypeAlias = Callable[[], tuple[Callable[[], None], bool]]
"""Gives how to deliver what came of it, and whether anybody waits."""

_idle: list[_Worker] = []
"""Who did something last is asked first."""
_lock = Lock()


class _Worker:
    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[str, Context, ThreadWork]] = SimpleQueue()
        self.thread = Thread(target=self._live, daemon=True)
        self.thread.start()

    def _live(self) -> None:
        while (job := self._next()) is not None:
            name, context, work = job
            current_thread().name = name
            deliver, comes_back = context.run(work)
            with _lock:
                comes_back = comes_back and len(_idle) < MAX_IDLE_THREADS
                if comes_back:
                    _idle.append(self)
            deliver()  # who gets it may ask for the next call at once, and finds this thread
            del job, context, work, deliver  # what a call holds is not kept until the next one
            if not comes_back:
                return

    def _next(self) -> tuple[str, Context, ThreadWork] | None:
        while True:
            try:
                return self.jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with _lock:
                    if self in _idle:  # or somebody is giving it a function right now
                        _idle.remove(self)
                        return None


async def run_in_thread(work: Callable[[], ResultT], name: str) -> ResultT:
    """What some work gives that never raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()
    owner = os.getpid()

    def end(result: ResultT) -> None:
        if done.done():
            _close_coroutine(result)
        else:
            done.set_result(result)

    def body() -> tuple[Callable[[], None], bool]:
        result = work()
        exit_if_forked(owner)
        return lambda: deliver(result), not done.done()

    def deliver(result: ResultT) -> None:
        try:
            loop.call_soon_threadsafe(end, result)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _close_coroutine(result)

    with _lock:
        worker = _idle.pop() if _idle else None
    (worker or _Worker()).jobs.put((name, copy_context(), body))
    try:
        return await done
    except asyncio.CancelledError:
        if done.done() and not done.cancelled():  # there was a result, and in the same moment nobody waited any more
            _close_coroutine(done.result())
        raise


def exit_if_forked(owner: int) -> None:
    """End this process if it is not that one but a copy of it."""
    if os.getpid() != owner:
        os._exit(FORK_EXIT_CODE)


def _close_coroutine(result: Any) -> None:
    if iscoroutine(result):
        result.close()  # or Python complains that nobody awaited it


def _reset_after_fork() -> None:
    """In a copy of this process there are no threads but the one that made it."""
    if _lock.locked():  # by a thread that is not in the copy
        _lock.release()
    _idle.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
