"""The world of the runs that a runtime holds: whatever its host gave it."""

from __future__ import annotations

from collections.abc import Mapping

from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.events import EventBus
from agentrun.engine.memory import Journals
from agentrun.engine.perform import make_crew
from agentrun.engine.ports import Approver, Blobs, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.world import World, Wrapper, wrap
from agentrun.redactor import Redactor


def hosted_world(
    *,
    clock: Clock,
    journals: Journals,
    events: EventBus,
    content: Blobs,
    crews: CrewRegistry,
    providers: Mapping[str, Provider],
    executors: Mapping[str, Executor],
    hooks: Mapping[str, HookFunction],
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
        crew=make_crew,
        providers=providers,
        executors=executors,
        hooks=hooks,
        sinks=sinks,
        approver=approver,
        listen=events.publish,
        programs=programs,
        redactor=redactor,
    )
    return wrap(world, *wrappers)
