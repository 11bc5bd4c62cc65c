"""One run, from a request in a world to what it leaves: request → world → begin → drive.

run_in        in any world: live, recorded, or with the model or the tools from a cassette
replay_run    everything from a cassette: no network, no real time, the same bytes every time
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.cassette.match import MatchTier
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
    """A run that nobody works on any more, and what it left."""

    ending: Ending
    journal: tuple[Record, ...]
    children: dict[str, tuple[Record, ...]]
    """The journals of sub-agents, by run."""
    redaction: RunRedaction
    """Knows what must not be shown."""
    tier: MatchTier | None = None
    """How well the requests fit the tape at worst. Null: nothing was played."""
    unused_error: CassetteError | None = None
    """Interactions of the cassette that nobody asked for. After a failed run they are its consequence."""

    save_error: AgentrunError | None = None
    """Why what was to be recorded is not."""

    @property
    def error(self) -> AgentrunError | None:
        """What is wrong although the run itself is well."""
        return None if self.ending.exit_code else self.save_error or self.unused_error

    @property
    def outcome(self) -> Outcome:
        """How it ended. Only of a run that is over."""
        assert isinstance(self.ending, Outcome), "the run is not over"
        return self.ending

    @property
    def exit_code(self) -> int:
        return self.ending.exit_code or (self.error.exit_code if self.error else 0)

    def canonical(self) -> str:
        """The journal as people compare it: without values that must not be shown."""
        return canonical(self.journal, self.children, self.redaction.text if self.redaction.is_active else None)


async def run_in_world(world: World, request: Request, before: Sequence[Sequence[Record]] = ()) -> FinishedRun:
    """Run a request in its world. `before`: the journals of the runs of the same session or conversation.

    Raises before the run exists: `host.missing`, `provider.not_found`, `input.rejected`, `policy.*`. What goes wrong in
    the run is in its outcome.
    """
    package = _package_file(request)
    refuse_missing_ports(world, package.agent)
    journals = {journal_run_id(records): records for records in before}
    earlier, admitted = admit_request(
        package.agent, request, world.run, restore_session(request.session, journals), journals.__getitem__
    )
    log = begin(world, package.agent, request, admitted, earlier=earlier)
    ended = await drive_with_children(world, package.agent, log)
    return FinishedRun(
        ending=ended,
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
    """Run a request against a cassette.

    `approver`: answers that count instead of the recorded ones. `after`: the runs of the same conversation before it;
    they share its player. `start`: when the clock begins, in milliseconds since 1970; None: when the cassette was
    recorded. `step`: how long each exchange takes, in milliseconds; None: as long as it took. `wrappers`: what is
    before the cassette.

    Raises before the run exists what `run_in_world` raises, and `package.invalid`.
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
    """The same for the same package, input, cassette and runs before."""
    blobs = [(each.part if isinstance(each, Attachment) else each).blob for each in request.attachments]
    names = [*blobs, *(journal_run_id(each.journal) for each in after)]
    package, cassette = _package_file(request).fingerprint, player.cassette.hash
    return "replay-" + text_hash(sorted_json([package, admitted.params, admitted.message, cassette, *names]))[7:31]


def _package_file(request: Request) -> PackageFile:
    assert isinstance(request.package, PackageFile), "only a runtime knows packages by their fingerprint"
    return request.package


def _child_journals(journals: Journals, run: str) -> Iterator[tuple[str, tuple[Record, ...]]]:
    """The journals of the sub-agents below a run, in the order in which they began."""
    started = (record.fact.run for record in journals.records(run) if isinstance(record.fact, ChildStarted))
    for child in dict.fromkeys(started):
        if child in journals:
            yield child, tuple(journals.records(child))
            yield from _child_journals(journals, child)


def journal_run_id(journal: Sequence[Record]) -> str:
    """The run that a journal is of."""
    started = journal[0].fact
    assert isinstance(started, RunStarted), "a journal begins with it"
    return started.run
