"""Agents, compiled once however many cases they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.file import cassette_exists, load_cassette
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.match import MatchTier
from agentrun.cassette.miss_context import MissContext, changed_sections
from agentrun.cassette.player import FaultInjectionPlayer, Player
from agentrun.cassette.redaction import RunRedaction
from agentrun.cassette.selection import Owner, ReplayResult
from agentrun.compiler.cases import cases_path, cassette_owner
from agentrun.compiler.compile import compile_or_raise
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.spec_reader import Spec
from agentrun.core.outcome import Outcome
from agentrun.engine.approvals import PresetApprover
from agentrun.engine.miss_context import make_miss_context
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, replay_run
from agentrun.errors import AgentrunError, CassetteError
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.cases import Case, CaseTurn
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.fault_injection import FaultInjection
from agentrun.testing.suite.verdict import OWN_CASSETTE_HINT


class CompiledAgent(Struct, frozen=True):
    """An agent under a profile."""

    spec: Spec
    file: PackageFile

    def cassette_path(self, found: LocatedCase) -> Path:
        """Where the recording of a case is, or would be."""
        return self.spec.project.cassette_directory / self.file.agent.name / f"{found.case.cassette_name}.yaml"

    def load_cassette(self, found: LocatedCase) -> Cassette:
        """Read the recording of a case. Raises `cassette.miss`, `cassette.damaged`."""
        return load_cassette(self.cassette_path(found), self.spec.project.cassette_limit)


class CompiledAgents:
    """Compiles each spec once with each profile."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str | None], CompiledAgent | AgentrunError] = {}

    def for_case(self, found: LocatedCase) -> CompiledAgent:
        """The agent of a case. Raises SpecError, for each of its cases the same."""
        return self.for_spec(found.spec, None if found.case.profile is UNSET else found.case.profile)

    def for_spec(self, spec: Path, profile: str | None) -> CompiledAgent:
        """An agent under a profile. Raises SpecError, `input.rejected`."""
        key = (spec, profile)
        if key not in self._known:
            try:
                self._known[key] = CompiledAgent(*compile_or_raise(spec, profile))
            except AgentrunError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, AgentrunError):
            raise known
        return known


# --- a case, replayed: one run, or the runs of a conversation -------------------------------------------------


class NewCassette(Struct, frozen=True, kw_only=True):
    """A new recording that waits for the verdict on its case."""

    project: Project
    path: Path
    """The cassette whose place it takes."""
    summary: str
    """What was recorded, in a line."""
    say: Callable[[str], None]


class CaseRuns(Struct, frozen=True):
    """The runs of a case, as far as they came."""

    runs: tuple[FinishedRun, ...]
    start_error: AgentrunError | None = None
    """Why the next run did not start."""
    untriggered_faults: tuple[str, ...] = ()
    """The places of faults that never happened."""
    has_diverged: bool = False
    """Whether recorded replies were played to other requests, after a fault."""
    is_live: bool = False
    """Whether the tools or the model ran for real."""
    recording_error: AgentrunError | None = None
    """Why it was not recorded, although it was to be."""
    new_cassette: NewCassette | None = None
    """Its new recording, if it was recorded."""

    @property
    def any_error(self) -> AgentrunError | None:
        """Why a run did not start, or what is wrong with a recording although the run is well."""
        return self.start_error or (self.runs[-1].error if self.runs else None)


def is_rest_of_shared_cassette(found: LocatedCase, problem: AgentrunError) -> bool:
    """Whether all that is wrong is that a case does not play the whole recording of another one."""
    return problem.code == "cassette.unused" and found.case.cassette_name != found.case.name


def is_rest_after_fault(played: CaseRuns, problem: AgentrunError) -> bool:
    """Whether all that is wrong is what follows from a fault: the rest of the recording is not asked for."""
    return problem.code == "cassette.unused" and played.has_diverged


def case_messages(case: Case) -> Iterator[str | None]:
    """What the agent is told, run by run. None: its own input."""
    if case.turns is UNSET:
        yield None if case.input is UNSET else case.input
        return
    for turn in case.turns:
        yield turn.input if isinstance(turn, CaseTurn) else turn


def replay_case(
    found: LocatedCase, prepared: CompiledAgent, player: Player | None = None, laid: FaultInjection | None = None
) -> CaseRuns:
    """Replay a case. A conversation ends with the first run that fails. `laid`: what is laid over the recording, if it
    is more than the case says."""
    case, package = found.case, prepared.file.agent
    runs: list[FinishedRun] = []
    try:
        player = player or make_case_player(found, prepared)
        laid = laid or FaultInjection(case, player)
        for message in case_messages(case):
            done = replay_run(
                Request(agent=package.name, package=prepared.file, message=message, params=case.params),
                player,
                approver=PresetApprover(case.approvals, f"case {case.name}") if case.approvals else None,
                after=runs,
                start=laid.start,
                step=laid.step,
                wrappers=laid.wrappers,
            )
            runs.append(done)
            if done.ending.exit_code:
                break
    except AgentrunError as error:
        return CaseRuns(tuple(runs), error)
    return CaseRuns(
        tuple(runs),
        untriggered_faults=laid.untriggered_faults(),
        has_diverged=isinstance(player, FaultInjectionPlayer) and player.has_diverged,
    )


def make_case_player(
    found: LocatedCase,
    prepared: CompiledAgent,
    tape: Cassette | None = None,
    require: MatchTier = "normalised",
    *,
    whole: bool = False,
) -> Player:
    """Plays the recording of a case, or another. `whole`: after a miss only a whole new recording helps. Raises
    `cassette.miss`, `cassette.damaged`."""
    rules = prepared.file.agent.replay
    played = _load_cassette(found, prepared) if tape is None else tape
    kind = FaultInjectionPlayer if found.case.faults and require == "normalised" else Player
    return kind(
        played,
        volatile=rules.volatile,
        redaction=RunRedaction(rules.redact),
        require=require,
        context=lambda: _case_miss_context(found, prepared, played, whole=whole),
    )


def _case_miss_context(found: LocatedCase, prepared: CompiledAgent, tape: Cassette, *, whole: bool) -> MissContext:
    """What is known of a case that its recording does not fit. Where the recording is another's and the spec is the
    recorded one, making it again changes nothing: what the case does differently is its own."""
    case = found.case
    here = make_miss_context(
        prepared.spec,
        prepared.file,
        message=next(case_messages(case)),
        params=case.params,
        accept=case_command(found, prepared),
        whole=whole,
    )
    if changed_sections(tape.metadata, here) != [] or cassette_owner(case, found.file) == case.name:
        return here
    command = f"agentrun test {quote(f'{display_path(found.file, prepared.spec.project.root)}::{case.name}')}"
    return replace(
        here,
        record_command=f"{OWN_CASSETTE_HINT}: {case.cassette_name}` from the case, then {command}",
        needs_full_recording=False,
    )


def _load_cassette(found: LocatedCase, prepared: CompiledAgent) -> Cassette:
    path = prepared.cassette_path(found)
    if cassette_exists(path):
        return prepared.load_cassette(found)
    root = prepared.spec.project.root
    raise CassetteError(
        "cassette.miss",
        f"there is no cassette {display_path(path, root)}",
        hint=f"record it: {case_command(found, prepared)} --record new",
        fields={"file": display_path(path, root)},
    )


def case_command(found: LocatedCase, prepared: CompiledAgent) -> str:
    """The command that runs the case whose recording it plays, and with `--record` records it."""
    root, name = prepared.spec.project.root, cassette_owner(found.case, found.file)
    if found.case.turns is UNSET:
        return f"agentrun {quote(display_path(found.spec, root))} --case {quote(name)}"
    return f"agentrun test {quote(f'{display_path(found.file, root)}::{name}')}"


# --- replay cases against cassettes for `agentrun cassette`, in memory and offline ----------------------------


class SuiteReplays:
    """Compiles each spec once with each profile."""

    def __init__(self) -> None:
        self._prepared = CompiledAgents()

    def package(self, owner: Owner) -> PackageFile:
        """The compiled spec of a case under its profile. Raises `SpecError`, `input.rejected`."""
        return self._compile(owner).file

    def replay(self, owner: Owner, cassette: Cassette) -> ReplayResult:
        """Replay a case against a cassette. Never raises: errors are in the result."""
        try:
            prepared = self._compile(owner)
            found = LocatedCase(file=cases_path(owner.spec), spec=owner.spec, case=owner.case, line=1)
            player = make_case_player(found, prepared, cassette)
        except AgentrunError as error:
            return ReplayResult("not_started", f"{error.code}: {error.message}")
        played = replay_case(found, prepared, player)
        if played.start_error is not None:
            return ReplayResult("not_started", f"{played.start_error.code}: {played.start_error.message}")
        outcome = played.runs[-1].ending
        unused = player.unused()
        if not isinstance(outcome, Outcome):
            return ReplayResult("suspended", "it waits for an answer that is not on the tape", unused=unused)
        if outcome.fault is None:
            return ReplayResult(unused=unused, answer=outcome.answer)
        return ReplayResult(outcome.fault.code, outcome.fault.message, outcome.fault.fields, unused)

    def _compile(self, owner: Owner) -> CompiledAgent:
        return self._prepared.for_spec(owner.spec, owner.profile)


CaseRunner: TypeAlias = Callable[[LocatedCase, CompiledAgent], CaseRuns]
