"""Who performs effects, under a clock that is moved by hand: every piece of work is a coroutine stepped here.

Rule 1  One step at a time, and always of work whose moment has come. Among several the first started goes first,
        unless `order` says otherwise: then any order of completion can be had.
Rule 2  When all sleep, the crew sleeps until the first of them wakes up, so a child's crew sleeps in its parent's.
Rule 3  Work that is stopped is closed on the spot, and what it says about that is not heard.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeAlias

from agentrun.core.facts import Fact
from agentrun.engine.clock import Sleep, StepClock, step
from agentrun.engine.crew_base import BaseCrew
from agentrun.engine.ports import Consult, Work
from agentrun.errors import InternalError

Order: TypeAlias = Callable[[Sequence[str]], int]
"""Given the ids of work that could go on, the index of the one that does."""


WIDTH = 8
"""How many effects of a run may be under way at once. A replay is as wide as a live run: who is still at work when a
call ends the others is told by the recorded times, and not by the order of the calls."""


class _Task:
    """Work that has begun, and when it goes on. It has a context of its own, as a task of an event loop has."""

    __slots__ = ("context", "wakes", "work")

    def __init__(self, work: Coroutine[Any, Any, Fact]) -> None:
        self.context = copy_context()
        self.work = work
        self.wakes = 0


class StepCrew(BaseCrew[_Task]):
    def __init__(
        self,
        perform: Work,
        *,
        width: int,
        clock: StepClock,
        consult: Consult | None = None,
        order: Order | None = None,
    ) -> None:
        super().__init__(perform, width, consult)
        self._clock = clock
        self._order = order or (lambda ready: 0)

    async def settled(self, deadline: int | None) -> Fact | None:
        while not self._posted:
            now = self._clock.now()
            tasks = {**self._effects, **self._questions}
            ready = [key for key, task in tasks.items() if task.wakes <= now]
            if ready:
                fact = self._advance(ready[self._order(ready)])
                if fact is not None:
                    return fact
            elif deadline is not None and deadline <= now:
                return None
            else:
                await self._clock.sleep_until(_next([task.wakes for task in tasks.values()], deadline))
        return self._posted.popleft()

    async def close(self) -> None:
        self._stop_all()

    def _begin(self, key: str, work: Coroutine[Any, Any, Fact]) -> _Task:  # noqa: ARG002  # others name their tasks
        return _Task(work)

    def _stop(self, task: _Task) -> None:
        with suppress(Exception):
            task.context.run(task.work.close)

    def _advance(self, key: str) -> Fact | None:
        """Let one piece of work go on. Its fact, if that was its end."""
        tasks = self._effects if key in self._effects else self._questions
        task = tasks[key]
        try:
            now = task.context.run(step, task.work)
        except BaseException:
            del tasks[key]
            raise
        if isinstance(now, Sleep):
            task.wakes = now.until
            return None
        del tasks[key]
        return now.value


def _next(wakes: list[int], deadline: int | None) -> int:
    moments = wakes if deadline is None else [*wakes, deadline]
    if not moments:
        raise InternalError("internal", "a run waits and nothing is under way")
    return min(moments)
