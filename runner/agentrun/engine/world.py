"""All that a run needs of the world outside, and who in it serves what a package names.

Rule 1  A name wins over a kind: an executor of `lookup` runs the tool of that name, one of `http` all other HTTP tools.
Rule 2  What a package or one of its sub-agents names must be there before the run starts. Looked for in this order:
        providers, hooks, executors, sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.facts import Record
from agentrun.core.package import Package, Sink
from agentrun.core.package_tools import AgentTool, McpTool, Tool
from agentrun.engine.ports import (
    Approver,
    Blobs,
    Clock,
    Crew,
    Executor,
    HookFunction,
    Provider,
    SinkPort,
    TransientEvent,
)
from agentrun.errors import HostError
from agentrun.redactor import Redactor

if TYPE_CHECKING:
    from agentrun.engine.crew_registry import CrewRegistry
    from agentrun.engine.memory import Journals

Listener: TypeAlias = Callable[[str, Record | TransientEvent], None]
"""Told the run, and what was committed to its journal or what passes."""


Wrapper: TypeAlias = Callable[["World"], "World"]
"""Puts something before the ports of a world: a cassette that records or replays, stubs, faults."""


class World(Struct, frozen=True, kw_only=True):
    """What one run can reach. A child's world is its parent's, with another run and path (`world_of_child`)."""

    clock: Clock
    blobs: Blobs
    journals: Journals
    """Those of all runs."""
    crews: CrewRegistry
    """Who works on the run and its children now."""
    crew: Callable[[World, Package], Crew]
    """Makes the crew of a world's run."""
    providers: Mapping[str, Provider] = {}
    """By the name of the provider."""
    executors: Mapping[str, Executor] = {}
    """By the name of the tool, or by its kind."""
    hooks: Mapping[str, HookFunction] = {}
    """By the hook's id."""
    sinks: Mapping[str, SinkPort] = {}
    """By the name of the sink, or by its kind."""
    approver: Approver | None = None
    """Whom questions are put to. None: nobody; the run waits for an answer from outside."""
    listen: Listener = lambda run, news: None
    replayed: bool = False
    """Whether it is a cassette."""
    run: str = ""
    """The run that it is the world of."""
    path: str = ""
    """The calls that lead from the run that a user started to this one, such as `c1.0.c2.1`."""
    parent_tools: tuple[str, ...] = ()
    """The tools of those calls."""
    wrappers: tuple[Wrapper, ...] = ()
    """What is before the ports, in the order in which it was put there."""
    unwrapped: World | None = None
    """The world without its wrappers. None: it has none."""
    programs: Mapping[str, str] = {}
    """The file of each command that tools may start, as it was found before the run."""
    redactor: Redactor = Redactor(())
    """Knows the values that must not be shown: they are replaced in every fact before it counts, and in what passes."""


def wrap(world: World, *wrappers: Wrapper) -> World:
    """The world with something before its ports, and before those of its children."""
    wrapped = world
    for wrapper in wrappers:
        wrapped = wrapper(wrapped)
    inner = world if world.unwrapped is None else world.unwrapped
    return replace(wrapped, wrappers=(*world.wrappers, *wrappers), unwrapped=inner) if wrappers else world


def _rewrap(world: World, **changes: Any) -> World:
    """The world with other values, which its wrappers see."""
    inner = world if world.unwrapped is None else world.unwrapped
    return wrap(replace(inner, **changes), *world.wrappers)


def world_of_run(world: World, run: str) -> World:
    """The world as it is for a run that a user started."""
    return _rewrap(world, run=run)


def world_of_child(world: World, run: str, call: str, tool: str) -> World:
    """The world as it is for the child of a run that a call of a tool starts."""
    path = f"{world.path}.{call}" if world.path else call
    return _rewrap(world, run=run, path=path, parent_tools=(*world.parent_tools, tool))


def find_provider(world: World, name: str) -> Provider:
    if name not in world.providers:
        raise _provider_not_found(name)
    return world.providers[name]


def find_hook(world: World, name: str) -> HookFunction:
    if name not in world.hooks:
        raise _missing_port_error(name, "hook")
    return world.hooks[name]


def find_executor(world: World, name: str, tool: Tool) -> Executor:
    """Who runs a call. The tools of an MCP server are called server.tool."""
    for key in (name, name.partition(".")[0], kind_tag(tool)):
        if key in world.executors:
            return world.executors[key]
    raise _missing_port_error(name, "executor")


def find_sink(world: World, name: str, sink: Sink) -> SinkPort:
    for key in (name, kind_tag(sink)):
        if key in world.sinks:
            return world.sinks[key]
    raise _missing_port_error(name, "sink")


def find_missing_port(world: World, package: Package) -> HostError | None:
    """The first thing that the package names and the world lacks."""
    packages = tuple(iterate_packages(package))
    for provider in (route.provider for each in packages for route in each.model.routes):
        if provider not in world.providers:
            return _provider_not_found(provider)
    for hook in (hook.id for each in packages for hook in each.hooks):
        if hook not in world.hooks:
            return _missing_port_error(hook, "hook")
    for name, tool in ((name, tool) for each in packages for name, tool in each.tools.items()):
        if not _has_executor(world, name, tool):
            return _missing_port_error(name, "executor")
    for name, sink in ((name, sink) for each in packages for name, sink in each.sinks.items()):
        if sink.delivery != "disabled" and name not in world.sinks and kind_tag(sink) not in world.sinks:
            return _missing_port_error(name, "sink")
    return None


def iterate_packages(package: Package) -> Iterator[Package]:
    """A package and its sub-agents' packages."""
    yield package
    for agent in package.agents.values():
        yield from iterate_packages(agent)


def _has_executor(world: World, name: str, tool: Tool) -> bool:
    if isinstance(tool, AgentTool) or name in world.executors or kind_tag(tool) in world.executors:
        return True
    return isinstance(tool, McpTool) and any(key.startswith(f"{name}.") for key in world.executors)


def kind_tag(part: Tool | Sink) -> str:
    """`python`, `http` and so on."""
    return str(type(part).__struct_config__.tag)


def _provider_not_found(name: str) -> HostError:
    return HostError("provider.not_found", f"no provider is named {name!r}", fields={"provider": name})


def _missing_port_error(name: str, what: str) -> HostError:
    return HostError("host.missing", f"there is no {what} for {name!r}", fields={"name": name, "what": what})
