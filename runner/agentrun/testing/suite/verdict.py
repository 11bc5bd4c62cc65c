"""The result of a case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.errors import AgentrunError
from agentrun.spec.problems import Problem, render_problem
from agentrun.spec.safe_text import join_words
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.discovery import LocatedCase

CaseStatus: TypeAlias = Literal["passed", "failed", "missed", "unreadable", "skipped", "xfailed"]
"""failed: an assertion failed. missed: the cassette is missing or out of date. unreadable: the spec or the case is
invalid. xfailed: it failed as expected."""

BAD_STATUSES: tuple[CaseStatus, ...] = ("failed", "missed", "unreadable")
SNAPSHOT_ASSERTIONS = ("journal-snapshot", "not-journal-snapshot")
OWN_CASSETTE_HINT = "remove `cassette"
"""The beginning of the hint to give a case its own cassette."""


class CaseFailure(Struct, frozen=True, kw_only=True):
    assertion: str
    """The type of the assertion, such as `not-contains`; `outcome` if the case has no such assertion; or a code."""
    message: str
    detail: str = ""
    """More lines, such as a diff or the explanation of a miss."""
    hint: str | None = None
    file: str | None = None
    """The file with the assertion or the mistake. None: unknown."""
    line: int | None = None

    @property
    def place(self) -> str | None:
        """`specs/support.cases.yaml:27`."""
        return None if self.file is None else f"{self.file}:{self.line}"


class CaseChange(Struct, frozen=True, kw_only=True):
    """What an agent does differently than accepted or recorded."""

    title: str
    """The change in a few words, without its place in the run: `instructions line 5 changed`."""
    text: str
    """The whole change in one line."""
    file: str | None = None
    """The file with the line that changed. None: unknown."""
    line: int | None = None
    section: str | None = None
    """The section of the spec that changed."""
    recorded_line: str | None = None
    """Of a prompt: the line on the cassette."""
    current_line: str | None = None

    @property
    def place(self) -> str | None:
        return None if self.file is None else f"{self.file}:{self.line}"


class SnapshotMatch(Struct, frozen=True, kw_only=True):
    """Which accepted journal a run equals, by the names of files."""

    equals: str
    others: tuple[str, ...]
    """The other accepted journals of the case."""

    @property
    def text(self) -> str:
        """`equals default.late.journal, not default.journal`."""
        return f"equals {self.equals}, not {join_words(self.others)}"


class CaseVerdict(Struct, frozen=True, kw_only=True):
    id: str
    """`specs/support.cases.yaml::default`"""
    file: str
    line: int
    status: CaseStatus
    reason: str | None = None
    """Why it was skipped, or is expected to fail."""
    failures: tuple[CaseFailure, ...] = ()
    notes: tuple[CaseFailure, ...] = ()
    """Shown, but not failures: for example the changed journal of a case that was just recorded."""
    changes: tuple[CaseChange, ...] = ()
    changed_tools: tuple[str, ...] = ()
    """The tools whose source changed since the recording. A replay uses what they returned then."""
    steps: str = ""
    """The steps of the run, if the case did not pass."""
    tier: str | None = None
    """The least exact match of a request with its recorded one."""
    snapshot: SnapshotMatch | None = None
    """Which accepted journal the run equals. None: it was not compared, or equals none."""
    ignored: dict[str, int] = {}
    """The paths of `ignore`, and how many values of the journal each replaced."""
    live: tuple[str, ...] = ()
    """The assertion functions with `network: true`, as module:function. Their result may change any time."""
    seconds: float = 0
    spent: dict[str, Any] = {}
    """tokens, cost (micro-dollars), turns, time (milliseconds by the clock of the run)."""

    @property
    def is_bad(self) -> bool:
        return self.status in BAD_STATUSES

    @property
    def failure_place(self) -> tuple[str, int]:
        """The file and line of the first assertion that failed, or else of the case."""
        wrong = next(iter(self.failures), None)
        if wrong is None or wrong.file is None or wrong.line is None:
            return self.file, self.line
        return wrong.file, wrong.line


def case_verdict(located: LocatedCase, status: CaseStatus, *failures: CaseFailure) -> CaseVerdict:
    file = display_path(located.file)
    return CaseVerdict(id=located.id, file=file, line=located.line, status=status, failures=failures)


def failure_of_error(error: AgentrunError) -> CaseFailure:
    return CaseFailure(assertion=error.code, message=error.message, hint=error.hint)


def failures_of_problems(problems: Iterable[Problem]) -> tuple[CaseFailure, ...]:
    return tuple(
        CaseFailure(
            assertion=each.code,
            message=f"{each.place}: {each.message}",
            detail=render_problem(each),
            hint=each.hint,
            file=display_path(each.place.source.path),
            line=each.line,
        )
        for each in problems
    )


def suite_exit_code(verdicts: list[CaseVerdict]) -> int:
    """1 if an assertion failed, else 3 if there were misses, else 2 if a case is invalid."""
    statuses = {verdict.status for verdict in verdicts}
    return 1 if "failed" in statuses else 3 if "missed" in statuses else 2 if "unreadable" in statuses else 0
