"""Read lines that a person types at the terminal.

Rule 1  Reading never blocks the event loop, and a cancelled read leaves no reader behind.
Rule 2  A process in the background does not touch the terminal, because the system would stop it. That includes a
        process that goes to the background while a question is shown.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

termios: ModuleType | None
try:
    import termios
except ImportError:  # this system has no termios
    termios = None

MAX_TYPED_LINE = 4096
_INPUT, _LOCAL = 0, 3


class Keyboard:
    """Standard input, if it is a terminal."""

    def __init__(self) -> None:
        self._file = 0
        self._before: list[Any] | None = None
        """The settings to restore, if they were changed."""

    def is_available(self) -> bool:
        """Whether standard input is a terminal and this process is in its foreground."""
        try:
            return (
                termios is not None
                and sys.stdin is not None
                and os.isatty(self._file)
                and os.tcgetpgrp(self._file) == os.getpgrp()
            )
        except OSError:
            return False

    def is_hung_up(self) -> bool:
        """Whether the terminal was closed, so that the end of the input is not an answer."""
        return not os.isatty(self._file)

    def begin(self) -> None:
        """Set the terminal so that lines can be typed, and discard everything typed so far."""
        if termios is None or not self.is_available():
            return
        with suppress(termios.error):
            now = termios.tcgetattr(self._file)
            wanted = list(now)
            wanted[_INPUT] |= termios.ICRNL
            wanted[_LOCAL] |= termios.ICANON | termios.ECHO | termios.ISIG
            if wanted != now:
                self._before = self._before or now
                termios.tcsetattr(self._file, termios.TCSANOW, wanted)
            termios.tcdrain(self._file)
            termios.tcflush(self._file, termios.TCIFLUSH)

    def end(self) -> None:
        """Restore the terminal, and discard a line that is half typed."""
        if termios is None or not self.is_available():  # in the background the shell has already set it
            return
        with suppress(termios.error):
            termios.tcflush(self._file, termios.TCIFLUSH)
            if self._before is not None:
                termios.tcsetattr(self._file, termios.TCSANOW, self._before)
                self._before = None

    async def read_line(self) -> str | None:
        """The next line. None: the input has ended."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            loop.remove_reader(self._file)
            data = b""
            if self.is_available():
                with suppress(OSError):
                    data = os.read(self._file, MAX_TYPED_LINE)
            if not typed.done():
                typed.set_result(data)

        loop.add_reader(self._file, read)
        try:
            data = await typed
        finally:
            loop.remove_reader(self._file)
        # A line without a line feed was cut off by the end of the input, so it is not an answer.
        return data.decode("utf-8", "replace") if data.endswith(b"\n") else None
