"""The coverage of specs by cases, in numbers and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.testing.suite.coverage.spec_parts import APART_KINDS, PART_KINDS, PartKind

PART_KIND_PLURALS: dict[PartKind, str] = {
    "prompt": "prompts",
    "tool": "tools",
    "rule": "rules",
    "budget": "budgets",
    "guard": "guards",
    "hook": "hooks",
    "branch": "template branches",
    "code": "codes",
    "provider fault": "provider faults",
    "default budget": "default budgets",
}


class PartCoverage(Struct, frozen=True, kw_only=True):
    kind: PartKind
    name: str
    file: str
    line: int
    profile: str | None
    """The profile that adds it. None: the spec itself."""
    covered: bool
    asked: bool = False
    """For a tool: whether the model called it."""
    answered: bool = False
    """For a hook: whether it ever gave an answer other than `continue`."""

    def merge(self, other: PartCoverage) -> PartCoverage:
        names = ("covered", "asked", "answered")
        return replace(self, **{name: getattr(self, name) or getattr(other, name) for name in names})

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def note(self) -> str | None:
        if self.kind == "tool" and not self.covered and self.asked:
            return "the model called it, but it never ran"
        if self.kind == "hook" and self.covered and not self.answered:
            return "it always answered `continue`"
        return None

    def as_json(self) -> dict[str, Any]:
        data = {"kind": self.kind, "name": self.name, "place": self.place, "profile": self.profile, "note": self.note}
        return {key: value for key, value in data.items() if value is not None}


class CoverageRatio(Struct, frozen=True):
    covered: int
    total: int

    @property
    def percent(self) -> float:
        """Rounded down to a tenth, so that 100 means all. 100 if there is nothing to cover."""
        return self.covered * 1000 // self.total / 10 if self.total else 100.0

    def as_json(self) -> dict[str, Any]:
        return {"covered": self.covered, "total": self.total, "percent": self.percent}


def coverage_ratio(parts: Iterable[PartCoverage]) -> CoverageRatio:
    flags = [part.covered for part in parts]
    return CoverageRatio(sum(flags), len(flags))


def _ratios_by_kind(parts: tuple[PartCoverage, ...]) -> dict[str, CoverageRatio]:
    ratios = {kind: coverage_ratio(part for part in parts if part.kind == kind) for kind in PART_KINDS}
    return {PART_KIND_PLURALS[kind]: ratio for kind, ratio in ratios.items() if ratio.total}


def _totals_json(parts: tuple[PartCoverage, ...], apart: tuple[PartCoverage, ...]) -> dict[str, Any]:
    kinds = {name: ratio.as_json() for name, ratio in _ratios_by_kind(parts).items()}
    not_counted = {name: ratio.as_json() for name, ratio in _ratios_by_kind(apart).items()}
    return {**coverage_ratio(parts).as_json(), "kinds": kinds, "apart": not_counted}


class SpecCoverage(Struct, frozen=True, kw_only=True):
    spec: str
    all_parts: tuple[PartCoverage, ...]

    @property
    def parts(self) -> tuple[PartCoverage, ...]:
        """The parts that count."""
        return tuple(part for part in self.all_parts if part.kind not in APART_KINDS)

    @property
    def apart(self) -> tuple[PartCoverage, ...]:
        return tuple(part for part in self.all_parts if part.kind in APART_KINDS)

    @property
    def missing(self) -> tuple[PartCoverage, ...]:
        return tuple(part for part in self.parts if not part.covered)

    @property
    def noted(self) -> tuple[PartCoverage, ...]:
        """The parts that are exercised, but not fully."""
        return tuple(part for part in self.parts if part.covered and part.note)

    def as_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            **_totals_json(self.parts, self.apart),
            "missing": [part.as_json() for part in self.missing],
            "noted": [part.as_json() for part in self.noted],
        }


class Coverage(Struct, frozen=True, kw_only=True):
    specs: tuple[SpecCoverage, ...]

    @property
    def parts(self) -> tuple[PartCoverage, ...]:
        return tuple(part for spec in self.specs for part in spec.parts)

    @property
    def apart(self) -> tuple[PartCoverage, ...]:
        return tuple(part for spec in self.specs for part in spec.apart)

    @property
    def covered(self) -> int:
        return coverage_ratio(self.parts).covered

    @property
    def total(self) -> int:
        return len(self.parts)

    @property
    def percent(self) -> float:
        return coverage_ratio(self.parts).percent

    def reaches(self, least: float) -> bool:
        return self.covered * 100 >= least * self.total

    def as_json(self) -> dict[str, Any]:
        return {**_totals_json(self.parts, self.apart), "specs": [spec.as_json() for spec in self.specs]}

    def text(self) -> str:
        """For a terminal: the missing parts of each spec, then the totals."""
        return "\n".join([*_spec_lines(self.specs), "", *_table(self.parts, self.apart)])


def _spec_lines(specs: tuple[SpecCoverage, ...]) -> Iterator[str]:
    for spec in specs:
        ratio = coverage_ratio(spec.parts)
        yield f"{spec.spec}: {ratio.percent:.1f} % ({ratio.covered} of {ratio.total})"
        for part in (*spec.missing, *spec.noted):
            profile = f" (profile {part.profile})" if part.profile else ""
            note = f": {part.note}" if part.note else ""
            verb = "covered" if part.covered else "not covered"
            yield f"  {part.place}  {verb}: {part.kind} {part.name}{profile}{note}"
        if names := [part.name for part in spec.apart if not part.covered]:
            yield f"  not counted, not covered: {', '.join(names)}"


def _table(parts: tuple[PartCoverage, ...], apart: tuple[PartCoverage, ...]) -> Iterator[str]:
    for name, ratio in [*_ratios_by_kind(parts).items(), ("total", coverage_ratio(parts))]:
        yield f"{name:<18}{ratio.covered:>6} of {ratio.total:<6}{ratio.percent:>6.1f} %"
    for name, ratio in _ratios_by_kind(apart).items():
        yield f"{name:<18}{ratio.covered:>6} of {ratio.total:<6}not counted"
