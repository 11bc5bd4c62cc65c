"""Ctrl-C: the first one cancels the run cleanly, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agentrun.cli import early_interrupts
from agentrun.cli.console import ProgressOutput
from agentrun.core.facts import CancelRequested
from agentrun.engine.event_loop import run_event_loop
from agentrun.engine.world import World
from agentrun.errors import Cancelled, code_of

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_T = TypeVar("_T")


class InterruptHandler:
    def __init__(self, output: ProgressOutput) -> None:
        self._output = output
        self._world: World | None = None
        self._by: str | None = None
        self._question: asyncio.Task[None] | None = None

    @property
    def is_interrupted(self) -> bool:
        return self._by is not None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        self._world = None
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            return run_event_loop(self._run_with_signals(work))
        finally:
            work.close()  # an interrupt may have come before it began
            with suppress(TypeError, ValueError):  # the handler is not from Python, or this is not the main thread
                for number, handler in before.items():
                    signal.signal(number, handler)

    def set_world(self, world: World) -> None:
        """Cancel the run of this world from now on, and for a signal that already came."""
        self._world = world
        self._cancel()

    async def ask(self, question: Coroutine[Any, Any, None], consequence: str) -> None:
        """Ask a question before there is a run. A signal ends it, also one that already came. Raises Cancelled with
        the `consequence`."""
        self._question = asyncio.ensure_future(question)
        if self._by is not None:
            self._question.cancel()
        try:
            await self._question
        except asyncio.CancelledError:
            if self._by is None:
                raise
            raise Cancelled("cancelled", consequence) from None
        finally:
            self._question = None

    async def _run_with_signals(self, work: Coroutine[Any, Any, _T]) -> _T:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or not supported
                loop.add_signal_handler(number, self._interrupt, signal.Signals(number).name)
        if early_interrupts:
            early_interrupts.clear()
            self._interrupt("SIGINT")
        return await work

    def _interrupt(self, name: str) -> None:
        if self._by is not None:
            self._output.close()  # shows the cursor again
            os._exit(code_of("cancelled").exit)
        self._by = "user" if name == "SIGINT" else name
        self._cancel()
        if self._question is None or not self._question.cancel():
            self._output.say("cancelling; press Ctrl-C again to stop at once", "warn")

    def _cancel(self) -> None:
        if self._world is not None and self._by is not None:
            self._world.crews.post(self._world.run, CancelRequested(self._by))
