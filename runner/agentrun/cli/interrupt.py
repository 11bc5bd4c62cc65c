"""Ctrl-C: the first one cancels the run cleanly, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agentrun.cli.console import ProgressOutput
from agentrun.core.facts import CancelRequested
from agentrun.engine.world import World
from agentrun.errors import code_of

_T = TypeVar("_T")


class InterruptHandler:
    """Handles signals while a run is prepared and while it runs."""

    def __init__(self, output: ProgressOutput) -> None:
        self._output = output
        self._world: World | None = None
        self._by: str | None = None
        """Who asked to cancel the run."""

    @property
    def is_interrupted(self) -> bool:
        return self._by is not None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run(self._run_with_signals(work))

    def set_world(self, world: World) -> None:
        """Cancel the run of this world from now on, also for a signal that already came."""
        self._world = world
        self._cancel()

    async def _run_with_signals(self, work: Coroutine[Any, Any, _T]) -> _T:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or not supported
                loop.add_signal_handler(number, self._interrupt, signal.Signals(number).name)
        return await work

    def _interrupt(self, name: str) -> None:
        if self._by is not None:
            self._output.close()  # shows the cursor again
            os._exit(code_of("cancelled").exit)
        self._by = "user" if name == "SIGINT" else name
        self._output.say("cancelling; press Ctrl-C again to stop at once", "warn")
        self._cancel()

    def _cancel(self) -> None:
        if self._world is not None and self._by is not None:
            self._world.crews.post(self._world.run, CancelRequested(self._by))
