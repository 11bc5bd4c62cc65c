"""Ctrl-C: the first cancels the run cleanly, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agentrun.cli.teller import Teller
from agentrun.engine.handle import RunHandle
from agentrun.errors import code_of

T = TypeVar("T")


class Interrupts:
    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._handle: RunHandle | None = None
        self._asked = False

    def hold(self, handle: RunHandle) -> None:
        """From here on there is a run to cancel."""
        self._handle = handle
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or not to be had
                loop.add_signal_handler(number, self._interrupt, signal.Signals(number).name)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    def _interrupt(self, name: str) -> None:
        assert self._handle is not None
        if self._asked:
            self._teller.close()  # a terminal must have its cursor back
            os._exit(code_of("cancelled").exit)
        self._asked = True
        self._teller.say("cancelling; once more ends it at once", "warn")
        self._handle.cancel("user" if name == "SIGINT" else name)
