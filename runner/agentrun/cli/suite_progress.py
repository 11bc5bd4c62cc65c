"""The progress of a suite on standard error: a status line in a terminal, one mark per case in a pipe, or nothing with
`--quiet` or `--json`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any

from agentrun.cli.console import safe_text, wants_color, write_mark
from agentrun.report.formatting import OutputLine
from agentrun.report.screen import LiveScreen, screen_for
from agentrun.testing.suite.verdict import CaseStatus, CaseVerdict

STATUS_MARKS: dict[CaseStatus, str] = {
    "passed": ".",
    "failed": "F",
    "missed": "M",
    "unreadable": "U",
    "skipped": "s",
    "xfailed": "x",
}
MARK_COLUMNS = 100
"""Columns after which a line of marks is wrapped."""
STATUS_INTERVAL = 0.1
"""Seconds between two updates of the status line."""


class SuiteProgress:
    """Prints nothing."""

    has_reader = False
    color = False

    def begin(self, total: int) -> None: ...

    def end_case(self, verdict: CaseVerdict) -> None: ...

    def say(self, text: str, tone: Any = "plain") -> None: ...

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


class MarkProgress(SuiteProgress):
    """For pipes and files: one line per file of cases, one mark per case."""

    def __init__(self) -> None:
        self._total = 0
        self._done = 0
        self._file = ""
        self._column = 0

    def begin(self, total: int) -> None:
        self._total = total

    def end_case(self, verdict: CaseVerdict) -> None:
        name = safe_text(verdict.file)
        if verdict.file != self._file or self._column >= MARK_COLUMNS:
            self._end_line()
            self._file = verdict.file
            write_mark(f"{name} ")
            self._column = len(name) + 1
        self._done += 1
        write_mark(STATUS_MARKS[verdict.status])
        self._column += 1

    def say(self, text: str, tone: Any = "plain") -> None:  # noqa: ARG002  # there are no colours in a pipe
        self._end_line()
        write_mark(f"{safe_text(text)}\n")

    def close(self) -> None:
        self._end_line()

    def _end_line(self) -> None:
        if self._column:
            write_mark(f" [{self._done * 100 // max(self._total, self._done)}%]\n")
        self._column, self._file = 0, ""


class StatusLineProgress(SuiteProgress):
    """For a terminal: how many cases have run and how many failed."""

    has_reader = True

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

    def end_case(self, verdict: CaseVerdict) -> None:
        self._done += 1
        self._bad += verdict.is_bad
        now = monotonic()
        if now - self._drawn >= STATUS_INTERVAL:
            self._drawn = now
            bad = f", {self._bad} not passed" if self._bad else ""
            self._screen.status(f"{self._done} of {self._total} cases{bad}  {safe_text(verdict.id)}")

    def say(self, text: str, tone: Any = "plain") -> None:
        self._screen.line(OutputLine(safe_text(text), tone, 0))

    def aside(self) -> AbstractContextManager[None]:
        return self._screen.aside()

    def close(self) -> None:
        self._screen.close()


def make_progress(*, shown: bool, color: bool | None) -> SuiteProgress:
    """The progress for standard error. `color`: None means as the terminal wants."""
    if not shown:
        return SuiteProgress()
    screen = screen_for(sys.stderr, live=True, color=color)
    if isinstance(screen, LiveScreen):
        return StatusLineProgress(screen, color=wants_color(sys.stderr) if color is None else color)
    return MarkProgress()
