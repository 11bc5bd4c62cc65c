"""Time that is moved by hand: replays and tests take none of the real one, and need no event loop.

Rule 1  The clock never goes back.
Rule 2  A coroutine that waits yields a `Sleep` to whoever steps it: a crew, a time limit, or `run` at the root.
Rule 3  Only at the root does time move for a sleep, and there at once.
Rule 4  Nothing under this clock waits for the world outside: that would never come.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from agentrun.errors import InternalError

_T = TypeVar("_T")


class Sleep(Struct, frozen=True):
    """What a coroutine yields that has nothing to do before a moment."""

    until: int
    due: int | None = None
    """The moment that time limits judge, if it is another."""

    def __await__(self) -> Generator[Sleep, None, None]:
        yield self


class Done(Struct, Generic[_T], frozen=True):
    """What a coroutine gave at its end."""

    value: _T


def step(work: Coroutine[Any, Any, _T]) -> Sleep | Done[_T]:
    """Let a coroutine work until it sleeps or ends."""
    try:
        wish = work.send(None)
    except StopIteration as end:
        return Done(end.value)
    if isinstance(wish, Sleep):
        return wish
    work.close()
    raise InternalError("internal", "something waited for the world outside, under a clock that is moved by hand")


class StepClock:
    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._now = start

    def now(self) -> int:
        return self._now

    def move_to(self, at: int) -> None:
        """To that moment, unless it is over."""
        self._now = max(self._now, at)

    async def sleep_until(self, at: int) -> None:
        while self._now < at:
            await Sleep(at)

    async def sleep_with_due(self, at: int, due: int) -> None:
        """Sleep until a moment, as something that would have been done at another: time limits judge that one."""
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
        """The result of a coroutine, whatever it waits for on this clock."""
        while isinstance(now := step(work), Sleep):
            self.move_to(now.until)
        return now.value
