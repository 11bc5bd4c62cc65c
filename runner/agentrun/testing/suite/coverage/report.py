"""What cases exercise of specs, in numbers and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.testing.suite.coverage.spec_parts import PART_KINDS, PartKind

PART_KIND_PLURALS: dict[PartKind, str] = {
    "tool": "tools",
    "rule": "rules",
    "budget": "budgets",
    "guard": "guards",
    "hook": "hooks",
    "branch": "template branches",
    "code": "codes",
}


class PartCoverage(Struct, frozen=True, kw_only=True):
    """A part of a spec, and whether a case exercises it."""

    kind: PartKind
    name: str
    file: str
    line: int
    profile: str | None
    """The profile that adds it. None: it stands in the spec itself."""
    covered: bool
    asked: bool = False
    """Of a tool: whether the model wanted to call it."""
    answered: bool = False
    """Of a hook: whether it ever said more than continue."""

    def merge(self, other: PartCoverage) -> PartCoverage:
        """The same part under another profile."""
        return replace(
            self,
            covered=self.covered or other.covered,
            asked=self.asked or other.asked,
            answered=self.answered or other.answered,
        )

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def note(self) -> str | None:
        """What else is known of it."""
        if self.kind == "tool" and not self.covered and self.asked:
            return "the model called it, but it never ran"
        if self.kind == "hook" and self.covered and not self.answered:
            return "it never said anything but continue"
        return None

    def as_json(self) -> dict[str, Any]:
        found = {"kind": self.kind, "name": self.name, "place": self.place, "profile": self.profile, "note": self.note}
        return {key: value for key, value in found.items() if value is not None}


class CoverageRatio(Struct, frozen=True):
    """So many of so many."""

    covered: int
    total: int

    @property
    def percent(self) -> float:
        """Rounded down to a tenth, so that 100 means all. Of nothing, all is covered."""
        return self.covered * 1000 // self.total / 10 if self.total else 100.0

    def as_json(self) -> dict[str, Any]:
        return {"covered": self.covered, "total": self.total, "percent": self.percent}


def coverage_ratio(parts: Iterable[PartCoverage]) -> CoverageRatio:
    flags = [part.covered for part in parts]
    return CoverageRatio(sum(flags), len(flags))


def _ratios_by_kind(parts: tuple[PartCoverage, ...]) -> dict[PartKind, CoverageRatio]:
    shares = {kind: coverage_ratio(part for part in parts if part.kind == kind) for kind in PART_KINDS}
    return {kind: share for kind, share in shares.items() if share.total}


class SpecCoverage(Struct, frozen=True, kw_only=True):
    """One spec."""

    spec: str
    parts: tuple[PartCoverage, ...]

    @property
    def missing(self) -> tuple[PartCoverage, ...]:
        """What no case exercises."""
        return tuple(part for part in self.parts if not part.covered)

    @property
    def noted(self) -> tuple[PartCoverage, ...]:
        """What is exercised, but not in full."""
        return tuple(part for part in self.parts if part.covered and part.note)

    def as_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            **coverage_ratio(self.parts).as_json(),
            "kinds": {PART_KIND_PLURALS[kind]: share.as_json() for kind, share in _ratios_by_kind(self.parts).items()},
            "missing": [part.as_json() for part in self.missing],
            "noted": [part.as_json() for part in self.noted],
        }


class Coverage(Struct, frozen=True, kw_only=True):
    """What the cases exercise of all that could be."""

    specs: tuple[SpecCoverage, ...]

    @property
    def parts(self) -> tuple[PartCoverage, ...]:
        return tuple(part for spec in self.specs for part in spec.parts)

    @property
    def covered(self) -> int:
        return coverage_ratio(self.parts).covered

    @property
    def total(self) -> int:
        return len(self.parts)

    @property
    def percent(self) -> float:
        """Rounded down to a tenth, so that 100 means all. Of nothing, all is covered."""
        return coverage_ratio(self.parts).percent

    def reaches(self, least: float) -> bool:
        """Whether it is at least so many percent."""
        return self.covered * 100 >= least * self.total

    def as_json(self) -> dict[str, Any]:
        return {
            **coverage_ratio(self.parts).as_json(),
            "kinds": {PART_KIND_PLURALS[kind]: share.as_json() for kind, share in _ratios_by_kind(self.parts).items()},
            "specs": [spec.as_json() for spec in self.specs],
        }

    def text(self) -> str:
        """For a terminal: what is missing, spec by spec, then the numbers."""
        return "\n".join([*_spec_lines(self.specs), "", *_table(self.parts)])


def _spec_lines(specs: tuple[SpecCoverage, ...]) -> Iterator[str]:
    for spec in specs:
        share = coverage_ratio(spec.parts)
        yield f"{spec.spec}: {share.percent:.1f} % ({share.covered} of {share.total})"
        for part in (*spec.missing, *spec.noted):
            profile = f" (profile {part.profile})" if part.profile else ""
            note = f": {part.note}" if part.note else ""
            verb = "covered" if part.covered else "not covered"
            yield f"  {part.place}  {verb}: {part.kind} {part.name}{profile}{note}"


def _table(parts: tuple[PartCoverage, ...]) -> Iterator[str]:
    rows = [(PART_KIND_PLURALS[kind], share) for kind, share in _ratios_by_kind(parts).items()]
    for name, share in [*rows, ("in all", coverage_ratio(parts))]:
        yield f"{name:<18}{share.covered:>6} of {share.total:<6}{share.percent:>6.1f} %"
