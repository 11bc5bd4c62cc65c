"""The world of the runs that a runtime holds: whatever its host gave it."""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.engine.bus import Bus
from agentrun.engine.crews import Crews
from agentrun.engine.memory import Journals
from agentrun.engine.perform import crew_of
from agentrun.engine.ports import Approver, Blobs, Clock, Executor, Hook, Provider, SinkPort
from agentrun.engine.world import World, Wrapper, wrap
from agentrun.redactor import Redactor


def hosted_world(
    *,
    clock: Clock,
    journals: Journals,
    events: Bus,
    content: Blobs,
    crews: Crews,
    providers: Mapping[str, Provider],
    executors: Mapping[str, Executor],
    hooks: Mapping[str, Hook],
    sinks: Mapping[str, SinkPort],
    approver: Approver | None,
    wrappers: tuple[Wrapper, ...],
    programs: Mapping[str, str],
    redactor: Redactor,
) -> World:
    """What the runs of a runtime can reach."""
    world = World(
        clock=clock,
        blobs=content,
        journals=journals,
        crews=crews,
        crew=crew_of,
        providers=providers,
        executors=executors,
        hooks=hooks,
        sinks=sinks,
        approver=approver,
        listen=events.tell,
        programs=programs,
        redactor=redactor,
    )
    return wrap(world, *wrappers)
