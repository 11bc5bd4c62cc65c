"""Compile agents once, and replay cases: one run, or the runs of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.file import cassette_exists, load_cassette
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.match_tiers import DEFAULT_TIER, MatchTier
from agentrun.cassette.miss_context import MissContext, changed_sections, make_miss_context
from agentrun.cassette.player import FaultInjectionPlayer, Player
from agentrun.cassette.redaction import RunRedaction
from agentrun.cassette.selection import Owner, ReplayResult
from agentrun.compiler.cases import cases_path, cassette_owner
from agentrun.compiler.compile import compile_or_raise
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.spec_reader import Spec
from agentrun.engine.approvals import PresetApprover
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, replay_run
from agentrun.errors import AgentrunError, CassetteError
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case, CaseTurn
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.verdict import OWN_CASSETTE_HINT

NO_CASSETTE = "there is no cassette"


class CompiledAgent(Struct, frozen=True):
    spec: Spec
    file: PackageFile

    def cassette_path(self, located: LocatedCase) -> Path:
        return self.spec.project.cassette_directory / self.file.agent.name / f"{located.case.cassette_name}.yaml"

    def load_cassette(self, located: LocatedCase) -> Cassette:
        """Read the cassette of a case. Raises `cassette.miss`, `cassette.damaged`."""
        return load_cassette(self.cassette_path(located), self.spec.project.cassette_limit)


class CompiledAgents:
    """Compiles each spec once with each profile."""

    def __init__(self) -> None:
        self._results: dict[tuple[Path, str | None], CompiledAgent | AgentrunError] = {}

    def for_case(self, located: LocatedCase) -> CompiledAgent:
        """The agent of a case. Raises the same SpecError for each of its cases."""
        return self.for_spec(located.spec, located.profile)

    def for_spec(self, spec: Path, profile: str | None) -> CompiledAgent:
        """An agent with a profile. Raises SpecError, `input.rejected`."""
        key = (spec, profile)
        if key not in self._results:
            try:
                self._results[key] = CompiledAgent(*compile_or_raise(spec, profile))
            except AgentrunError as error:
                self._results[key] = error
        result = self._results[key]
        if isinstance(result, AgentrunError):
            raise result
        return result


class NewCassette(Struct, frozen=True, kw_only=True):
    """A new cassette that waits for the verdict on its case."""

    project: Project
    path: Path
    """The cassette that it replaces."""
    summary: str
    say: Callable[[str], None]


class CaseRuns(Struct, frozen=True):
    """The runs of a case, up to the first failure."""

    runs: tuple[FinishedRun, ...]
    start_error: AgentrunError | None = None
    """Why the next run did not start."""
    untriggered_faults: tuple[str, ...] = ()
    has_diverged: bool = False
    """Whether a recorded reply was played to another request after a fault."""
    is_live: bool = False
    metadata: dict[str, Any] = {}
    """Of the cassette that was replayed. Anyone may have edited it."""
    recording_error: AgentrunError | None = None
    new_cassette: NewCassette | None = None

    @property
    def any_error(self) -> AgentrunError | None:
        """Why a run did not start, or the error of a cassette although the run completed."""
        return self.start_error or (self.runs[-1].error if self.runs else None)

    @property
    def outcome_code(self) -> str:
        """`completed`, `suspended`, or the code that the last run stopped with."""
        if self.start_error is not None:
            return self.start_error.code
        ending = self.runs[-1].ending
        return ending.code or ("completed" if ending.ok else "suspended")


def ending_miss(run: FinishedRun) -> CassetteError | None:
    fault = run.ending.fault
    if fault is None or not fault.code.startswith("cassette."):
        return None
    return CassetteError(fault.code, fault.message, hint=fault.hint, fields=fault.fields)


def is_rest_of_shared_cassette(located: LocatedCase, problem: AgentrunError) -> bool:
    """Whether the only problem is that a case does not play all of another case's cassette."""
    return problem.code == "cassette.unused" and located.case.cassette_name != located.case.name


def is_rest_after_fault(case_runs: CaseRuns, problem: AgentrunError) -> bool:
    """Whether the only problem is that after a fault the rest of the cassette was not played."""
    return problem.code == "cassette.unused" and case_runs.has_diverged


def case_messages(case: Case) -> Iterator[str | None]:
    """The message of each run. None: the agent's own input."""
    if case.turns is UNSET:
        yield None if case.input is UNSET else case.input
        return
    for turn in case.turns:
        yield turn.input if isinstance(turn, CaseTurn) else turn


def case_requests(case: Case, agent: CompiledAgent) -> Iterator[Request]:
    for message in case_messages(case):
        yield Request(agent=agent.file.agent.name, package=agent.file, message=message, params=case.params)


def replay_case(
    located: LocatedCase,
    agent: CompiledAgent,
    player: Player | None = None,
    injection: FaultInjection | None = None,
    require: MatchTier = DEFAULT_TIER,
) -> CaseRuns:
    """Replay a case. A conversation ends with the first run that fails. `injection`: by default that of the case.
    `require`: the least exact tier that is accepted."""
    case = located.case
    runs: list[FinishedRun] = []
    try:
        player = player or make_case_player(located, agent, require=require)
        injection = injection or FaultInjection(case, player)
        for request in case_requests(case, agent):
            finished = replay_run(
                request,
                player,
                approver=PresetApprover(case.approvals, f"case {case.name}") if case.approvals else None,
                after=runs,
                start=injection.start,
                step=injection.step,
                wrappers=injection.wrappers,
            )
            runs.append(finished)
            if finished.ending.exit_code:
                break
    except AgentrunError as error:
        return CaseRuns(tuple(runs), error, metadata={} if player is None else player.cassette.metadata)
    return CaseRuns(
        tuple(runs),
        metadata=player.cassette.metadata,
        untriggered_faults=injection.untriggered_faults(),
        has_diverged=isinstance(player, FaultInjectionPlayer) and player.has_diverged,
    )


def make_case_player(
    located: LocatedCase,
    agent: CompiledAgent,
    cassette: Cassette | None = None,
    require: MatchTier = DEFAULT_TIER,
    *,
    whole: bool = False,
) -> Player:
    """A player for the cassette of a case, or for another one. `whole`: after a miss, `--record all` is needed. Raises
    `cassette.miss`, `cassette.damaged`."""
    rules = agent.file.agent.replay
    loaded = _load_cassette(located, agent) if cassette is None else cassette
    kind = FaultInjectionPlayer if located.case.faults and require != "exact" else Player
    redaction = RunRedaction(rules.redact)
    context = partial(_case_miss_context, located, agent, loaded, whole=whole)
    return kind(loaded, volatile=rules.volatile, redaction=redaction, require=require, context=context)


def _case_miss_context(located: LocatedCase, agent: CompiledAgent, cassette: Cassette, *, whole: bool) -> MissContext:
    """The context of a case whose cassette does not match. If the cassette belongs to another case and the spec did not
    change, recording it again would not help, because the difference comes from this case."""
    case = located.case
    message, accept = next(case_messages(case)), case_command(located, agent)
    context = make_miss_context(agent.spec, agent.file, message=message, params=case.params, accept=accept, whole=whole)
    if changed_sections(cassette.metadata, context) != [] or cassette_owner(case, located.file) == case.name:
        return context
    command = f"agentrun test {quote(f'{display_path(located.file, agent.spec.project.root)}::{case.name}')}"
    advice = f"{OWN_CASSETTE_HINT}: {case.cassette_name}` from the case, then {command}"
    return replace(context, record_command=advice, needs_full_recording=False)


def _load_cassette(located: LocatedCase, agent: CompiledAgent) -> Cassette:
    path = agent.cassette_path(located)
    if cassette_exists(path):
        return agent.load_cassette(located)
    file = display_path(path, agent.spec.project.root)
    hint = f"record it: {case_command(located, agent)} --record new"
    raise CassetteError("cassette.miss", f"{NO_CASSETTE} {file}", hint=hint, fields={"file": file})


def case_command(located: LocatedCase, agent: CompiledAgent) -> str:
    """The command that runs the case that owns the cassette, and with `--record` records it."""
    root, name = agent.spec.project.root, cassette_owner(located.case, located.file)
    if located.case.turns is UNSET:
        return f"agentrun {quote(display_path(located.spec, root))} --case {quote(name)}"
    return f"agentrun test {quote(f'{display_path(located.file, root)}::{name}')}"


class SuiteReplays:
    """The `CaseReplays` of `agentrun cassette`: replays cases in memory and offline."""

    def __init__(self) -> None:
        self._agents = CompiledAgents()

    def package(self, owner: Owner) -> PackageFile:
        return self._agents.for_spec(owner.spec, owner.profile).file

    def replay(self, owner: Owner, cassette: Cassette) -> ReplayResult:
        try:
            agent = self._agents.for_spec(owner.spec, owner.profile)
            located = LocatedCase(file=cases_path(owner.spec), spec=owner.spec, case=owner.case, line=1)
            player = make_case_player(located, agent, cassette)
        except AgentrunError as error:
            return ReplayResult("not_started", f"{error.code}: {error.message}")
        case_runs = replay_case(located, agent, player)
        if case_runs.start_error is not None:
            return ReplayResult("not_started", f"{case_runs.start_error.code}: {case_runs.start_error.message}")
        outcome = case_runs.runs[-1].ending
        unused = player.unused()
        if not outcome.is_finished:
            return ReplayResult("suspended", "it waits for an answer that is not on the cassette", unused=unused)
        if outcome.fault is None:
            return ReplayResult(unused=unused, answer=outcome.answer)
        return ReplayResult(outcome.fault.code, outcome.fault.message, outcome.fault.fields, unused)


CaseRunner: TypeAlias = Callable[[LocatedCase, CompiledAgent], CaseRuns]
