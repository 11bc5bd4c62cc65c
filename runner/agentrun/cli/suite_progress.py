"""How far a suite has come, on standard error: one line that is drawn again in a terminal, a mark for each case in a
pipe, and nothing where nobody reads it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Protocol

from agentrun.cli.show import clean, colored
from agentrun.cli.suite_output import put_mark
from agentrun.report.formatting import OutputLine
from agentrun.report.screen import LiveScreen, screen_for
from agentrun.testing.suite.verdict import CaseStatus, CaseVerdict

MARKS: dict[CaseStatus, str] = {
    "passed": ".",
    "failed": "F",
    "missed": "M",
    "unreadable": "U",
    "skipped": "s",
    "xfailed": "x",
}
WIDTH = 100
"""Columns after which a line of marks ends."""
TICK = 0.1
"""Seconds between two drawings."""


class Progress(Protocol):
    tells: bool
    """Whether a person reads it."""
    color: bool

    def begin(self, total: int) -> None: ...

    def ended(self, verdict: CaseVerdict) -> None: ...

    def say(self, text: str, tone: Any = "plain") -> None:
        """A line in between."""

    def aside(self) -> AbstractContextManager[None]:
        """The terminal is somebody else's for a while."""

    def close(self) -> None: ...


class Silent:
    tells = False
    color = False

    def begin(self, total: int) -> None: ...

    def ended(self, verdict: CaseVerdict) -> None: ...

    def say(self, text: str, tone: Any = "plain") -> None: ...

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


class Marks(Silent):
    """For pipes and files: the cases of each file, a mark for each."""

    def __init__(self) -> None:
        self._total = 0
        self._done = 0
        self._file = ""
        self._column = 0

    def begin(self, total: int) -> None:
        self._total = total

    def ended(self, verdict: CaseVerdict) -> None:
        name = clean(verdict.file)
        if verdict.file != self._file or self._column >= WIDTH:
            self._break()
            self._file = verdict.file
            put_mark(f"{name} ")
            self._column = len(name) + 1
        self._done += 1
        put_mark(MARKS[verdict.status])
        self._column += 1

    def say(self, text: str, tone: Any = "plain") -> None:  # noqa: ARG002  # no colours here
        self._break()
        put_mark(f"{clean(text)}\n")

    def close(self) -> None:
        self._break()

    def _break(self) -> None:
        if self._column:
            put_mark(f" [{self._done * 100 // max(self._total, self._done)}%]\n")
        self._column, self._file = 0, ""


class Drawn(Silent):
    """For a terminal: where it is, and what is wrong so far."""

    tells = True

    def __init__(self, screen: LiveScreen, *, color: bool) -> None:
        self._screen = screen
        self.color = color
        self._total = 0
        self._done = 0
        self._bad = 0
        self._drawn = 0.0

    def begin(self, total: int) -> None:
        self._total = total
        self._screen.status(f"0 of {total} cases")

    def ended(self, verdict: CaseVerdict) -> None:
        self._done += 1
        self._bad += verdict.is_bad
        now = monotonic()
        if now - self._drawn >= TICK:
            self._drawn = now
            bad = f", {self._bad} not well" if self._bad else ""
            self._screen.status(f"{self._done} of {self._total} cases{bad}  {clean(verdict.id)}")

    def say(self, text: str, tone: Any = "plain") -> None:
        self._screen.line(OutputLine(clean(text), tone, 0))

    def aside(self) -> AbstractContextManager[None]:
        return self._screen.aside()

    def close(self) -> None:
        self._screen.close()


def progress_for(*, shown: bool, color: bool | None) -> Progress:
    """What fits standard error. `color`: null asks the terminal."""
    if not shown:
        return Silent()
    screen = screen_for(sys.stderr, live=True, color=color)
    if isinstance(screen, LiveScreen):
        return Drawn(screen, color=colored(sys.stderr) if color is None else color)
    return Marks()
