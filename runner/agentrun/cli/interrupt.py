"""Signals: Ctrl-C cancels the run, SIGTERM and SIGHUP park it, and a second signal ends the process at once.

Rule 1  A signal that was ignored when the command started stays ignored, as `nohup` and background jobs need it.
Rule 2  A run that cannot be resumed is not parked: then every signal cancels.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agentrun.cli import early_interrupts
from agentrun.cli.console import ProgressOutput
from agentrun.core.facts import CancelRequested
from agentrun.engine.event_loop import run_event_loop
from agentrun.engine.world import World
from agentrun.errors import SUSPENDED_EXIT, Cancelled, code_of
from agentrun.report.formatting import format_duration
from agentrun.report.suspension import resume_command

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_T = TypeVar("_T")


class InterruptHandler:
    def __init__(self, output: ProgressOutput, grace: int | None = None) -> None:
        """`grace`: how many milliseconds running effects have to end when the run is parked. None: it is never
        parked."""
        self._output = output
        self._grace = grace
        self._world: World | None = None
        self._signal: str | None = None
        self._question: asyncio.Task[None] | None = None

    @property
    def is_interrupted(self) -> bool:
        return self._signal is not None

    @property
    def _is_parking(self) -> bool:
        return self._signal not in (None, "SIGINT") and self._grace is not None

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
        """Cancel or park the run of this world from now on, and for a signal that already came."""
        self._world = world
        self._stop_run()

    def announce(self, announce: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Do not start a run that would be parked at once. Raises Cancelled."""

        async def start() -> None:
            if self._is_parking:
                raise Cancelled("cancelled", f"{self._signal} came before the run started; nothing was done")
            await announce()

        return start

    async def ask(self, question: Coroutine[Any, Any, None], consequence: str) -> None:
        """Ask a question before there is a run. A signal ends it, also one that already came. Raises Cancelled with
        the `consequence`."""
        self._question = asyncio.ensure_future(question)
        if self._signal is not None:
            self._question.cancel()
        try:
            await self._question
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            raise Cancelled("cancelled", consequence) from None
        finally:
            self._question = None

    async def _run_with_signals(self, work: Coroutine[Any, Any, _T]) -> _T:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or not supported
                loop.add_signal_handler(number, self._interrupt, signal.Signals(number).name)
        if early_interrupts:
            early_interrupts.clear()
            self._interrupt("SIGINT")
        return await work

    def _interrupt(self, name: str) -> None:
        if self._signal is not None:
            if self._is_parking and self._world is not None:
                self._output.say(resume_command(self._world.run))
            self._output.close()  # shows the cursor again
            os._exit(SUSPENDED_EXIT if self._is_parking else code_of("cancelled").exit)
        self._signal = name
        self._stop_run()
        if self._question is not None and self._question.cancel():
            return
        if self._is_parking:
            grace = format_duration(self._grace or 0)
            text = (
                f"{name}: nothing new starts, and what is running has {grace} to end; a second signal ends this at once"
            )
            self._output.say(text, "warn")
        else:
            self._output.say("cancelling; press Ctrl-C again to stop at once", "warn")

    def _stop_run(self) -> None:
        if self._world is None or self._signal is None:
            return
        if self._is_parking:
            self._world.crews.park(self._grace or 0)
        else:
            by = "user" if self._signal == "SIGINT" else self._signal
            self._world.crews.post(self._world.run, CancelRequested(by))
