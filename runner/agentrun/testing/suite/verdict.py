"""What came of a case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from agentrun.spec.problems import Problem, render_problem

CaseStatus: TypeAlias = Literal["passed", "failed", "missed", "unreadable", "skipped", "xfailed"]
"""failed: an assertion does not hold. missed: the recording does not fit, or there is none. unreadable: the spec or the
case is wrong. xfailed: it failed, as it says."""

BAD_STATUSES: tuple[CaseStatus, ...] = ("failed", "missed", "unreadable")
OWN_CASSETTE_HINT = "remove `cassette"
"""How the advice begins to give a case a recording of its own."""


class Complaint(Struct, frozen=True, kw_only=True):
    """Something that does not hold."""

    claim: str
    """The type of the assertion, such as `not-contains`; `outcome` where the case says nothing of it; or a code."""
    message: str
    """What was wanted and what was found, in a line."""
    detail: str = ""
    """More of it, in lines: a difference, the explanation of a miss."""
    hint: str | None = None
    """What can be done."""


class CaseVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on a case."""

    id: str
    """`specs/support.cases.yaml::default`"""
    file: str
    line: int
    status: CaseStatus
    reason: str | None = None
    """Why it was skipped, or was to fail."""
    complaints: tuple[Complaint, ...] = ()
    notes: tuple[Complaint, ...] = ()
    """What is shown but is no failure: a changed journal of a case that was just recorded."""
    changes: tuple[str, ...] = ()
    """What the agent now does differently, in words: found by comparing with what was accepted or recorded."""
    story: str = ""
    """The run as it went, for a case that did not pass."""
    tier: str | None = None
    """How well the requests fit the tape at worst."""
    live: tuple[str, ...] = ()
    """The functions that judged it with `network: true`, as module:function. What they say may change any time."""
    seconds: float = 0
    """Real time that it took."""
    spent: dict[str, Any] = {}
    """tokens, cost (micro-dollars), turns, time (milliseconds by the clock of the recording)."""

    @property
    def is_bad(self) -> bool:
        return self.status in BAD_STATUSES


def complaints_of_problems(problems: Iterable[Problem]) -> tuple[Complaint, ...]:
    """What is wrong in a document, one by one."""
    return tuple(
        Complaint(claim=each.code, message=f"{each.place}: {each.message}", detail=render_problem(each), hint=each.hint)
        for each in problems
    )


def suite_exit_code(verdicts: list[CaseVerdict]) -> int:
    """1 if an assertion failed, else 3 if there were misses, else 2 if a case could not be read."""
    found = {verdict.status for verdict in verdicts}
    return 1 if "failed" in found else 3 if "missed" in found else 2 if "unreadable" in found else 0
