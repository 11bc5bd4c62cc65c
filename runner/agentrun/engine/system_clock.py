"""Real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agentrun.engine.guarded_call import RaisedException
from agentrun.tools.threads import run_in_thread

_T = TypeVar("_T")


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
        """Run a function in a thread. A thread cannot be stopped: after a cancellation it still runs to its end, but
        the exit of the process does not wait for it."""
        result = await run_in_thread(lambda: _call_guarded(function), "aside")
        if isinstance(result, RaisedException):
            raise result.error
        return result


def _call_guarded(function: Callable[[], _T]) -> _T | RaisedException:
    try:
        return function()
    except BaseException as error:  # noqa: BLE001  # raised again by the caller
        return RaisedException(error)
