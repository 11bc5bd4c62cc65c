"""A pool of daemon threads for functions that may never return.

Rule 1  The exit of the process does not wait for these threads.
Rule 2  An idle thread is reused, because starting one takes longer than most functions. It ends after a while without
        work. A thread whose caller was cancelled is not reused.
Rule 3  If a function forks and returns in both processes, the copy exits at once, or the run would have two owners.
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
IDLE_SECONDS = 5.0
"""Seconds until an idle thread ends."""
FORK_EXIT_CODE = 70
QUICK_SECONDS = 0.0002
"""How long the event loop waits for a function. Most functions are quicker than the way back through the loop."""

ThreadWork: TypeAlias = Callable[[], tuple[Callable[[], None], bool]]
"""Returns a function that delivers the result, and whether the thread can be reused."""

_idle: list[_Worker] = []
"""The thread that worked last is reused first."""
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
            deliver()  # last, so that the next call finds this thread in `_idle`
            del job, context, work, deliver  # free the objects of the call
            if not comes_back:
                return

    def _next(self) -> tuple[str, Context, ThreadWork] | None:
        while True:
            try:
                return self.jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with _lock:
                    if self in _idle:  # otherwise it is getting work right now
                        _idle.remove(self)
                        return None


async def run_in_thread(work: Callable[[], ResultT], name: str) -> ResultT:
    """Run work in a thread. The work must not raise."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()
    owner = os.getpid()
    is_quick, handover, results = Lock(), Lock(), list[ResultT]()
    is_quick.acquire()

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
        with handover:
            if not left:
                results.append(result)
                is_quick.release()
                return
        try:
            loop.call_soon_threadsafe(end, result)
        except RuntimeError:  # the loop is closed
            _close_coroutine(result)

    left: list[bool] = []
    with _lock:
        worker = _idle.pop() if _idle else None
    (worker or _Worker()).jobs.put((name, copy_context(), body))
    if is_quick.acquire(timeout=QUICK_SECONDS):
        return results[0]
    with handover:
        if results:
            return results[0]
        left.append(True)
    try:
        return await done
    except asyncio.CancelledError:
        if done.done() and not done.cancelled():  # the result and the cancellation came at the same time
            _close_coroutine(done.result())
        raise


def exit_if_forked(owner: int) -> None:
    """Exit if this process is a fork of `owner`."""
    if os.getpid() != owner:
        os._exit(FORK_EXIT_CODE)


def _close_coroutine(result: Any) -> None:
    if iscoroutine(result):
        result.close()  # otherwise Python warns that it was never awaited


def _reset_after_fork() -> None:
    """A fork has only the thread that made it."""
    if _lock.locked():  # by a thread that does not exist in the fork
        _lock.release()
    _idle.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
