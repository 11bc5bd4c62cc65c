"""The fixture `agentrun`, which runs agents in Python tests.

Rule 1  A cassette miss is raised, not returned as an outcome, because it is not behaviour of the agent.
Rule 2  Errors are raised without a traceback through this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct

from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.cases import cases_path
from agentrun.compiler.compile import compile_or_raise
from agentrun.core.facts import Record
from agentrun.core.trajectory import ObservedApproval, ObservedCall, ObservedRuling
from agentrun.engine.api import run as run_agent
from agentrun.engine.clock import StepClock
from agentrun.engine.host_ports import PortOptions, refuse_unknown_keywords
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.run import FinishedRun
from agentrun.errors import AgentrunError, RequestError
from agentrun.report.snapshot_form import SnapshotForm, SnapshotText
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.spec.source_files import did_you_mean_path
from agentrun.testing.plugin.items import replay_runner_for
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.evaluation import find_miss
from agentrun.testing.suite.evidence import collect_evidence
from agentrun.testing.suite.failure_text import safe_lines
from agentrun.testing.suite.replay import CaseRuns, CompiledAgents
from agentrun.testing.suite.snapshots import canonical_text, take_snapshot

if TYPE_CHECKING:
    import pytest

DEFAULT_CASE = "default"


class RunSpend(Struct, frozen=True):
    tokens: int
    cost: int
    """Micro-dollars."""
    turns: int
    time: int
    """Milliseconds by the clock of the run."""


class AgentRun:
    """A finished or suspended run, or the runs of a conversation. `run == journal_snapshot` compares its journal."""

    def __init__(self, name: str, case_runs: CaseRuns) -> None:
        evidence = collect_evidence(case_runs)
        self._name = name
        self.output: str | None = evidence.output
        """The answer. None: there is none."""
        self.outcome: str = evidence.outcome
        """`completed`, `suspended`, or the code that it stopped with."""
        self.calls: tuple[ObservedCall, ...] = evidence.calls
        """The tool calls of the model: `tool`, `args`, `status` (`ok` or a code), `result`, `turn`."""
        self.rulings: tuple[ObservedRuling, ...] = evidence.rulings
        self.approvals: tuple[ObservedApproval, ...] = evidence.approvals
        self.spend = RunSpend(evidence.tokens, evidence.cost, evidence.turns, evidence.time)
        self.journal: tuple[Record, ...] = tuple(record for run in case_runs.runs for record in run.journal)
        self._runs = case_runs.runs

    @property
    def canonical(self) -> str:
        """The canonical journal."""
        return canonical_text(self._runs)

    def snapshot(self, form: SnapshotForm) -> SnapshotText:
        """The text that `journal_snapshot` compares."""
        return take_snapshot(self._runs, form)

    def __repr__(self) -> str:
        return f"<run of {self._name}: {self.outcome}>"


class AgentRunner:
    """Runs agents: `agentrun("specs/support.yaml", case="default")`."""

    def __init__(self, config: pytest.Config, test_folder: Path) -> None:
        self._config = config
        self._test_folder = test_folder
        self._agents = CompiledAgents()

    def __call__(
        self,
        spec: str | Path,
        *,
        case: str | None = None,
        message: str | None = None,
        params: Mapping[str, Any] | None = None,
        profile: str | None = None,
        **world: Unpack[PortOptions],
    ) -> AgentRun:
        """Replay a case, or with a `model` send any message.

        With a `model`, every tool must be in `tools`, and without a `clock` no time passes.
        """
        __tracebackhide__ = True
        try:
            _check_types((str, Path), spec=spec)
            _check_types((str, type(None)), case=case, message=message, profile=profile)
            _check_types((Mapping, type(None)), params=params)
            refuse_unknown_keywords(world, PortOptions.__annotations__)
        except TypeError as error:
            raise error.with_traceback(None) from None
        root = self._config.rootpath / spec
        path = root if root.exists() else self._test_folder / spec
        try:
            if not path.is_file():
                hint = did_you_mean_path(Path(spec), self._config.rootpath)
                hint = hint or did_you_mean_path(Path(spec), self._test_folder)
                hint = hint or "paths are relative to pytest's rootdir or to the folder of the test"
                raise _request_error(f"there is no file {quote_text(str(spec))}", hint)
            if "model" in world:
                if case is not None:
                    hint = "leave out `case` or `model`"
                    raise _request_error("`case` and `model` cannot be combined: a case is replayed", hint)
                return _run_scripted(path, message, params, profile, world)
            if world or message is not None or params is not None or profile is not None:
                hint = "pass only `case`, or add model=scripted(…)"
                raise _request_error("a run without a case needs a `model`, because it has no cassette", hint)
            return self._replay_case(path, DEFAULT_CASE if case is None else case)
        except AgentrunError as error:
            raise _add_notes(error).with_traceback(None) from None
        except (TypeError, ValueError) as error:  # of an argument
            raise error.with_traceback(None) from None

    def _replay_case(self, spec: Path, name: str) -> AgentRun:
        located = _find_case(spec, name)
        case_runs = replay_runner_for(self._config)(located, self._agents.for_case(located))
        if (error := find_miss(case_runs) or case_runs.start_error) is not None:
            raise error
        return AgentRun(f"{spec.stem}, case {name}", case_runs)


def _check_types(kinds: tuple[type, ...], **arguments: Any) -> None:
    for name, value in arguments.items():
        if not isinstance(value, kinds):
            wanted = "a string" if kinds[0] is str else "a mapping"
            raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def _find_case(spec: Path, name: str) -> LocatedCase:
    if not cases_path(spec).is_file():
        hint = "write one, or run without a case: model=scripted(…)"
        raise _request_error(f"{spec.name} has no cases: there is no file {cases_path(spec).name} next to it", hint)
    cases = {located.case.name: located for located in read_located_cases(cases_path(spec))}
    if name not in cases:
        hint = did_you_mean(name, cases) or f"there are: {', '.join(cases)}"
        raise _request_error(f"{spec.name} has no case {quote_text(name)}", hint)
    return cases[name]


def _run_scripted(
    spec: Path, message: str | None, params: Mapping[str, Any] | None, profile: str | None, world: PortOptions
) -> AgentRun:
    _, file = compile_or_raise(spec, profile)
    journals = MemoryJournals()
    world.setdefault("clock", StepClock())
    world.setdefault("project", spec.parent)
    ending = run_agent(file, message, params=params, journals=journals, **world)
    first, *others = journals.runs
    journal, children = journals.records(first), {each: journals.records(each) for each in others}
    redaction = RunRedaction(file.agent.replay.redact)
    finished = FinishedRun(ending=ending, journal=journal, children=children, redaction=redaction)
    return AgentRun(spec.stem, CaseRuns((finished,)))


def _request_error(message: str, hint: str) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "test"})


def _add_notes(error: AgentrunError) -> AgentrunError:
    """Add the explanation and the hint of an error as notes, which pytest shows."""
    lines = [str(line) for line in error.fields.get("explanation", ())]
    hint = error.hint
    if error.fields.get("what") == "executor":
        hint = f"pass a stub for every tool of the agent: tools={{{error.fields['name']!r}: stub(…)}}"
    for line in [*lines, *([f"→ {hint}"] if hint else [])]:
        error.add_note("\n".join(safe_lines(line)))
    return error
