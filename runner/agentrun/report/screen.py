"""Where a story is shown: line by line, or in a terminal with a region below the lines that is drawn again and again.

Rule 1  A screen never stops a run: a stream that breaks goes quiet (`outlet.py`).
Rule 2  Only what is written here controls the terminal. Lines come clean; text in passing is made so when it is shown,
        as a whole, so that nothing gets through in two pieces.
Rule 3  The cursor waits at the beginning of the region, and the region is erased from there to the end of the screen.
        However a terminal that changes its size folds what it shows, nothing is left over, and no line is eaten.
Rule 4  After `close` the region is gone, the cursor visible, and nothing runs any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, RLock, Thread
from typing import Any, Protocol

import click

from agentrun.report.line import Line, Tone
from agentrun.report.outlet import Outlet, Stream
from agentrun.report.region import fitted, last_rows

STYLES: dict[Tone, dict[str, Any]] = {
    "plain": {},
    "dim": {"dim": True},
    "good": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "bad": {"fg": "red"},
}
KEPT = 4096
"""Characters of passing text that are held."""
ROWS = 4
"""Rows of passing text that are shown."""
TICK = 0.1
"""Seconds between two drawings."""
SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"

_ERASE = "\r\x1b[J"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Screen(Protocol):
    def line(self, line: Line) -> None:
        """The story goes on."""

    def delta(self, effect: str, text: str | None) -> None:
        """A piece of text in passing. Null: what came of this effect so far is void, or told by now."""

    def status(self, text: str) -> None:
        """How things stand. Empty: nothing is shown below the lines."""

    def aside(self) -> AbstractContextManager[None]:
        """The terminal is somebody else's for a while, to ask a question: lines wait."""

    def close(self) -> None:
        """Nothing follows. Closing twice does no harm."""


class PlainScreen:
    """Lines only: for pipes, files and dumb terminals, and for runs that are long over."""

    def __init__(self, stream: Stream | None, *, color: bool = False) -> None:
        self._outlet = Outlet(stream)
        self._color = color
        self._lock = RLock()
        self._waiting: list[Line] | None = None
        """Lines that came while the terminal was somebody else's."""

    def line(self, line: Line) -> None:
        with self._lock:
            if self._waiting is None:
                self._put(self._written(line))
            else:
                self._waiting.append(line)

    def delta(self, effect: str, text: str | None) -> None:
        """Nothing passes here."""

    def status(self, text: str) -> None:
        """Nothing stands here."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        with self._lock:
            self._waiting = self._waiting or []
            self._put("")
        try:
            yield
        finally:
            self._go_on()

    def close(self) -> None:
        self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
            self._put("".join(map(self._written, waiting)))

    def _put(self, text: str) -> None:
        self._outlet.write(text)

    def _written(self, line: Line) -> str:
        return f"{'  ' * line.indent}{self._styled(line.text, line.tone)}\n"

    def _styled(self, text: str, tone: Tone) -> str:
        return click.style(text, **STYLES[tone]) if self._color and STYLES[tone] else text


class LiveScreen(PlainScreen):
    """Lines scroll; below them stand the end of the text that streams now, and how things stand."""

    def __init__(self, stream: Stream, *, color: bool = True) -> None:
        super().__init__(stream, color=color)
        self._texts: dict[str, str] = {}
        """The end of what streams, by effect; the latest last."""
        self._status = ""
        self._drawn = False
        self._spinner = SPINNER if self._outlet.has(SPINNER) else PLAIN_SPINNER
        self._frame = 0
        self._closed = Event()
        self._ticker: Thread | None = None

    def delta(self, effect: str, text: str | None) -> None:
        with self._lock:
            before = self._texts.pop(effect, "")
            if text is not None:
                self._texts[effect] = (before + text[-KEPT:])[-KEPT:]
            while sum(map(len, self._texts.values())) > KEPT:
                self._texts.pop(next(iter(self._texts)))

    def status(self, text: str) -> None:
        with self._lock:
            self._status = text
            if text and self._ticker is None and not self._closed.is_set():
                self._ticker = Thread(target=self._tick, name="agentrun-screen", daemon=True)
                self._ticker.start()
            self._put("")

    def close(self) -> None:
        self._closed.set()
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.join()
        super().close()

    def _tick(self) -> None:
        while not self._closed.wait(TICK):
            with self._lock:
                self._frame += 1
                if self._status:
                    self._put("")

    def _put(self, text: str) -> None:
        """Erase the region, write, and draw it again below: all at once, or it would flicker."""
        rows = self._region()
        region = f"{_HIDE}{_NO_WRAP}" + "\n".join(rows) + f"{_WRAP}\r" if rows else ""
        back = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        before = _ERASE if self._drawn else ""
        after = _SHOW if self._drawn and not rows else ""
        self._drawn = bool(rows)
        self._outlet.write(f"{before}{text}{region}{back}{after}")

    def _region(self) -> list[str]:
        if not self._status or self._waiting is not None or self._closed.is_set():
            return []
        columns, height = self._outlet.size()
        width = max(columns - 1, 1)
        text = next(reversed(self._texts.values()), "")
        rows = last_rows(text, width, min(ROWS, height - 2)) if text else []
        status = fitted(f"{self._spinner[self._frame % len(self._spinner)]} {self._status}", width)
        return [*rows, self._styled(status, "dim")]


def screen_for(stream: Stream | None, *, live: bool, color: bool | None = None) -> Screen:
    """A screen that fits the stream. `live`: whether the run happens now; `color`: null asks the terminal."""
    terminal = _is_terminal(stream)
    if color is None:
        color = terminal and "NO_COLOR" not in os.environ
    if stream is not None and terminal and live:
        return LiveScreen(stream, color=color)
    return PlainScreen(stream, color=color)


def _is_terminal(stream: Stream | None) -> bool:
    """Whether a stream is a terminal that understands more than lines."""
    try:
        is_one = bool(stream.isatty())  # type: ignore[union-attr]  # without the method it is none
    except (AttributeError, OSError, ValueError):
        return False
    return is_one and os.environ.get("TERM", "") not in ("", "dumb")
