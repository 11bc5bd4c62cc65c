"""The world of a replay: a cassette, and nothing behind it.

Rule 1  No network, no real time, one thing at a time: the same run gives the same bytes.
Rule 2  Every port that a package names is there, so that the run can start. None of them does anything (`sealed.py`).
"""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.engine.crews import Crews
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.perform import crew_of
from agentrun.engine.ports import Approver
from agentrun.engine.sealed import SEALED, SINK_KINDS, sealed_executors, sealed_hooks, sealed_providers
from agentrun.engine.taped import Playing, tape_models, tape_others
from agentrun.engine.world import Listen, World, Wrapper, wrap


def replay_world(
    package: Package,
    run: str,
    player: Player,
    clock: StepClock,
    *,
    step: int | None = None,
    approver: Approver | None = None,
    wrappers: tuple[Wrapper, ...] = (),
    listen: Listen = lambda run, news: None,
) -> World:
    """What a replay can reach. Raises `provider.not_found`, `package.invalid`.

    `step`: how long each exchange takes, in milliseconds; None: as long as it took. `approver`: answers that count
    instead of the recorded ones. `wrappers`: what is before the cassette.
    """
    world = World(
        clock=clock,
        blobs=MemoryBlobs(),
        journals=MemoryJournals(),
        crews=Crews(clock),
        crew=crew_of,
        providers=sealed_providers(package),
        executors=sealed_executors(),
        hooks=sealed_hooks(package),
        sinks=dict.fromkeys(SINK_KINDS, SEALED),
        approver=SEALED,
        listen=listen,
        replayed=True,
        run=run,
    )
    playing = Playing(player, clock, step)
    return wrap(world, tape_models(playing), tape_others(playing, approver), *wrappers)
