"""The world of a run that is half a replay: the model or the tools from a cassette, the rest for real.

Rule 1  What comes from the cassette needs nothing of the environment: no key, no command, no server.
Rule 2  No time is played: it passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from agentrun.cassette.player import Player
from agentrun.core.package import Package
from agentrun.engine.cassette_ports import (
    ReplayExchanger,
    answer_comparison_wrapper,
    models_wrapper,
    other_ports_wrapper,
)
from agentrun.engine.ports import Approver
from agentrun.engine.unreachable_ports import (
    SINK_KINDS,
    UNREACHABLE,
    unreachable_executors,
    unreachable_hooks,
    unreachable_providers,
)
from agentrun.engine.world import World, wrap
from agentrun.engine.worlds.live import live_world
from agentrun.spec.project import Project

LiveAxis: TypeAlias = Literal["tools", "model"]
"""What is live while the rest is replayed."""


@asynccontextmanager
async def mixed_world(
    package: Package,
    project: Project,
    run: str,
    player: Player,
    live: LiveAxis,
    approver: Approver | None,
    **given: Any,
) -> AsyncIterator[World]:
    """What such a run can reach. `approver`: who is asked; with a cassette for the tools, who answers instead of it, if
    they have anything to say. `given`: as for a live world."""
    playing = ReplayExchanger(player, None)
    if live == "tools":
        async with live_world(package, project, run, models=False, approver=approver, **given) as world:
            world = replace(world, providers=unreachable_providers(package))
            yield wrap(world, models_wrapper(playing), answer_comparison_wrapper(playing))
    else:
        async with live_world(
            package, project, run, parts=_without_tools(package), approver=UNREACHABLE, **given
        ) as world:
            world = replace(
                world,
                executors=unreachable_executors(),
                hooks=unreachable_hooks(package),
                sinks=dict.fromkeys(SINK_KINDS, UNREACHABLE),
            )
            yield wrap(world, other_ports_wrapper(playing, approver))


def _without_tools(package: Package) -> Package:
    return replace(package, tools={}, hooks=(), sinks={}, agents={})
