"""A stream that may break: whatever is wrong with it, the run goes on.

Rule 1  Nothing is raised. A stream that fails once is closed, gone or full: from then on nothing is written.
Rule 2  Nothing stays behind in a buffer: what could not be written would fail once more when the process ends, and
        change its exit code.
Rule 3  A character that the stream's encoding does not have is written as an escape.
"""

from __future__ import annotations

import os
from typing import Protocol


class Stream(Protocol):
    """What is asked of a stream. Some have no file behind them."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Outlet:
    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream
        self._encoding = str(getattr(stream, "encoding", None) or "utf-8")
        try:
            self._file: int | None = stream.fileno()  # type: ignore[union-attr]  # without one it is no file
        except (AttributeError, OSError, ValueError):
            self._file = None

    def write(self, text: str) -> None:
        """Write all of it, now."""
        if self._stream is None or not text:
            return
        data = text.encode(self._encoding, "backslashreplace")
        try:
            self._stream.flush()  # what others wrote to it comes first
            if self._file is None:
                self._stream.write(data.decode(self._encoding))
                self._stream.flush()
                return
            while data:
                data = data[os.write(self._file, data) :]
        except (OSError, ValueError):  # a closed stream is a ValueError
            self._stream = None

    def has(self, text: str) -> bool:
        """Whether the encoding has all the characters of a text."""
        return text.encode(self._encoding, "replace").decode(self._encoding) == text

    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        try:
            columns, rows = os.get_terminal_size(-1 if self._file is None else self._file)
        except OSError:
            columns, rows = 0, 0
        return columns or 80, rows or 24
