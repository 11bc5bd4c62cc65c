"""The world of a replay: everything comes from a cassette.

Rule 1  No network, no real time and no parallel work: the same run gives the same bytes.
Rule 2  Every port that a package names exists, so that the run can start, but is never called.
"""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.core.package import SINK_KINDS, Package
from agentrun.engine import unreachable_ports
from agentrun.engine.cassette_ports import ReplayExchanger, models_wrapper, other_ports_wrapper
from agentrun.engine.clock import StepClock
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.perform import make_crew
from agentrun.engine.ports import Approver
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
    """The world of a replay. Raises `provider.not_found`, `package.invalid`.

    `step`: the duration of each exchange in milliseconds; None: as recorded. `approver`: its answers replace the
    recorded ones. `wrappers`: wrap the cassette.
    """
    world = World(
        clock=clock,
        blobs=MemoryBlobs(),
        journals=MemoryJournals(),
        crews=CrewRegistry(clock),
        crew=make_crew,
        providers=unreachable_ports.unreachable_providers(package),
        executors=unreachable_ports.unreachable_executors(),
        hooks=unreachable_ports.unreachable_hooks(package),
        sinks=dict.fromkeys(SINK_KINDS, unreachable_ports.UNREACHABLE),
        approver=unreachable_ports.UNREACHABLE,
        listen=listen,
        replayed=True,
        run=run,
    )
    exchanger = ReplayExchanger(player, clock, step)
    return wrap(world, models_wrapper(exchanger), other_ports_wrapper(exchanger, approver), *wrappers)
