"""An event loop whose time passes only when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class HandLoop(asyncio.SelectorEventLoop):
    """Timers, deadlines and sleeps of the loop wait for `advance`, however long the test takes."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass. It may be called from any thread."""
        self._now += seconds
        self.call_soon_threadsafe(lambda: None)  # the loop looks at its timers again


def run_by_hand(work: Callable[[HandLoop], Coroutine[Any, Any, T]]) -> T:
    loop = HandLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))
