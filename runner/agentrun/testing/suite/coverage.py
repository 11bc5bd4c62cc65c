"""Which parts of the specs under test no case exercises.

Rule 1  Only journals are looked at: what a run did, never what the engine remembers of it.
Rule 2  What was exercised is plain data. Two halves of a suite give, merged in any order, what the whole gives.
Rule 3  A part counts if it is written in the spec. What holds by default has no place in it and does not count.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared


class Coverage(Struct, frozen=True, kw_only=True):
    """What the cases exercise of all that could be."""

    covered: int
    total: int

    @property
    def percent(self) -> float:
        """Rounded down to a tenth, so that 100 means all. Of nothing, all is covered."""
        return self.covered * 1000 // self.total / 10 if self.total else 100.0

    def reaches(self, least: float) -> bool:
        """Whether it is at least so many percent."""
        return self.percent >= least

    def text(self) -> str:
        """For a terminal: a table, and what is missing."""
        return ""

    def as_json(self) -> dict[str, Any]:
        return {}


class Covering:
    """Collects, case by case, what is exercised."""

    def under_test(self, found: Found) -> None:
        """The agent of this case counts, also if the case is skipped."""

    def add(self, prepared: Prepared, played: Played) -> None:
        """What a case did."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON-like data, for another process."""
        return {}

    def merge(self, other: dict[str, Any]) -> None:
        """Take in what another process collected."""

    def report(self) -> Coverage:
        """Compare with what the specs declare. Raises SpecError if one cannot be compiled any more."""
        return Coverage(covered=0, total=0)
