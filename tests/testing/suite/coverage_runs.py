"""A project whose agent runs with doubles, and its spec coverage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.compile import compile_or_raise
from agentrun.engine.clock import StepClock
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError
from agentrun.spec.v1.cases import Case
from agentrun.testing.doubles import scripted, stub
from agentrun.testing.suite.coverage import CoverageCollector, PartCoverage, SpecCoverage
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent

from ...projects import agent, write_project

KINDS = ("python", "http", "shell", "mcp")
RUN = "run-1"


class CoveredRuns:
    """What is covered by the runs that were made."""

    def __init__(self, folder: Path, text: str, **files: str) -> None:
        named = {name.replace("__", "/").replace("_yaml", ".yaml"): body for name, body in files.items()}
        self.spec = write_project(folder, {"spec.yaml": agent(text), **named})
        self.covering = CoverageCollector()
        self.covering.add_spec(self._found(None))

    def run(self, *script: Any, profile: str | None = None, **given: Any) -> CoveredRuns:
        """One run, in which the model follows a script."""
        prepared = CompiledAgent(*compile_or_raise(self.spec, profile))
        self.covering.add(self._found(profile), prepared, _play_script(prepared, script, given))
        return self

    def _found(self, profile: str | None) -> LocatedCase:
        case = Case(name="c") if profile is None else Case(name="c", profile=profile)
        return LocatedCase(file=self.spec.with_name("spec.cases.yaml"), spec=self.spec, case=case, line=1)

    def of(self, name: str = "spec.yaml") -> SpecCoverage:
        return next(each for each in self.covering.report().specs if each.spec.endswith(name))

    def parts(self, kind: str, name: str = "spec.yaml") -> dict[str, bool]:
        """The parts of a kind, and whether each is covered."""
        return {part.name: part.covered for part in self.of(name).all_parts if part.kind == kind}

    def part(self, kind: str, name: str) -> PartCoverage:
        return next(part for part in self.of().parts if (part.kind, part.name) == (kind, name))


def _play_script(prepared: CompiledAgent, script: tuple[Any, ...], given: dict[str, Any]) -> CaseRuns:
    clock, journals = StepClock(1_769_860_800_000), MemoryJournals()
    asked = {key: given.pop(key) for key in ("message", "params") if key in given}
    runtime = Runtime.in_memory(
        clock=clock,
        journals=journals,
        width=1,
        providers={"openai": scripted(*script)},
        executors=given.pop("executors", None) or dict.fromkeys(KINDS, given.pop("tool", None) or stub("fine")),
        **given,
    )
    request = Request(agent=prepared.file.agent.name, package=prepared.file, run=RUN, **asked)
    try:
        ended = clock.run(runtime.start(request).wait())
    except AgentrunError as error:
        return CaseRuns((), error)
    children = {run: journals.records(run) for run in journals.runs if run != RUN}
    return CaseRuns((FinishedRun(ended, journals.records(RUN), children, RunRedaction()),))
