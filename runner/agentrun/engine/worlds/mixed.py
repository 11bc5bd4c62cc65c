"""The world of a partial replay: the model or the tools come from a cassette, and the rest is live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from agentrun.cassette.player import Player
from agentrun.core.package import Package
from agentrun.engine import cassette_ports
from agentrun.engine.ports import Approver
from agentrun.engine.world import World, wrap
from agentrun.engine.worlds.live import live_world
from agentrun.engine.worlds.replay import UNREACHABLE, unreachable_parts, unreachable_providers
from agentrun.spec.project import Project

LiveAxis: TypeAlias = Literal["tools", "model"]


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
    """If the tools are replayed, the answers of `approver` replace the recorded ones. `options`: of a live world."""
    exchanger = cassette_ports.ReplayExchanger(player, None)
    if live == "tools":
        async with live_world(package, project, run, models=False, approver=approver, **options) as world:
            world = replace(world, providers=unreachable_providers(package))
            yield wrap(
                world, cassette_ports.models_wrapper(exchanger), cassette_ports.answer_comparison_wrapper(exchanger)
            )
    else:
        parts = replace(package, tools={}, hooks=(), sinks={}, agents={})
        async with live_world(package, project, run, parts=parts, approver=UNREACHABLE, **options) as world:
            world = replace(world, **unreachable_parts(package))
            yield wrap(world, cassette_ports.other_ports_wrapper(exchanger, approver))
