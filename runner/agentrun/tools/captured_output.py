"""Capture the output of user functions, because the output of the process is reserved for the answer.

Every call of user code in this process runs inside `capture_output()`, which also restores other process state. Output
is captured in every thread or task with the context of the call: at most 64 KiB, without a partial word at the end,
which may be a part of a credential. Other code writes to the real streams, even at the same time.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TextIO

from agentrun.secret import mask
from agentrun.tools.process_state import preserve_process_state

MAX_CAPTURED_BYTES = 64 * 1024
TRUNCATED_NOTE = "[… the rest of the output was discarded …]\n"
_current: ContextVar[CapturedOutput | None] = ContextVar("printed", default=None)


class CapturedOutput(io.RawIOBase):
    """Captures output up to a limit. It accepts bytes; `stream` accepts text."""

    def __init__(self, most: int = MAX_CAPTURED_BYTES, clean: Callable[[str], str] = lambda text: text) -> None:
        super().__init__()
        self._most = most
        self._clean = clean
        self._kept = bytearray()
        self._over = False
        raw: Any = self  # a stream without a buffer, as with `python -u`; typeshed does not allow it
        self.stream: TextIO = io.TextIOWrapper(
            raw, encoding="utf-8", errors="backslashreplace", newline="", write_through=True
        )

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        room = max(self._most - len(self._kept), 0)
        self._kept += view[:room]
        self._over = self._over or (len(view) > room and self._most > 0)
        return len(view)

    @property
    def text(self) -> str:
        """The output without secrets."""
        text = self._kept.decode("utf-8", "replace")
        if not self._over:
            return mask(self._clean(text))
        whole = text[: -len(text.split()[-1])] if text and not text[-1].isspace() else text
        whole = self._clean(whole)
        return mask(whole) + ("" if whole.endswith("\n") or not whole else "\n") + TRUNCATED_NOTE

    def end(self) -> str:
        """Return the output and drop everything that follows."""
        text = self.text
        self._most = 0
        return text


class _SwitchedStream:
    """Replaces `sys.stdout` or `sys.stderr`: inside `capture_output()` it writes to another stream than outside."""

    def __init__(self, outside: Any) -> None:
        self._outside = CapturedOutput(0).stream if outside is None else outside  # a program without a console has None

    def _stream(self) -> Any:
        printed = _current.get()
        return self._outside if printed is None else printed.stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def __enter__(self) -> Any:
        return self._stream().__enter__()

    def __exit__(self, *failure: object) -> Any:
        return self._stream().__exit__(*failure)


@contextmanager
def capture_output(
    clean: Callable[[str], str] = lambda text: text, report: Callable[[str], None] = lambda text: None
) -> Iterator[CapturedOutput]:
    """Capture the output from here on. `clean` redacts it; `report` gets it at the end, unless it is empty."""
    sys.stdout, sys.stderr = streams = switchable_stream(sys.stdout), switchable_stream(sys.stderr)
    printed = CapturedOutput(clean=clean)
    token = _current.set(printed)
    try:
        with preserve_process_state():
            yield printed
    finally:
        _current.reset(token)
        sys.stdout, sys.stderr = streams
        if text := printed.end():
            with suppress(Exception):  # a failing listener does not fail the call
                report(text)


def switchable_stream(stream: Any) -> Any:
    """The stream for code outside of `capture_output()`."""
    return stream if isinstance(stream, _SwitchedStream) else _SwitchedStream(stream)
