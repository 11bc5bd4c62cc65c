"""Worlds: what one run can reach.

live      real models, tools, hooks and sinks; in a mixed world the model or the tools come from a cassette
replay    a cassette and nothing else
record    a recorder before the ports of another world

The world of the runs of a `Runtime` is here: it has the ports that the host gave to the runtime.
"""

from __future__ import annotations

from typing import Any

from agentrun.engine.perform import make_crew
from agentrun.engine.world import World, Wrapper, wrap


def hosted_world(wrappers: tuple[Wrapper, ...], **ports: Any) -> World:
    """`ports`: the fields of a `World`."""
    return wrap(World(crew=make_crew, **ports), *wrappers)
