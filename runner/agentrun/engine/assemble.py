"""The composition root: the one place that knows every part and puts a run together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentrun.canon import compact, text_hash
from agentrun.core.facts import Record
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.sound import refuse_unsound
from agentrun.engine.admission import admit, run_started
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import StepCrew
from agentrun.engine.driver import drive
from agentrun.engine.memory import MemoryBlobs
from agentrun.engine.models import WireProvider
from agentrun.engine.perform import crew_of
from agentrun.engine.unbuilt import refuse_unbuilt
from agentrun.engine.world import World, open_log
from agentrun.errors import CassetteError


class FinishedRun(Struct, frozen=True):
    """A run that is over, and what it left."""

    outcome: Outcome
    journal: tuple[Record, ...]
    unused: CassetteError | None
    """Interactions of the cassette that nobody asked for. After a failed run they are its consequence."""

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code or (self.unused.exit_code if self.unused else 0)


def replay_run(
    package: Package, *, fingerprint: str, message: str | None, params: Mapping[str, Any], cassette: Path
) -> FinishedRun:
    """Run a package against a recording: no network, no real time, the same bytes every time.

    Raises before the run exists: `host.missing`, `package.invalid`, `provider.not_found`, `input.rejected`,
    `cassette.miss` without a file, `cassette.damaged`. What goes wrong in the run is in its outcome.
    """
    from agentrun.cassette.file import load
    from agentrun.cassette.player import Player, unused_error
    from agentrun.journal.memory import MemoryJournal
    from agentrun.providers.registry import codec_for, refuse_unsupported

    refuse_unbuilt(package)
    refuse_unsound(package)
    for route in package.model.routes:
        refuse_unsupported(package, route)
    admitted = admit(package, message, params)
    tape = load(cassette)

    clock, journal = StepClock(tape.recorded_at), MemoryJournal()
    player = Player(tape, clock.play_to)
    run = "replay-" + text_hash(compact([fingerprint, admitted.params, admitted.message, tape.hash]))[7:31]
    world = World(
        clock=clock,
        blobs=MemoryBlobs(),
        journals=lambda _run: journal,
        crew=lambda _run, perform, consult: StepCrew(perform, width=1, clock=clock, consult=consult),
        providers={route.provider: WireProvider(codec_for(route.provider), player) for route in package.model.routes},
        replayed=True,
    )
    log = open_log(world, run)
    log.commit(run_started(package, admitted, run=run, fingerprint=fingerprint, replayed=True))
    outcome = clock.run(drive(package, log, crew_of(world, run, package)))
    assert isinstance(outcome, Outcome), "nothing of what can be replayed waits for anybody"
    unused = player.unused()
    return FinishedRun(outcome, journal.records(), unused_error(unused, tape.interactions) if unused else None)
