"""A case, replayed: one run, or the runs of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.cassette.cause import changed_sections
from agentrun.cassette.file import cassette_exists
from agentrun.cassette.here import Here
from agentrun.cassette.loose import FaultedPlayer
from agentrun.cassette.match import Tier
from agentrun.cassette.player import Player
from agentrun.cassette.redaction import Redaction
from agentrun.cassette.tape import Cassette
from agentrun.compiler.cases import maker_of
from agentrun.engine.approvals import Given
from agentrun.engine.here import here_of
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, replay_run
from agentrun.errors import AgentrunError, CassetteError
from agentrun.spec.files import shown_path
from agentrun.spec.project import Project
from agentrun.spec.v1.cases import Case, Turn
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.overlay.laid_over import LaidOver
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.verdict import OWN


class NewCassette(Struct, frozen=True, kw_only=True):
    """A new recording that waits for the verdict on its case."""

    project: Project
    path: Path
    """The cassette whose place it takes."""
    summary: str
    """What was recorded, in a line."""
    say: Callable[[str], None]


class Played(Struct, frozen=True):
    """The runs of a case, as far as they came."""

    runs: tuple[FinishedRun, ...]
    error: AgentrunError | None = None
    """Why the next run did not start."""
    unmet: tuple[str, ...] = ()
    """The places of faults that never happened."""
    strayed: bool = False
    """Whether recorded replies were played to other requests, after a fault."""
    is_live: bool = False
    """Whether the tools or the model ran for real."""
    unrecorded: AgentrunError | None = None
    """Why it was not recorded, although it was to be."""
    new_cassette: NewCassette | None = None
    """Its new recording, if it was recorded."""

    @property
    def problem(self) -> AgentrunError | None:
        """Why a run did not start, or what is wrong with a recording although the run is well."""
        return self.error or (self.runs[-1].complaint if self.runs else None)


def is_left_to_another(found: Found, problem: AgentrunError) -> bool:
    """Whether all that is wrong is that a case does not play the whole recording of another one."""
    return problem.code == "cassette.unused" and found.case.recording != found.case.name


def is_consequence(played: Played, problem: AgentrunError) -> bool:
    """Whether all that is wrong is what follows from a fault: the rest of the recording is not asked for."""
    return problem.code == "cassette.unused" and played.strayed


def messages(case: Case) -> Iterator[str | None]:
    """What the agent is told, run by run. None: its own input."""
    if case.turns is UNSET:
        yield None if case.input is UNSET else case.input
        return
    for turn in case.turns:
        yield turn.input if isinstance(turn, Turn) else turn


def play(found: Found, prepared: Prepared, player: Player | None = None, laid: LaidOver | None = None) -> Played:
    """Replay a case. A conversation ends with the first run that fails. `laid`: what is laid over the recording, if it
    is more than the case says."""
    case, package = found.case, prepared.file.agent
    runs: list[FinishedRun] = []
    try:
        player = player or player_of(found, prepared)
        laid = laid or LaidOver(case, player)
        for message in messages(case):
            done = replay_run(
                Request(agent=package.name, package=prepared.file, message=message, params=case.params),
                player,
                approver=Given(case.approvals, f"case {case.name}") if case.approvals else None,
                after=runs,
                start=laid.start,
                step=laid.step,
                wrappers=laid.wrappers,
            )
            runs.append(done)
            if done.ended.exit_code:
                break
    except AgentrunError as error:
        return Played(tuple(runs), error)
    return Played(tuple(runs), unmet=laid.unmet(), strayed=isinstance(player, FaultedPlayer) and player.has_strayed)


def player_of(
    found: Found,
    prepared: Prepared,
    tape: Cassette | None = None,
    require: Tier = "normalised",
    *,
    whole: bool = False,
) -> Player:
    """Plays the recording of a case, or another. `whole`: after a miss only a whole new recording helps. Raises
    `cassette.miss`, `cassette.damaged`."""
    rules = prepared.file.agent.replay
    played = _tape(found, prepared) if tape is None else tape
    kind = FaultedPlayer if found.case.faults and require == "normalised" else Player
    return kind(
        played,
        volatile=rules.volatile,
        redaction=Redaction(rules.redact),
        require=require,
        here=lambda: _here(found, prepared, played, whole=whole),
    )


def _here(found: Found, prepared: Prepared, tape: Cassette, *, whole: bool) -> Here:
    """What is known of a case that its recording does not fit. Where the recording is another's and the spec is the
    recorded one, making it again changes nothing: what the case does differently is its own."""
    case = found.case
    here = here_of(
        prepared.spec,
        prepared.file,
        message=next(messages(case)),
        params=case.params,
        accept=command_of(found, prepared),
        whole=whole,
    )
    if changed_sections(tape.metadata, here) != [] or maker_of(case, found.file) == case.name:
        return here
    command = f"agentrun test {quote(f'{shown_path(found.file, prepared.spec.project.root)}::{case.name}')}"
    return replace(here, accept=f"{OWN}: {case.recording}` from the case, then {command}", whole=False)


def _tape(found: Found, prepared: Prepared) -> Cassette:
    path = prepared.cassette(found)
    if cassette_exists(path):
        return prepared.load_cassette(found)
    root = prepared.spec.project.root
    raise CassetteError(
        "cassette.miss",
        f"there is no cassette {shown_path(path, root)}",
        hint=f"record it: {command_of(found, prepared)} --record new",
        fields={"file": shown_path(path, root)},
    )


def command_of(found: Found, prepared: Prepared) -> str:
    """The command that runs the case whose recording it plays, and with `--record` records it."""
    root, name = prepared.spec.project.root, maker_of(found.case, found.file)
    if found.case.turns is UNSET:
        return f"agentrun {quote(shown_path(found.spec, root))} --case {quote(name)}"
    return f"agentrun test {quote(f'{shown_path(found.file, root)}::{name}')}"
