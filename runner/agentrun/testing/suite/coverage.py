"""Spec coverage: which parts of the specs the runs of a suite exercise, and the report about it.

Rule 1  Only journals are read, never the state of the engine.
Rule 2  The result is plain data. The merged results of two halves of a suite are those of the whole, in any order.
Rule 3  Only parts that are written in a spec count. Failures of the provider and defaults are listed apart.
Rule 4  A sub-agent is a spec of its own. Its runs in the cases of its parent count for it.
Rule 5  A part of the spec itself may be exercised with any profile. A part that a profile adds counts for that profile,
        even if no case uses the profile.
Rule 6  A journal has only the text of a template, so templates are rendered again with the values of the run: those of
        a tool once for each started call, a prepared prompt only if the model got it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.compiler.compile import compile_or_raise
from agentrun.compiler.prompts import render_input
from agentrun.compiler.spec_reader import read_spec
from agentrun.compiler.template_branches import branches_taken
from agentrun.core import facts
from agentrun.core.evolve import evolve
from agentrun.core.messages import text_of
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.engine.begin import PackagePolicy
from agentrun.errors import SpecError
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent
from agentrun.testing.suite.spec_parts import (
    APART_KINDS,
    PART_KINDS,
    AgentTree,
    PartKind,
    SpecPart,
    build_agent_tree,
    list_spec_parts,
)

CoverageMark: TypeAlias = tuple[str, str]
"""An exercised part: its kind and name. Two kinds are not parts: `asked` (a tool that the model called) and `answered`
(a hook that gave an answer other than `continue`)."""
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


def exercised_marks(
    agent: AgentTree, journal: Sequence[facts.Record], children: Mapping[str, Sequence[facts.Record]]
) -> Iterator[tuple[AgentTree, CoverageMark]]:
    for record in journal:
        for mark in _fact_marks(agent.package, record):
            yield agent, mark
        if isinstance(record.fact, facts.ChildStarted):
            yield from exercised_marks(agent.children[record.fact.tool], children.get(record.fact.run, ()), children)
    for where, values in _rendered_templates(agent, journal):
        yield agent, ("prompt", where)
        for template in agent.templates:
            if template.where == where or template.where.startswith(f"{where}/"):
                for branch in branches_taken(template.source, values):
                    yield agent, ("branch", template.mark(branch))


def _fact_marks(package: Package, record: facts.Record) -> Iterator[CoverageMark]:
    fact = record.fact
    match fact:
        case facts.RunStarted():
            yield from (("rule", rule) for rule in PackagePolicy().ruling(package, fact, record.at).rules)
        case facts.ModelReplied():
            yield from (("asked", call.tool) for call in fact.reply.message.calls)
        case facts.ToolStarted() | facts.ChildStarted():
            yield "tool", fact.tool
        case facts.Ruled():
            yield from (("rule", rule) for rule in fact.rules)
        case facts.HookAsked():
            yield "hook", fact.hook
        case facts.HookAnswered() if not isinstance(fact.answer, facts.Continue):
            yield "answered", fact.hook
        case facts.ApprovalAnswered():
            yield "code", f"approval.{fact.answer}"
        case facts.CallRefused():
            yield "code", fact.code
            if fact.fields.get("reason") == "parallel_tools":
                yield "guard", "parallel_tools"
        case facts.RunStopped(label="budget.turns"):
            yield from marks_of_code("budget.turns")
        case (
            facts.ModelFailed()
            | facts.ToolFinished()
            | facts.DeliveryFinished()
            | facts.DeliverySkipped()
            | facts.RunStopped()
        ):
            if fact.fault is not None:
                yield from marks_of_code(fact.fault.code)


def marks_of_code(code: str) -> Iterator[CoverageMark]:
    """The marks of a code: itself, and its budget or guard."""
    yield "code", code
    kind, _, name = code.partition(".")
    if kind in ("budget", "guard"):
        yield kind, name


def _rendered_templates(agent: AgentTree, journal: Sequence[facts.Record]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The path of each rendered template in the spec, and its values."""
    state = State()
    for record in journal:
        state = evolve(state, record)
        params = state.started.params
        match record.fact:
            case facts.RunStarted() as started:
                yield "instructions", params
                if started.input is not None and text_of(started.input.parts) == render_input(agent.package, params):
                    yield "input", params
            case facts.ToolStarted() as fact:
                arguments = next(call.all_arguments for call in state.calls if call.call.id == fact.call)
                yield f"tools/{fact.tool}", {**params, "args": arguments}
            case facts.ModelTold(why="nudge"):
                yield "guards/nudge", params
            case facts.ModelAsked(purpose="compact"):
                yield "context/compaction/prompt", params


class CoverageCollector:
    def __init__(self) -> None:
        self._specs: set[str] = set()
        self._seen: set[tuple[str, str, str, str]] = set()
        """Spec, profile, kind and name of the exercised parts."""
        self._trees: dict[int, tuple[AgentTree, CompiledAgent]] = {}
        """By the id of the compiled agent, which is kept so that its id is not used again."""

    def add_spec(self, located: LocatedCase) -> None:
        """Count the agent of a case, even if the case is skipped."""
        self._specs.add(str(located.spec))

    def add(self, located: LocatedCase, agent: CompiledAgent, case_runs: CaseRuns) -> None:
        self.add_spec(located)
        if id(agent) not in self._trees:
            self._trees[id(agent)] = build_agent_tree(agent.spec, located.profile, agent.file.agent), agent
        tree = self._trees[id(agent)][0]
        for run in case_runs.runs:
            for owner, mark in exercised_marks(tree, run.journal, run.children):
                self._add_mark(owner, mark)
        if case_runs.start_error is not None:
            for mark in marks_of_code(case_runs.start_error.code):
                self._add_mark(tree, mark)
            for rule in case_runs.start_error.fields.get("rules", ()):
                self._add_mark(tree, ("rule", str(rule)))

    def _add_mark(self, tree: AgentTree, mark: CoverageMark) -> None:
        self._seen.add((str(tree.spec.path), tree.profile or "", *mark))

    def to_dict(self) -> dict[str, Any]:
        return {"specs": sorted(self._specs), "seen": [list(each) for each in sorted(self._seen)]}

    def merge(self, other: dict[str, Any]) -> None:
        self._specs.update(map(str, other["specs"]))
        self._seen.update(
            (str(path), str(profile), str(kind), str(name)) for path, profile, kind, name in other["seen"]
        )

    def report(self) -> Coverage:
        """Compare with the parts of the specs. Invalid specs are left out, because their cases report the problem."""
        agents: dict[tuple[Path, str], AgentTree] = {}
        for path in map(Path, sorted(self._specs)):
            for profile in sorted(["", *read_spec(path).profiles]):
                for agent in _compile_trees(path, profile):
                    agents.setdefault((agent.spec.path, agent.profile or ""), agent)
        paths = sorted({path for path, _ in agents}, key=lambda path: (display_path(path), str(path)))
        by_path = ([agents[key] for key in sorted(agents) if key[0] == path] for path in paths)
        return Coverage(specs=tuple(map(self._spec_coverage, by_path)))

    def _spec_coverage(self, agents: list[AgentTree]) -> SpecCoverage:
        """One spec with all its profiles. The spec without a profile comes first."""
        merged: dict[tuple[object, ...], PartCoverage] = {}
        for agent in agents:
            for part in list_spec_parts(agent):
                now = self._part_coverage(agent, part)
                before = merged.get(part.identity)
                merged[part.identity] = now if before is None else before.merge(now)
        parts = sorted(merged.values(), key=lambda part: PART_KINDS.index(part.kind))
        return SpecCoverage(spec=agents[0].spec.source.display_name, all_parts=tuple(parts))

    def _part_coverage(self, agent: AgentTree, part: SpecPart) -> PartCoverage:
        marked_as = {"provider fault": "code", "default budget": "budget"}.get(part.kind, part.kind)

        def seen(kind: str) -> bool:
            return (str(agent.spec.path), agent.profile or "", kind, part.mark) in self._seen

        return PartCoverage(
            kind=part.kind,
            name=part.name,
            file=part.place.source.display_name,
            line=part.place.line,
            profile=agent.profile,
            covered=seen(marked_as),
            asked=part.kind == "tool" and seen("asked"),
            answered=part.kind == "hook" and seen("answered"),
        )


def _compile_trees(path: Path, profile: str) -> Iterator[AgentTree]:
    try:
        spec, file = compile_or_raise(path, profile or None)
    except SpecError:
        return
    yield from build_agent_tree(spec, profile or None, file.agent).all()


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
