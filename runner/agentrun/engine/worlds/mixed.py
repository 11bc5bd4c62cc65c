"""The world of a partial replay: either the model or the tools come from a cassette, and the rest is live.

Rule 1  The replayed part needs no key, command or server.
Rule 2  The run takes real time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from agentrun.cassette.player import Player
from agentrun.core.package import SINK_KINDS, Package
from agentrun.engine import cassette_ports, unreachable_ports
from agentrun.engine.ports import Approver
from agentrun.engine.world import World, wrap
from agentrun.engine.worlds.live import live_world
from agentrun.spec.project import Project

LiveAxis: TypeAlias = Literal["tools", "model"]
"""The part that is live."""


@asynccontextmanager
async def mixed_world(
    package: Package,
    project: Project,
    run: str,
    player: Player,
    live: LiveAxis,
    approver: Approver | None,
    **options: Any,
) -> AsyncIterator[World]:
    """The world of a partial replay. `approver`: answers approval questions; if the tools are replayed, its answers
    replace the recorded ones. `options`: those of a live world."""
    exchanger = cassette_ports.ReplayExchanger(player, None)
    if live == "tools":
        async with live_world(package, project, run, models=False, approver=approver, **options) as world:
            world = replace(world, providers=unreachable_ports.unreachable_providers(package))
            yield wrap(
                world, cassette_ports.models_wrapper(exchanger), cassette_ports.answer_comparison_wrapper(exchanger)
            )
    else:
        parts = replace(package, tools={}, hooks=(), sinks={}, agents={})
        async with live_world(
            package, project, run, parts=parts, approver=unreachable_ports.UNREACHABLE, **options
        ) as world:
            world = replace(
                world,
                executors=unreachable_ports.unreachable_executors(),
                hooks=unreachable_ports.unreachable_hooks(package),
                sinks=dict.fromkeys(SINK_KINDS, unreachable_ports.UNREACHABLE),
            )
            yield wrap(world, cassette_ports.other_ports_wrapper(exchanger, approver))
