"""The world of a replay: no network, no real time and no parallel work, so the same run gives the same bytes."""

from __future__ import annotations

from typing import Any, Never

from agentrun.cassette.player import Player
from agentrun.core.package import SINK_KINDS, Package
from agentrun.core.package_tools import TOOL_KINDS
from agentrun.engine.cassette_ports import ReplayExchanger, models_wrapper, other_ports_wrapper
from agentrun.engine.clock import StepClock
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.models import HttpProvider
from agentrun.engine.perform import make_crew
from agentrun.engine.ports import Approver, Provider
from agentrun.engine.world import Listener, World, Wrapper, iterate_packages, iterate_routes, wrap
from agentrun.errors import InternalError
from agentrun.providers.codec import codec_for, refuse_unsupported
from agentrun.tools.http import HttpTools


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
    """The world of `replay_run`, with its options. Raises `provider.not_found`, `package.invalid`."""
    world = World(
        clock=clock,
        blobs=MemoryBlobs(),
        journals=MemoryJournals(),
        crews=CrewRegistry(clock),
        crew=make_crew,
        providers=unreachable_providers(package),
        **unreachable_parts(package),
        listen=listen,
        replayed=True,
        run=run,
    )
    exchanger = ReplayExchanger(player, clock, step)
    return wrap(world, models_wrapper(exchanger), other_ports_wrapper(exchanger, approver), *wrappers)


class UnreachablePort:
    """It has to exist so that a run can start, but a call of it is a bug in agentrun."""

    def __call__(self, *_: Any, **__: Any) -> Never:
        raise InternalError("internal", "a replay called a real port")

    async def _refuse(self, *_: Any, **__: Any) -> Never:
        self()

    send = run = deliver = answer = _refuse


UNREACHABLE = UnreachablePort()


def unreachable_providers(package: Package) -> dict[str, Provider]:
    providers: dict[str, Provider] = {}
    for agent, route in iterate_routes(package):
        refuse_unsupported(agent, route)
        providers[route.provider] = HttpProvider(codec_for(route.provider), UNREACHABLE)
    return providers


def unreachable_parts(package: Package) -> dict[str, Any]:
    """The other ports of a world. HTTP tools are real, because the cassette contains their HTTP requests."""
    return {
        "executors": dict.fromkeys(TOOL_KINDS, UNREACHABLE) | {"http": HttpTools(UNREACHABLE)},
        "hooks": {hook.id: UNREACHABLE for agent in iterate_packages(package) for hook in agent.hooks},
        "sinks": dict.fromkeys(SINK_KINDS, UNREACHABLE),
        "approver": UNREACHABLE,
    }
