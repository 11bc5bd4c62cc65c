"""What runs exercised of their agents, read from their journals.

Rule 1  A tool: a call of it was started. A rule: a ruling rests on it; where a stricter one matched too, on that one.
Rule 2  A budget or guard: a run ended over it, was labelled by it, or calls were refused over it.
Rule 3  A hook: it was asked. A code: a run ended with it, or a retry, the model or a person met it on the way.
Rule 4  Templates leave no trace in a journal but their text. They are rendered again with what the run knew: those of a
        tool once for each call that was started, a prompt that was made in advance only if the model was told it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import UNSET

from agentrun.compiler.compile import compile_or_raise
from agentrun.compiler.prompts import render_input
from agentrun.compiler.spec_reader import read_spec
from agentrun.compiler.template_branches import branches_taken
from agentrun.core.evolve import evolve
from agentrun.core.facts import (
    ApprovalAnswered,
    CallRefused,
    ChildStarted,
    Continue,
    DeliveryFinished,
    DeliverySkipped,
    Fact,
    HookAnswered,
    HookAsked,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    ModelTold,
    Record,
    Ruled,
    RunStarted,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.messages import words
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.engine.begin import PackagePolicy
from agentrun.errors import SpecError
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.coverage.report import Coverage, PartCoverage, SpecCoverage
from agentrun.testing.suite.coverage.spec_parts import (
    PART_KINDS,
    AgentTree,
    SpecPart,
    build_agent_tree,
    list_spec_parts,
)
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent

CoverageMark: TypeAlias = tuple[str, str]
"""What was exercised: a kind of part, and its name. Two kinds are no parts: `asked` (a tool that the model called) and
`answered` (a hook that said more than continue)."""


def exercised_marks(
    agent: AgentTree, journal: Sequence[Record], children: Mapping[str, Sequence[Record]]
) -> Iterator[tuple[AgentTree, CoverageMark]]:
    """What a run and those below it exercised, each of its own agent."""
    for record in journal:
        for mark in _fact_marks(agent.package, record.fact):
            yield agent, mark
        if isinstance(record.fact, ChildStarted):
            yield from exercised_marks(agent.children[record.fact.tool], children.get(record.fact.run, ()), children)
    for where, values in _rendered_templates(agent, journal) if agent.templates else ():
        for template in agent.templates:
            if template.where == where or template.where.startswith(f"{where}/"):
                for way in branches_taken(template.node.text, values):
                    yield agent, ("branch", template.mark(way))


def _fact_marks(package: Package, fact: Fact) -> Iterator[CoverageMark]:
    match fact:
        case RunStarted():
            yield from (("rule", rule) for rule in PackagePolicy().ruling(package, fact).rules)
        case ModelReplied():
            yield from (("asked", call.tool) for call in fact.reply.message.calls)
        case ToolStarted() | ChildStarted():
            yield "tool", fact.tool
        case Ruled():
            yield from (("rule", rule) for rule in fact.rules)
        case HookAsked():
            yield "hook", fact.hook
        case HookAnswered() if not isinstance(fact.answer, Continue):
            yield "answered", fact.hook
        case ApprovalAnswered():
            yield "code", f"approval.{fact.answer}"
        case CallRefused():
            yield "code", fact.code
            if fact.fields.get("reason") == "parallel_tools":
                yield "guard", "parallel_tools"
        case RunStopped(label="budget.turns"):
            yield from marks_of_code("budget.turns")
        case ModelFailed() | ToolFinished() | DeliveryFinished() | DeliverySkipped() | RunStopped():
            if fact.fault is not None:
                yield from marks_of_code(fact.fault.code)


def marks_of_code(code: str) -> Iterator[CoverageMark]:
    """What a code shows to be exercised: itself, and the budget or guard that gives it."""
    yield "code", code
    kind, _, name = code.partition(".")
    if kind in ("budget", "guard"):
        yield kind, name


def _rendered_templates(agent: AgentTree, journal: Sequence[Record]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where in the spec a text was filled in, and with which values."""
    state = State()
    for record in journal:
        state = evolve(state, record)
        params = state.started.params
        match record.fact:
            case RunStarted() as started:
                yield "instructions", params
                if started.input is not None and words(started.input.parts) == render_input(agent.package, params):
                    yield "input", params
            case ToolStarted() as fact:
                arguments = next(call.arguments for call in state.calls if call.call.id == fact.call)
                yield f"tools/{fact.tool}", {**params, "args": arguments}
            case ModelTold(why="nudge"):
                yield "guards/nudge", params
            case ModelAsked(purpose="compact"):
                yield "context/compaction/prompt", params


# --- which parts of the specs under test no case exercises ----------------------------------------------------


class CoverageCollector:
    """Collects, case by case, what is exercised."""

    def __init__(self) -> None:
        self._specs: set[tuple[str, str]] = set()
        """Specs with their profiles, as cases name them. The profile of none is empty."""
        self._seen: set[tuple[str, str, str, str]] = set()
        """Spec, profile, kind and name of all that was exercised."""
        self._agents: dict[int, AgentTree] = {}
        """By the package that they were prepared as; an agent is read once however many cases it has."""
        self._kept: list[CompiledAgent] = []

    def add_spec(self, found: LocatedCase) -> None:
        """The agent of this case counts, also if the case is skipped."""
        profile = "" if found.case.profile is UNSET else found.case.profile
        self._specs.add((str(found.spec), profile))

    def add(self, found: LocatedCase, prepared: CompiledAgent, played: CaseRuns) -> None:
        """What a case did."""
        self.add_spec(found)
        agent = self._agent(found, prepared)
        for run in played.runs:
            for whose, mark in exercised_marks(agent, run.journal, run.children):
                self._add_mark(whose, mark)
        if played.start_error is not None:
            for mark in marks_of_code(played.start_error.code):
                self._add_mark(agent, mark)
            for rule in played.start_error.fields.get("rules", ()):
                self._add_mark(agent, ("rule", str(rule)))

    def _add_mark(self, agent: AgentTree, mark: CoverageMark) -> None:
        self._seen.add((str(agent.spec.path), agent.profile or "", *mark))

    def _agent(self, found: LocatedCase, prepared: CompiledAgent) -> AgentTree:
        if id(prepared) not in self._agents:
            self._kept.append(prepared)  # so that no other gets its identity
            profile = None if found.case.profile is UNSET else found.case.profile
            self._agents[id(prepared)] = build_agent_tree(prepared.spec, profile, prepared.file.agent)
        return self._agents[id(prepared)]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON-like data, for another process."""
        return {
            "specs": [list(each) for each in sorted(self._specs)],
            "seen": [list(each) for each in sorted(self._seen)],
        }

    def merge(self, other: dict[str, Any]) -> None:
        """Take in what another process collected."""
        self._specs.update((str(path), str(profile)) for path, profile in other["specs"])
        self._seen.update(
            (str(path), str(profile), str(kind), str(name)) for path, profile, kind, name in other["seen"]
        )

    def report(self) -> Coverage:
        """Compare with what the specs declare. What cannot be compiled is left out: its cases say why."""
        agents: dict[tuple[Path, str], AgentTree] = {}
        for path, profile in sorted(_with_profiles(self._specs)):
            for agent in _compile_trees(Path(path), profile):
                agents.setdefault((agent.spec.path, agent.profile or ""), agent)
        paths = sorted({path for path, _ in agents}, key=lambda path: (display_path(path), str(path)))
        return Coverage(
            specs=tuple(
                self._spec_coverage([agents[key] for key in sorted(agents) if key[0] == path]) for path in paths
            )
        )

    def _spec_coverage(self, agents: list[AgentTree]) -> SpecCoverage:
        """One spec under all its profiles: its own, which has no name, comes first."""
        found: dict[tuple[object, ...], PartCoverage] = {}
        for agent in agents:
            for part in list_spec_parts(agent):
                now = self._part_coverage(agent, part)
                before = found.get(part.identity)
                found[part.identity] = now if before is None else before.merge(now)
        parts = sorted(found.values(), key=lambda part: PART_KINDS.index(part.kind))
        return SpecCoverage(spec=agents[0].spec.source.display_name, parts=tuple(parts))

    def _part_coverage(self, agent: AgentTree, part: SpecPart) -> PartCoverage:
        def seen(kind: str) -> bool:
            return (str(agent.spec.path), agent.profile or "", kind, part.mark) in self._seen

        return PartCoverage(
            kind=part.kind,
            name=part.name,
            file=part.place.source.display_name,
            line=part.place.line,
            profile=agent.profile,
            covered=seen(part.kind),
            asked=part.kind == "tool" and seen("asked"),
            answered=part.kind == "hook" and seen("answered"),
        )


def _with_profiles(specs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The specs with all the profiles that they have."""
    paths = {path for path, _ in specs}
    return {(path, profile) for path in paths for profile in ("", *read_spec(Path(path)).profiles)}


def _compile_trees(path: Path, profile: str) -> Iterator[AgentTree]:
    try:
        spec, file = compile_or_raise(path, profile or None)
    except SpecError:
        return
    yield from build_agent_tree(spec, profile or None, file.agent).all()
