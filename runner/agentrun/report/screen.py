"""Show progress lines: as plain lines, or in a terminal with a live region below them that is redrawn.

Rule 1  A screen never stops a run. If its stream breaks, it prints nothing more.
Rule 2  Only this file controls the terminal. Lines are already escaped; streamed text is masked and escaped as a whole
        when it is drawn, so that a control sequence cannot pass in two pieces.
Rule 3  The cursor waits at the beginning of the region, and the region is erased from there to the end of the screen.
        So a terminal that is resized keeps no rest of the region and loses no line.
Rule 4  After `close` the region is erased, the cursor is visible, and the thread that draws has ended.
"""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread
from typing import Any, Protocol

import click
from msgspec import Struct

from agentrun.core.facts import ModelAsked, ModelFailed, ModelReplied, Record
from agentrun.report.formatting import OutputLine, Tone, format_budget
from agentrun.report.run_renderer import RunRenderer
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible

STYLES: dict[Tone, dict[str, Any]] = {
    "plain": {},
    "dim": {"dim": True},
    "good": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "bad": {"fg": "red"},
}
MAX_STREAMED_TEXT = 4096
LIVE_ROWS = 4
REDRAW_SECONDS = 0.1
CHARACTERS_PER_TOKEN = 4
SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"

_ERASE = "\r\x1b[J"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class PlainScreen:
    """Lines only, without streamed text and status line: for pipes, files, dumb terminals and replays."""

    def __init__(self, stream: OutputStream | None, *, color: bool = False) -> None:
        self._stream = SafeStream(stream)
        self._color = color
        self._lock = RLock()
        self._waiting: list[OutputLine] | None = None

    def line(self, line: OutputLine) -> None:
        with self._lock:
            if self._waiting is None:
                self._put(self._format_line(line))
            else:
                self._waiting.append(line)

    def begin_request(self, effect: str) -> None:
        """Show in the status line how long a model has been asked, until `end_request`."""

    def end_request(self, effect: str) -> None:
        """Remove the streamed text of a request that is over."""

    def delta(self, effect: str, text: str | None) -> None:
        """Show a piece of streamed text. None: remove the text of this effect, because the request is sent again."""

    def status(self, text: str) -> None:
        """Set the status line. Empty: show nothing below the lines."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hold back all lines while something else uses the terminal."""
        with self._lock:
            self._waiting = self._waiting or []
            self._put("")
        try:
            yield
        finally:
            self._print_waiting()

    def close(self) -> None:
        """End the screen. Closing twice is allowed."""
        self._print_waiting()

    def _print_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
            self._put("".join(map(self._format_line, waiting)))

    def _put(self, text: str) -> None:
        self._stream.write(text)

    def _format_line(self, line: OutputLine) -> str:
        return f"{'  ' * line.indent}{self._style(line.text, line.tone)}\n"

    def _style(self, text: str, tone: Tone) -> str:
        return click.style(text, **STYLES[tone]) if self._color and STYLES[tone] else text


class StreamingRequest(Struct):
    start: float
    streamed: int = 0
    """Characters of text."""


class LiveScreen(PlainScreen):
    """Lines that scroll, with a region below them: the end of the streamed text, and the status line."""

    def __init__(
        self, stream: OutputStream, *, color: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream, color=color)
        self._clock = clock
        self._requests: dict[str, StreamingRequest] = {}
        """The requests under way by effect, the oldest first."""
        self._texts: dict[str, str] = {}
        """The end of the streamed text by effect, the latest last."""
        self._status = ""
        self._drawn = False
        encoding = self._stream.encoding
        has_spinner = SPINNER.encode(encoding, "replace").decode(encoding) == SPINNER
        self._spinner = SPINNER if has_spinner else PLAIN_SPINNER
        self._frame = 0
        self._closed = Event()
        self._ticker: Thread | None = None

    def begin_request(self, effect: str) -> None:
        with self._lock:
            self._requests[effect] = StreamingRequest(self._clock())

    def end_request(self, effect: str) -> None:
        with self._lock:
            self._requests.pop(effect, None)
            self._texts.pop(effect, None)

    def delta(self, effect: str, text: str | None) -> None:
        with self._lock:
            before = self._texts.pop(effect, "")
            if request := self._requests.get(effect):
                request.streamed = 0 if text is None else request.streamed + len(text)
            if text is not None:
                self._texts[effect] = (before + text[-MAX_STREAMED_TEXT:])[-MAX_STREAMED_TEXT:]
            while sum(map(len, self._texts.values())) > MAX_STREAMED_TEXT:
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
        while not self._closed.wait(REDRAW_SECONDS):
            with self._lock:
                self._frame += 1
                if self._status:
                    self._put("")

    def _put(self, text: str) -> None:
        """Erase the region, write, and draw it again below, in one write so that it does not flicker."""
        rows = self._region()
        region = f"{_HIDE}{_NO_WRAP}" + "\n".join(rows) + f"{_WRAP}\r" if rows else ""
        back = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        before = _ERASE if self._drawn else ""
        after = _SHOW if self._drawn and not rows else ""
        self._drawn = bool(rows)
        self._stream.write(f"{before}{text}{region}{back}{after}")

    def _region(self) -> list[str]:
        if not self._status or self._waiting is not None or self._closed.is_set():
            return []
        columns, height = self._stream.size()
        width = max(columns - 1, 1)
        text = next(reversed(self._texts.values()), "")
        rows = last_rows(text, width, min(LIVE_ROWS, height - 2)) if text else []
        spinner = self._spinner[self._frame % len(self._spinner)]
        status = fit_row(f"{spinner} {self._status}{self._request_status()}", width)
        return [*rows, self._style(status, "dim")]

    def _request_status(self) -> str:
        """` · model 12s, ~340 tokens`: the time since the oldest request, and an estimate of what all have streamed."""
        if not self._requests:
            return ""
        seconds = int(self._clock() - next(iter(self._requests.values())).start)
        tokens = sum(each.streamed for each in self._requests.values()) // CHARACTERS_PER_TOKEN
        return f" · model {seconds}s" + (f", ~{format_budget('tokens', tokens)}" if tokens else "")


def screen_for(stream: OutputStream | None, *, live: bool, color: bool | None = None) -> PlainScreen:
    """The screen for a stream. `live`: whether the run is not a replay; `color`: None means as the terminal wants."""
    terminal = _is_terminal(stream)
    if color is None:
        color = terminal and "NO_COLOR" not in os.environ
    if stream is not None and terminal and live:
        return LiveScreen(stream, color=color)
    return PlainScreen(stream, color=color)


def _is_terminal(stream: OutputStream | None) -> bool:
    """Whether a stream is a terminal with cursor control."""
    try:
        is_tty = bool(stream.isatty())  # type: ignore[union-attr]  # None and some objects have no isatty
    except (AttributeError, OSError, ValueError):
        return False
    return is_tty and os.environ.get("TERM", "") not in ("", "dumb")


class OutputStream(Protocol):
    """A text stream, with or without a file descriptor."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class SafeStream:
    """A stream that goes silent after an error, so that the run continues."""

    def __init__(self, stream: OutputStream | None) -> None:
        self._stream = stream
        self.encoding = str(getattr(stream, "encoding", None) or "utf-8")
        try:
            self._file: int | None = stream.fileno()  # type: ignore[union-attr]  # some streams have none
        except (AttributeError, OSError, ValueError):
            self._file = None

    def write(self, text: str) -> None:
        if self._stream is None or not text:
            return
        data = text.encode(self.encoding, "backslashreplace")
        try:
            self._stream.flush()  # keep the order with text that others wrote to it
            if self._file is None:
                self._stream.write(data.decode(self.encoding))
                self._stream.flush()
                return
            while data:
                data = data[os.write(self._file, data) :]
        except (OSError, ValueError):  # a closed stream is a ValueError
            self._stream = None

    def size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(-1 if self._file is None else self._file)
        except OSError:
            columns, rows = 0, 0
        return columns or 80, rows or 24


def last_rows(text: str, width: int, most: int) -> list[str]:
    """The end of a text, masked, escaped and wrapped."""
    found: list[str] = []
    for line in reversed(mask(text).rstrip("\n").split("\n")):
        found[:0] = wrap_line(escape_invisible(line.removesuffix("\r")), width)
        if len(found) >= most:
            break
    return found[-most:] if most > 0 else []


def fit_row(text: str, width: int) -> str:
    rows = list(wrap_line(escape_invisible(text), width))
    if len(rows) == 1:
        return rows[0]
    begun = next(wrap_line(rows[0], max(width - 1, 1)))
    return f"{begun}…" if sum(map(_cells, begun)) < width else "…"  # one character may be wider than the rest


def wrap_line(line: str, width: int) -> Iterator[str]:
    """A line, already escaped, in rows of at most `width` cells."""
    start, used = 0, 0
    for place, char in enumerate(line):
        cells = _cells(char)
        if used + cells > width and place > start:
            yield line[start:place]
            start, used = place, 0
        used += cells
    yield line[start:]


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def show_record(
    record: Record, renderer: RunRenderer, screen: PlainScreen, run: str = "", root: RunRenderer | None = None
) -> None:
    """Show a record. A reply or a failure ends a request and replaces its streamed text.

    `root`: the renderer of the root run, if the record belongs to a child; its usage includes all children.
    """
    match record.fact:
        case ModelAsked(effect=effect):
            screen.begin_request(delta_key(run, effect))
        case ModelReplied(effect=effect) | ModelFailed(effect=effect):
            screen.end_request(delta_key(run, effect))
    for line in renderer.render(record):
        screen.line(line)
    screen.status((root or renderer).usage)


def delta_key(run: str, effect: str) -> str:
    """The key of streamed text. It includes the run, because a child has effects with the same names as its parent."""
    return f"{run}/{effect}"
