"""Who performs effects. One at a time here, in the order they were started: width 1, for replay."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact


class SingleCrew:
    """Performs an effect when its result is asked for, so nothing ever runs beside the loop."""

    def __init__(self, perform: Callable[[Effect], Awaitable[Fact]]) -> None:
        self._perform = perform
        self._started: deque[Effect] = deque()

    @property
    def free(self) -> int:
        return 1 - len(self._started)

    @property
    def busy(self) -> bool:
        return bool(self._started)

    def start(self, effect: Effect) -> None:
        self._started.append(effect)

    async def settled(self) -> Fact:
        return await self._perform(self._started.popleft())
