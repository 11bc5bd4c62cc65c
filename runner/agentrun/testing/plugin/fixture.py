"""Runs of agents for Python tests: the fixture `agentrun`.

Rule 1  A recording that does not fit is no behaviour of the agent: it is raised, not given as an outcome.
Rule 2  What is wrong is raised without a traceback through us.
Rule 3  A path is looked for in the root of the project, then beside the test: where pytest was started does not matter.
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
from agentrun.engine.api import RunOptions, refuse_unknown_keywords
from agentrun.engine.api import run as run_agent
from agentrun.engine.clock import StepClock
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.run import FinishedRun
from agentrun.errors import AgentrunError, RequestError
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.testing.plugin.run_modes import replay_runner_for
from agentrun.testing.suite.discovery import LocatedCase, read_located_cases
from agentrun.testing.suite.evaluation import find_miss
from agentrun.testing.suite.evidence import ObservedApproval, ObservedCall, ObservedRuling, collect_evidence
from agentrun.testing.suite.failure_text import safe_lines
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent
from agentrun.testing.suite.snapshots import snapshot_text

if TYPE_CHECKING:
    import pytest

DEFAULT_CASE = "default"
"""The case that is run when none is named."""


class RunSpend(Struct, frozen=True):
    tokens: int
    cost: int
    """Micro-dollars."""
    turns: int
    time: int
    """Milliseconds by the clock of the run."""


class AgentRun:
    """A run that is over or waits, or the runs of a conversation. `run == journal_snapshot` compares its journal."""

    def __init__(self, name: str, played: CaseRuns) -> None:
        seen = collect_evidence(played)
        self._name = name
        self.output: str | None = seen.output
        """The answer. None: there is none."""
        self.outcome: str = seen.outcome
        """`completed`, `suspended`, or the code that it stopped with."""
        self.calls: tuple[ObservedCall, ...] = seen.calls
        """What the model asked for: `tool`, `args`, `status` (`ok` or a code), `result`, `turn`."""
        self.rulings: tuple[ObservedRuling, ...] = seen.rulings
        self.approvals: tuple[ObservedApproval, ...] = seen.approvals
        self.spend = RunSpend(seen.tokens, seen.cost, seen.turns, seen.time)
        self.journal: tuple[Record, ...] = tuple(record for run in played.runs for record in run.journal)
        self._runs = played.runs

    @property
    def canonical(self) -> str:
        """The journal as people compare it."""
        return snapshot_text(self._runs)

    def __repr__(self) -> str:
        return f"<run of {self._name}: {self.outcome}>"


class AgentRunner:
    """Runs agents: `agentrun("specs/support.yaml", case="default")`."""

    def __init__(self, config: pytest.Config, beside: Path) -> None:
        self._config = config
        self._beside = beside

    def __call__(
        self,
        spec: str | Path,
        *,
        case: str | None = None,
        message: str | None = None,
        params: Mapping[str, Any] | None = None,
        profile: str | None = None,
        **world: Unpack[RunOptions],
    ) -> AgentRun:
        """A case from its recording; with a `model`, any message.

        Without a clock of one's own no time passes, and every tool that runs is one of `tools`.
        """
        __tracebackhide__ = True
        try:
            _check_types((str, Path), spec=spec)
            _check_types((str, type(None)), case=case, message=message, profile=profile)
            _check_types((Mapping, type(None)), params=params)
            refuse_unknown_keywords(world, RunOptions.__annotations__)
        except TypeError as error:
            raise error.with_traceback(None) from None
        path = self._spec_path(spec)
        try:
            if not path.is_file():
                where = "it is looked for in pytest's rootdir, then beside the test"
                raise _request_error(f"there is no file {quote_text(str(spec))}", where)
            if "model" in world:
                if case is not None:
                    raise _request_error("a case is replayed: it has its own model", "leave out `case`, or `model`")
                return _run_scripted(path, message, params, profile, world)
            if world or message is not None or params is not None or profile is not None:
                raise _request_error(
                    "what is not a case has no recording",
                    "name a case, or say who plays the model: model=scripted(…)",
                )
            return self._replay_case(path, DEFAULT_CASE if case is None else case)
        except AgentrunError as error:
            raise _add_notes(error).with_traceback(None) from None

    def _spec_path(self, spec: str | Path) -> Path:
        root = self._config.rootpath / spec
        return root if root.exists() else self._beside / spec

    def _replay_case(self, spec: Path, name: str) -> AgentRun:
        found = _find_case(spec, name)
        prepared = CompiledAgent(*compile_or_raise(spec, found.case.profile or None))
        played = replay_runner_for(self._config)(found, prepared)
        if (wrong := find_miss(played) or played.start_error) is not None:
            raise wrong
        return AgentRun(f"{spec.stem}, case {name}", played)


def _check_types(kinds: tuple[type, ...], **given: Any) -> None:
    """Raises TypeError, as Python does, for a value of another kind."""
    for name, value in given.items():
        if not isinstance(value, kinds):
            wanted = "a text" if kinds[0] is str else "a mapping"
            raise TypeError(f"{name} is {wanted}, not a value of {type(value).__name__}")


def _find_case(spec: Path, name: str) -> LocatedCase:
    if not cases_path(spec).is_file():
        hint = "write one, or say who plays the model: model=scripted(…)"
        raise _request_error(f"{spec.name} has no cases: there is no {cases_path(spec).name} beside it", hint)
    cases = {found.case.name: found for found in read_located_cases(cases_path(spec))}
    if name not in cases:
        known = did_you_mean(name, cases) or f"there are: {', '.join(cases)}"
        raise _request_error(f"{spec.name} has no case {quote_text(name)}", known)
    return cases[name]


def _run_scripted(
    spec: Path, message: str | None, params: Mapping[str, Any] | None, profile: str | None, world: RunOptions
) -> AgentRun:
    _, file = compile_or_raise(spec, profile)
    journals = MemoryJournals()
    world.setdefault("clock", StepClock())
    world.setdefault("project", spec.parent)
    ended = run_agent(file, message, params=params, journals=journals, **world)
    first, *others = journals.runs
    done = FinishedRun(
        ending=ended,
        journal=journals.records(first),
        children={each: journals.records(each) for each in others},
        redaction=RunRedaction(file.agent.replay.redact),
    )
    return AgentRun(spec.stem, CaseRuns((done,)))


def _request_error(message: str, hint: str) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "test"})


def _add_notes(error: AgentrunError) -> AgentrunError:
    """The error with what it knows more than its message, as pytest shows it."""
    lines = [str(line) for line in error.fields.get("story", ())]
    hint = error.hint
    if error.fields.get("what") == "executor":
        hint = f"every tool of the agent needs a stand-in: tools={{{error.fields['name']!r}: stub(…)}}"
    for line in [*lines, *([f"→ {hint}"] if hint else [])]:
        error.add_note("\n".join(safe_lines(line)))
    return error
