"""The world of the runs of a `Runtime`: the ports that the host gave to it."""

from __future__ import annotations

from typing import Any

from agentrun.engine.perform import make_crew
from agentrun.engine.world import World, Wrapper, wrap


def hosted_world(wrappers: tuple[Wrapper, ...], **ports: Any) -> World:
    """`ports`: the fields of a `World`."""
    return wrap(World(crew=make_crew, **ports), *wrappers)
