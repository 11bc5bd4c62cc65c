"""Lines that a person types at the terminal.

Rule 1  What was typed before a question was there does not answer it: it is thrown away when the question is shown.
Rule 2  Nothing here blocks, and nothing is left that reads: whoever stops waiting for a line gets the terminal back.
Rule 3  A process that does not have the terminal to itself is not stopped by trying to read from it or to set it, also
        when it had it as the question was shown.
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
except ImportError:  # not on this system
    termios = None

MAX_TYPED_LINE = 4096
_INPUT, _LOCAL = 0, 3


class Keyboard:
    """Standard input, if it is a terminal."""

    def __init__(self) -> None:
        self._file = 0
        self._before: list[Any] | None = None
        """How the terminal was set, if it had to be changed."""

    def is_available(self) -> bool:
        """Whether somebody can be read from: there is a terminal, and it is ours to use now."""
        try:
            return (
                termios is not None
                and sys.stdin is not None
                and os.isatty(self._file)
                and os.tcgetpgrp(self._file) == os.getpgrp()
            )
        except OSError:
            return False

    def begin(self) -> None:
        """Let lines be typed, whatever else was set before, and throw away what was typed so far."""
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
        """Give the terminal back. What is half typed is for nobody."""
        if termios is None or not self.is_available():  # in the background it is the shell's again, as it set it
            return
        with suppress(termios.error):
            termios.tcflush(self._file, termios.TCIFLUSH)
            if self._before is not None:
                termios.tcsetattr(self._file, termios.TCSANOW, self._before)
                self._before = None

    async def read_line(self) -> str | None:
        """The next line. None: there is none and will be none."""
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
        # A line without its end was cut off by the end of the input: whoever did that did not mean to agree.
        return data.decode("utf-8", "replace") if data.endswith(b"\n") else None
