"""The result of a case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.errors import AgentrunError
from agentrun.spec.problems import Problem, render_problem
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.discovery import LocatedCase

CaseStatus: TypeAlias = Literal["passed", "failed", "missed", "unreadable", "skipped", "xfailed"]
"""failed: an assertion failed. missed: the cassette is missing or out of date. unreadable: the spec or the case is
invalid. xfailed: it failed as expected."""

BAD_STATUSES: tuple[CaseStatus, ...] = ("failed", "missed", "unreadable")
OWN_CASSETTE_HINT = "remove `cassette"
"""The beginning of the hint to give a case its own cassette."""


class Complaint(Struct, frozen=True, kw_only=True):
    """One reason why a case did not pass."""

    claim: str
    """The type of the assertion, such as `not-contains`; `outcome` if the case has no such assertion; or a code."""
    message: str
    """The expected and the actual value, in a line."""
    detail: str = ""
    """More lines, such as a diff or the explanation of a miss."""
    hint: str | None = None


class CaseVerdict(Struct, frozen=True, kw_only=True):
    id: str
    """`specs/support.cases.yaml::default`"""
    file: str
    line: int
    status: CaseStatus
    reason: str | None = None
    """Why it was skipped, or is expected to fail."""
    complaints: tuple[Complaint, ...] = ()
    notes: tuple[Complaint, ...] = ()
    """Shown, but not failures: for example the changed journal of a case that was just recorded."""
    changes: tuple[str, ...] = ()
    """What the agent does differently than accepted or recorded, in words."""
    story: str = ""
    """The steps of the run, if the case did not pass."""
    tier: str | None = None
    """The least exact match of a request with its recorded one."""
    live: tuple[str, ...] = ()
    """The assertion functions with `network: true`, as module:function. Their result may change any time."""
    seconds: float = 0
    spent: dict[str, Any] = {}
    """tokens, cost (micro-dollars), turns, time (milliseconds by the clock of the run)."""

    @property
    def is_bad(self) -> bool:
        return self.status in BAD_STATUSES


def case_verdict(located: LocatedCase, status: CaseStatus, *complaints: Complaint) -> CaseVerdict:
    file = display_path(located.file)
    return CaseVerdict(id=located.id, file=file, line=located.line, status=status, complaints=complaints)


def complaint_of(error: AgentrunError) -> Complaint:
    return Complaint(claim=error.code, message=error.message, hint=error.hint)


def complaints_of_problems(problems: Iterable[Problem]) -> tuple[Complaint, ...]:
    return tuple(
        Complaint(claim=each.code, message=f"{each.place}: {each.message}", detail=render_problem(each), hint=each.hint)
        for each in problems
    )


def suite_exit_code(verdicts: list[CaseVerdict]) -> int:
    """1 if an assertion failed, else 3 if there were misses, else 2 if a case is invalid."""
    statuses = {verdict.status for verdict in verdicts}
    return 1 if "failed" in statuses else 3 if "missed" in statuses else 2 if "unreadable" in statuses else 0
