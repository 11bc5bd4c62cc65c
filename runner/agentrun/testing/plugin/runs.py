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

from agentrun.cassette.redaction import Redaction
from agentrun.compiler.cases import cases_path
from agentrun.compiler.compile import compiled_or_raise
from agentrun.core.facts import Record
from agentrun.engine.api import World
from agentrun.engine.api import run as run_agent
from agentrun.engine.clock import StepClock
from agentrun.engine.given import refuse_unknown_words
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.run import FinishedRun
from agentrun.errors import AgentrunError, RequestError
from agentrun.spec.problems import did_you_mean, quoted
from agentrun.testing.plugin.ways import replay
from agentrun.testing.suite.evaluate import miss_of
from agentrun.testing.suite.evidence import evidence_of
from agentrun.testing.suite.found import Found, read
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.snapshots import snapshot_of
from agentrun.testing.suite.told import shown
from agentrun.testing.suite.trail import ApprovalSeen, Call, RulingSeen

if TYPE_CHECKING:
    import pytest

FIRST = "default"
"""The case that is run when none is named."""


class Spend(Struct, frozen=True):
    tokens: int
    cost: int
    """Micro-dollars."""
    turns: int
    time: int
    """Milliseconds by the clock of the run."""


class Run:
    """A run that is over or waits, or the runs of a conversation. `run == journal_snapshot` compares its journal."""

    def __init__(self, name: str, played: Played) -> None:
        seen = evidence_of(played)
        self._name = name
        self.output: str | None = seen.output
        """The answer. None: there is none."""
        self.outcome: str = seen.outcome
        """`completed`, `suspended`, or the code that it stopped with."""
        self.calls: tuple[Call, ...] = seen.calls
        """What the model asked for: `tool`, `args`, `status` (`ok` or a code), `result`, `turn`."""
        self.rulings: tuple[RulingSeen, ...] = seen.rulings
        self.approvals: tuple[ApprovalSeen, ...] = seen.approvals
        self.spend = Spend(seen.tokens, seen.cost, seen.turns, seen.time)
        self.journal: tuple[Record, ...] = tuple(record for run in played.runs for record in run.journal)
        self._runs = played.runs

    @property
    def canonical(self) -> str:
        """The journal as people compare it."""
        return snapshot_of(self._runs)

    def __repr__(self) -> str:
        return f"<run of {self._name}: {self.outcome}>"


class Agents:
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
        **world: Unpack[World],
    ) -> Run:
        """A case from its recording; with a `model`, any message.

        Without a clock of one's own no time passes, and every tool that runs is one of `tools`.
        """
        __tracebackhide__ = True
        try:
            _refuse_kinds((str, Path), spec=spec)
            _refuse_kinds((str, type(None)), case=case, message=message, profile=profile)
            _refuse_kinds((Mapping, type(None)), params=params)
            refuse_unknown_words(world, World.__annotations__)
        except TypeError as error:
            raise error.with_traceback(None) from None
        path = self._path(spec)
        try:
            if not path.is_file():
                where = "it is looked for in pytest's rootdir, then beside the test"
                raise _refused(f"there is no file {quoted(str(spec))}", where)
            if "model" in world:
                if case is not None:
                    raise _refused("a case is replayed: it has its own model", "leave out `case`, or `model`")
                return _scripted(path, message, params, profile, world)
            if world or message is not None or params is not None or profile is not None:
                raise _refused(
                    "what is not a case has no recording",
                    "name a case, or say who plays the model: model=scripted(…)",
                )
            return self._replayed(path, FIRST if case is None else case)
        except AgentrunError as error:
            raise _noted(error).with_traceback(None) from None

    def _path(self, spec: str | Path) -> Path:
        root = self._config.rootpath / spec
        return root if root.exists() else self._beside / spec

    def _replayed(self, spec: Path, name: str) -> Run:
        found = _case(spec, name)
        prepared = Prepared(*compiled_or_raise(spec, found.case.profile or None))
        played = replay(self._config)(found, prepared)
        if (wrong := miss_of(played) or played.error) is not None:
            raise wrong
        return Run(f"{spec.stem}, case {name}", played)


def _refuse_kinds(kinds: tuple[type, ...], **given: Any) -> None:
    """Raises TypeError, as Python does, for a value of another kind."""
    for name, value in given.items():
        if not isinstance(value, kinds):
            wanted = "a text" if kinds[0] is str else "a mapping"
            raise TypeError(f"{name} is {wanted}, not a value of {type(value).__name__}")


def _case(spec: Path, name: str) -> Found:
    if not cases_path(spec).is_file():
        hint = "write one, or say who plays the model: model=scripted(…)"
        raise _refused(f"{spec.name} has no cases: there is no {cases_path(spec).name} beside it", hint)
    cases = {found.case.name: found for found in read(cases_path(spec))}
    if name not in cases:
        known = did_you_mean(name, cases) or f"there are: {', '.join(cases)}"
        raise _refused(f"{spec.name} has no case {quoted(name)}", known)
    return cases[name]


def _scripted(
    spec: Path, message: str | None, params: Mapping[str, Any] | None, profile: str | None, world: World
) -> Run:
    _, file = compiled_or_raise(spec, profile)
    journals = MemoryJournals()
    world.setdefault("clock", StepClock())
    world.setdefault("project", spec.parent)
    ended = run_agent(file, message, params=params, journals=journals, **world)
    first, *others = journals.runs
    done = FinishedRun(
        ended=ended,
        journal=journals.records(first),
        children={each: journals.records(each) for each in others},
        redaction=Redaction(file.agent.replay.redact),
    )
    return Run(spec.stem, Played((done,)))


def _refused(message: str, hint: str) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "test"})


def _noted(error: AgentrunError) -> AgentrunError:
    """The error with what it knows more than its message, as pytest shows it."""
    lines = [str(line) for line in error.fields.get("story", ())]
    hint = error.hint
    if error.fields.get("what") == "executor":
        hint = f"every tool of the agent needs a stand-in: tools={{{error.fields['name']!r}: stub(…)}}"
    for line in [*lines, *([f"→ {hint}"] if hint else [])]:
        error.add_note("\n".join(shown(line)))
    return error
