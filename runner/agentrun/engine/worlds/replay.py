"""The world of a replay: a cassette, and nothing behind it.

Rule 1  No network, no real time, one thing at a time: the same run gives the same bytes.
Rule 2  Every port that a package names is there, so that the run can start. None of them does anything.
"""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.core.package import Package
from agentrun.engine.cassette_ports import ReplayExchanger, models_wrapper, other_ports_wrapper
from agentrun.engine.clock import StepClock
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.perform import make_crew
from agentrun.engine.ports import Approver
from agentrun.engine.unreachable_ports import (
    SINK_KINDS,
    UNREACHABLE,
    unreachable_executors,
    unreachable_hooks,
    unreachable_providers,
)
from agentrun.engine.world import Listener, World, Wrapper, wrap


def replay_world(
    package: Package,
    run: str,
    player: Player,
    clock: StepClock,
    *,
    step: int | None = None,
    approver: Approver | None = None,
    wrappers: tuple[Wrapper, ...] = (),
    listen: Listener = lambda run, news: None,
) -> World:
    """What a replay can reach. Raises `provider.not_found`, `package.invalid`.

    `step`: how long each exchange takes, in milliseconds; None: as long as it took. `approver`: answers that count
    instead of the recorded ones. `wrappers`: what is before the cassette.
    """
    world = World(
        clock=clock,
        blobs=MemoryBlobs(),
        journals=MemoryJournals(),
        crews=CrewRegistry(clock),
        crew=make_crew,
        providers=unreachable_providers(package),
        executors=unreachable_executors(),
        hooks=unreachable_hooks(package),
        sinks=dict.fromkeys(SINK_KINDS, UNREACHABLE),
        approver=UNREACHABLE,
        listen=listen,
        replayed=True,
        run=run,
    )
    playing = ReplayExchanger(player, clock, step)
    return wrap(world, models_wrapper(playing), other_ports_wrapper(playing, approver), *wrappers)
