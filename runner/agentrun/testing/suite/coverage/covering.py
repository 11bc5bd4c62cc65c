"""Which parts of the specs under test no case exercises.

Rule 1  Only journals are looked at: what a run did, never what the engine remembers of it.
Rule 2  What was exercised is plain data. Two halves of a suite give, merged in any order, what the whole gives.
Rule 3  A part counts if it is written in the spec. What holds by default has no place in it and does not count.
Rule 4  A sub-agent is a spec of its own: what it does in its parent's cases counts for it.
Rule 5  What stands in a spec itself may be exercised under any profile. What only a profile adds counts for that one,
        also if no case uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET

from agentrun.compiler.compile import compiled_or_raise
from agentrun.compiler.resolve import read_spec
from agentrun.errors import SpecError
from agentrun.spec.files import shown_path
from agentrun.testing.suite.coverage.exercised import Mark, exercised, of_code
from agentrun.testing.suite.coverage.kin import Agent, agent_of
from agentrun.testing.suite.coverage.parts import KINDS, Part, parts_of
from agentrun.testing.suite.coverage.report import Counted, Coverage, SpecCoverage
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared


class Covering:
    """Collects, case by case, what is exercised."""

    def __init__(self) -> None:
        self._specs: set[tuple[str, str]] = set()
        """Specs with their profiles, as cases name them. The profile of none is empty."""
        self._seen: set[tuple[str, str, str, str]] = set()
        """Spec, profile, kind and name of all that was exercised."""
        self._agents: dict[int, Agent] = {}
        """By the package that they were prepared as; an agent is read once however many cases it has."""
        self._kept: list[Prepared] = []

    def under_test(self, found: Found) -> None:
        """The agent of this case counts, also if the case is skipped."""
        profile = "" if found.case.profile is UNSET else found.case.profile
        self._specs.add((str(found.spec), profile))

    def add(self, found: Found, prepared: Prepared, played: Played) -> None:
        """What a case did."""
        self.under_test(found)
        agent = self._agent(found, prepared)
        for run in played.runs:
            for whose, mark in exercised(agent, run.journal, run.children):
                self._see(whose, mark)
        if played.error is not None:
            for mark in of_code(played.error.code):
                self._see(agent, mark)
            for rule in played.error.fields.get("rules", ()):
                self._see(agent, ("rule", str(rule)))

    def _see(self, agent: Agent, mark: Mark) -> None:
        self._seen.add((str(agent.spec.path), agent.profile or "", *mark))

    def _agent(self, found: Found, prepared: Prepared) -> Agent:
        if id(prepared) not in self._agents:
            self._kept.append(prepared)  # so that no other gets its identity
            profile = None if found.case.profile is UNSET else found.case.profile
            self._agents[id(prepared)] = agent_of(prepared.spec, profile, prepared.file.agent)
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
        agents: dict[tuple[Path, str], Agent] = {}
        for path, profile in sorted(_with_profiles(self._specs)):
            for agent in _compiled(Path(path), profile):
                agents.setdefault((agent.spec.path, agent.profile or ""), agent)
        paths = sorted({path for path, _ in agents}, key=lambda path: (shown_path(path), str(path)))
        return Coverage(
            specs=tuple(self._spec([agents[key] for key in sorted(agents) if key[0] == path]) for path in paths)
        )

    def _spec(self, agents: list[Agent]) -> SpecCoverage:
        """One spec under all its profiles: its own, which has no name, comes first."""
        found: dict[tuple[object, ...], Counted] = {}
        for agent in agents:
            for part in parts_of(agent):
                now = self._counted(agent, part)
                before = found.get(part.identity)
                found[part.identity] = now if before is None else before.also(now)
        parts = sorted(found.values(), key=lambda part: KINDS.index(part.kind))
        return SpecCoverage(spec=agents[0].spec.source.shown, parts=tuple(parts))

    def _counted(self, agent: Agent, part: Part) -> Counted:
        def seen(kind: str) -> bool:
            return (str(agent.spec.path), agent.profile or "", kind, part.mark) in self._seen

        return Counted(
            kind=part.kind,
            name=part.name,
            file=part.place.source.shown,
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


def _compiled(path: Path, profile: str) -> Iterator[Agent]:
    try:
        spec, file = compiled_or_raise(path, profile or None)
    except SpecError:
        return
    yield from agent_of(spec, profile or None, file.agent).all()
