"""A clock that is advanced step by step: replays and tests take no real time and need no event loop.

Rule 1  A coroutine that waits yields a `Sleep` to its caller: a crew, a time limit, or `run` at the top.
Rule 2  Only `run` advances the clock, directly to the end of the sleep.
Rule 3  A coroutine on this clock must not wait for real events: they would never happen.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from agentrun.errors import InternalError

_T = TypeVar("_T")


class Sleep(Struct, frozen=True):
    until: int
    due: int | None = None
    """The time that is compared with time limits, if it is not `until`."""

    def __await__(self) -> Generator[Sleep, None, None]:
        yield self


class Done(Struct, Generic[_T], frozen=True):
    value: _T


def step(work: Coroutine[Any, Any, _T]) -> Sleep | Done[_T]:
    try:
        yielded = work.send(None)
    except StopIteration as end:
        return Done(end.value)
    if isinstance(yielded, Sleep):
        return yielded
    work.close()
    raise InternalError("internal", "a coroutine waited for a real event while the run is on a step clock")


class StepClock:
    """Simulated time: nothing waits, and run ids are the same every time."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._now = start

    def now(self) -> int:
        return self._now

    def move_to(self, at: int) -> None:
        self._now = max(self._now, at)

    async def sleep_until(self, at: int) -> None:
        while self._now < at:
            await Sleep(at)

    async def sleep_with_due(self, at: int, due: int) -> None:
        while self._now < at:
            await Sleep(at, due)

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, _T]) -> _T:
        deadline = self._now + milliseconds
        try:
            while isinstance(now := step(work), Sleep):
                if (now.until if now.due is None else now.due) > deadline:
                    await self.sleep_until(deadline)
                    raise TimeoutError
                await (self.sleep_until(now.until) if now.due is None else self.sleep_with_due(now.until, now.due))
            return now.value
        finally:
            work.close()

    async def aside(self, function: Callable[[], _T]) -> _T:
        return function()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        while isinstance(now := step(work), Sleep):
            self.move_to(now.until)
        return now.value
