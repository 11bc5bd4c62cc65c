"""The composition root: the one place that knows every part and puts a run together.

replay_run    everything from a cassette: no network, no real time, the same bytes every time
live_run      in real time: live, recorded, or with the model or the tools from a cassette
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from agentrun.canon import compact, text_hash
from agentrun.core.facts import Earlier, Record, RunStarted
from agentrun.core.outcome import Outcome, Suspended
from agentrun.core.package import Package
from agentrun.core.sound import refuse_unsound
from agentrun.engine.admission import admit, tape_seed
from agentrun.engine.begin import begin
from agentrun.engine.children import drive_all
from agentrun.engine.clock import StepClock
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.perform import crew_of
from agentrun.engine.ports import Approver
from agentrun.engine.request import Attachment, Request, contents
from agentrun.engine.sessions import earlier
from agentrun.engine.world import Listen, Wrapper
from agentrun.errors import AgentrunError, CassetteError
from agentrun.journal.canonical import canonical

if TYPE_CHECKING:
    from agentrun.cassette.match import Tier
    from agentrun.cassette.player import Player
    from agentrun.cassette.redaction import Redaction
    from agentrun.cassette.tape import Cassette


class Overlay(Struct, frozen=True, kw_only=True):
    """What is laid over a recording."""

    start: int | None = None
    """When the clock begins, in milliseconds since 1970. None: when the recording was made."""
    step: int | None = None
    """How long each recorded exchange takes, in milliseconds. None: as long as it took."""
    wrappers: tuple[Wrapper, ...] = ()
    """What is before the cassette: stubs and faults."""


NOTHING = Overlay()


class FinishedRun(Struct, frozen=True):
    """A run that is over or waits, and what it left."""

    ended: Outcome | Suspended
    journal: tuple[Record, ...]
    children: dict[str, tuple[Record, ...]]
    """The journals of sub-agents, by run."""
    redaction: Redaction
    """Knows what must not be shown."""
    tier: Tier | None = None
    """How well the requests fit the tape at worst. Null: nothing was played."""
    unused: CassetteError | None = None
    """Interactions of the cassette that nobody asked for. After a failed run they are its consequence."""

    unsaved: AgentrunError | None = None
    """Why what was to be recorded is not."""

    @property
    def complaint(self) -> AgentrunError | None:
        """What is wrong although the run itself is well."""
        return None if self.ended.exit_code else self.unsaved or self.unused

    @property
    def outcome(self) -> Outcome:
        """How it ended. Only of a run that is over."""
        assert isinstance(self.ended, Outcome), "the run waits for somebody"
        return self.ended

    @property
    def exit_code(self) -> int:
        return self.ended.exit_code or (self.complaint.exit_code if self.complaint else 0)

    def canonical(self) -> str:
        """The journal as people compare it: without values that must not be shown."""
        return canonical(self.journal, self.children, self.redaction.text if self.redaction.hides else None)


def replay_run(
    package: Package,
    *,
    fingerprint: str,
    message: str | None,
    params: Mapping[str, Any],
    cassette: Path | Cassette | Player,
    attachments: tuple[Attachment, ...] = (),
    approver: Approver | None = None,
    listen: Listen | None = None,
    after: Sequence[FinishedRun] = (),
    overlay: Overlay = NOTHING,
) -> FinishedRun:
    """Run a package against a recording: no network, no real time, the same bytes every time.

    `approver`: answers that count instead of the recorded ones. `after`: the runs of the same conversation before it;
    they share its player.

    Raises before the run exists: `host.missing`, `package.invalid`, `provider.not_found`, `input.rejected`, `policy.*`,
    `cassette.miss` without a file, `cassette.damaged`. What goes wrong in the run is in its outcome.
    """
    from agentrun.engine.worlds.replay import replay_world

    refuse_unsound(package)
    admitted = admit(package, message, params)
    player = _player(package, cassette)
    tape = player.cassette

    clock = StepClock(tape.recorded_at if overlay.start is None else overlay.start)
    clock.move_to(after[-1].journal[-1].at if after else clock.start)
    blobs, journals = MemoryBlobs(), MemoryJournals()
    names = [each.part.blob for each in attachments] + [run_of(each.journal) for each in after]
    run = "replay-" + text_hash(compact([fingerprint, admitted.params, admitted.message, tape.hash, *names]))[7:31]
    world = replay_world(
        package,
        run,
        player,
        clock,
        journals,
        blobs,
        step=overlay.step,
        approver=approver,
        wrappers=overlay.wrappers,
        listen=listen or (lambda run, news: None),
    )
    request = Request(
        agent=package.name,
        package=fingerprint,
        message=message,
        params=dict(params),
        attachments=contents(blobs, attachments),
        run=run,
        seed=tape_seed(package, admitted),
    )
    log = begin(world, package, request, admitted, earlier=_earlier(package, after))
    ended = clock.run(drive_all(world, package, log, crew_of))
    return _finished(ended, run, journals, player)


def _earlier(package: Package, after: Sequence[FinishedRun]) -> Earlier:
    journals = {run_of(each.journal): each.journal for each in after}
    return earlier(tuple(journals), package.session, journals.__getitem__)


def _finished(ended: Outcome | Suspended, run: str, journals: MemoryJournals, player: Player) -> FinishedRun:
    from agentrun.cassette.player import unused_error

    unused = player.unused()
    return FinishedRun(
        ended=ended,
        journal=journals.records(run),
        children={each: journals.records(each) for each in journals.runs if each != run},
        redaction=player.redaction,
        tier=player.tier,
        unused=unused_error(unused, player.cassette.interactions) if unused else None,
    )


def run_of(journal: Sequence[Record]) -> str:
    """The run that a journal is of."""
    started = journal[0].fact
    assert isinstance(started, RunStarted), "a journal begins with it"
    return started.run


def _player(package: Package, cassette: Path | Cassette | Player) -> Player:
    from agentrun.cassette.file import load
    from agentrun.cassette.player import Player
    from agentrun.cassette.redaction import Redaction
    from agentrun.spec.project import cassette_limit_near

    if isinstance(cassette, Player):
        return cassette
    tape = load(cassette, cassette_limit_near(cassette)) if isinstance(cassette, Path) else cassette
    return Player(tape, volatile=package.replay.volatile, redaction=Redaction(package.replay.redact))
