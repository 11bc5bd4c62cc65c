"""Run one request to its end: request → world → begin → drive.

run_in_world    in any world: live, recorded, or with the model or the tools from a cassette
replay_run      everything from a cassette: no network, no real time, the same bytes every time
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.cassette.match_tiers import MatchTier
from agentrun.cassette.player import Player, unused_error
from agentrun.cassette.redaction import RunRedaction
from agentrun.compiler.package_file import PackageFile
from agentrun.core.facts import ChildStarted, Record, RunStarted
from agentrun.core.outcome import Ending, Outcome
from agentrun.core.package_validation import validate_package
from agentrun.engine.begin import AdmittedRequest, admit, admit_request, begin, jitter_seed, refuse_missing_ports
from agentrun.engine.clock import StepClock
from agentrun.engine.driver import drive_with_children
from agentrun.engine.memory import Journals
from agentrun.engine.ports import Approver
from agentrun.engine.request import Attachment, Request
from agentrun.engine.sessions import restore_session
from agentrun.engine.world import Listener, World, Wrapper
from agentrun.engine.worlds.replay import replay_world
from agentrun.errors import AgentrunError, CassetteError
from agentrun.journal.canonical import canonical


class FinishedRun(Struct, frozen=True):
    """A run that is no longer active, with its journals."""

    ending: Ending
    journal: tuple[Record, ...]
    children: dict[str, tuple[Record, ...]]
    """The journals of sub-agents, by run id."""
    redaction: RunRedaction
    tier: MatchTier | None = None
    """The least exact match of a request with the cassette. Null: nothing was replayed."""
    unused_error: CassetteError | None = None
    """Interactions of the cassette were not requested. If the run failed, that is a consequence of the failure."""
    save_error: AgentrunError | None = None
    """Why the cassette could not be saved."""

    @property
    def error(self) -> AgentrunError | None:
        """The error of a run that itself succeeded."""
        return None if self.ending.exit_code else self.save_error or self.unused_error

    @property
    def outcome(self) -> Outcome:
        assert isinstance(self.ending, Outcome), "the run is not finished"
        return self.ending

    @property
    def exit_code(self) -> int:
        return self.ending.exit_code or (self.error.exit_code if self.error else 0)

    def canonical(self) -> str:
        """The canonical form of the journal, redacted."""
        return canonical(self.journal, self.children, self.redaction.text if self.redaction.is_active else None)


async def run_in_world(world: World, request: Request, before: Sequence[Sequence[Record]] = ()) -> FinishedRun:
    """Run a request in its world. `before`: the journals of earlier runs of the same session or conversation.

    Raises `host.missing`, `provider.not_found`, `input.rejected` and `policy.*` before the run exists. Later failures
    are in the outcome.
    """
    package = _package_file(request)
    refuse_missing_ports(world, package.agent)
    journals = {journal_run_id(records): records for records in before}
    earlier, admitted = admit_request(
        package.agent, request, world.run, restore_session(request.session, journals), journals.__getitem__
    )
    log = begin(world, package.agent, request, admitted, earlier=earlier)
    return FinishedRun(
        ending=await drive_with_children(world, package.agent, log),
        journal=tuple(world.journals.records(world.run)),
        children=dict(_child_journals(world.journals, world.run)),
        redaction=RunRedaction(package.agent.replay.redact, world.redactor),
    )


def replay_run(
    request: Request,
    player: Player,
    *,
    approver: Approver | None = None,
    listen: Listener = lambda run, news: None,
    after: Sequence[FinishedRun] = (),
    start: int | None = None,
    step: int | None = None,
    wrappers: tuple[Wrapper, ...] = (),
) -> FinishedRun:
    """Replay a request from a cassette.

    `approver`: gives answers that replace the recorded ones. `after`: earlier runs of the same conversation, with the
    same player. `start`: the start of the clock in milliseconds since 1970; None: when the cassette was recorded.
    `step`: the duration of each exchange in milliseconds; None: as recorded. `wrappers`: wrap the cassette, for example
    to inject faults.

    Raises the errors of `run_in_world`, and `package.invalid`, before the run exists.
    """
    package = _package_file(request).agent
    validate_package(package)
    admitted = admit(package, request.message, request.params)
    clock = StepClock(player.cassette.recorded_at if start is None else start)
    clock.move_to(after[-1].journal[-1].at if after else clock.start)
    request = replace(
        request, run=_replay_run_id(request, admitted, player, after), seed=jitter_seed(package, admitted)
    )
    world = replay_world(
        package, request.run or "", player, clock, step=step, approver=approver, wrappers=wrappers, listen=listen
    )
    done = clock.run(run_in_world(world, request, [each.journal for each in after]))
    unused = player.unused()
    return replace(
        done,
        redaction=player.redaction,
        tier=player.tier,
        unused_error=unused_error(unused, player.cassette.interactions) if unused else None,
    )


def _replay_run_id(request: Request, admitted: AdmittedRequest, player: Player, after: Sequence[FinishedRun]) -> str:
    """The run id: the same for the same package, input, cassette and earlier runs."""
    blobs = [(each.part if isinstance(each, Attachment) else each).blob for each in request.attachments]
    names = [*blobs, *(journal_run_id(each.journal) for each in after)]
    package, cassette = _package_file(request).fingerprint, player.cassette.hash
    return "replay-" + text_hash(sorted_json([package, admitted.params, admitted.message, cassette, *names]))[7:31]


def _package_file(request: Request) -> PackageFile:
    assert isinstance(request.package, PackageFile), "only a Runtime accepts a fingerprint as package"
    return request.package


def _child_journals(journals: Journals, run: str) -> Iterator[tuple[str, tuple[Record, ...]]]:
    """The journals of all sub-agents of a run, in the order of their start."""
    started = (record.fact.run for record in journals.records(run) if isinstance(record.fact, ChildStarted))
    for child in dict.fromkeys(started):
        if child in journals:
            yield child, tuple(journals.records(child))
            yield from _child_journals(journals, child)


def journal_run_id(journal: Sequence[Record]) -> str:
    started = journal[0].fact
    assert isinstance(started, RunStarted), "a journal begins with run_started"
    return started.run
