"""The world of a run: all its ports, and the lookup of the port for a name in a package.

Rule 1  A name takes precedence over a kind: the executor `lookup` runs the tool of that name, and the executor `http`
        runs all other HTTP tools.
Rule 2  Everything that a package or its sub-agents name must exist before the run starts. It is checked in this order:
        providers, hooks, executors, sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.facts import Record
from agentrun.core.package import Package, Route, Sink
from agentrun.core.package_tools import AgentTool, McpTool, Tool
from agentrun.engine import ports
from agentrun.errors import HostError
from agentrun.redactor import Redactor

if TYPE_CHECKING:
    from agentrun.engine.crew_registry import CrewRegistry
    from agentrun.engine.memory import Journals

Listener: TypeAlias = Callable[[str, Record | ports.TransientEvent], None]
"""Called with the run id and a committed record or a transient event."""

Wrapper: TypeAlias = Callable[["World"], "World"]
"""Wraps the ports of a world: with a cassette that records or replays, with stubs, or with faults."""


class World(Struct, frozen=True, kw_only=True):
    """The ports of one run. The world of a sub-agent has another run and path (`world_of_child`)."""

    clock: ports.Clock
    blobs: ports.Blobs
    journals: Journals
    """The journals of all runs."""
    crews: CrewRegistry
    """The active crews of the run and its sub-agents."""
    crew: Callable[[World, Package], ports.Crew]
    """Creates the crew of the run."""
    providers: Mapping[str, ports.Provider] = {}
    """By provider name."""
    executors: Mapping[str, ports.Executor] = {}
    """By tool name or tool kind."""
    hooks: Mapping[str, ports.HookFunction] = {}
    """By hook id."""
    sinks: Mapping[str, ports.SinkPort] = {}
    """By sink name or sink kind."""
    approver: ports.Approver | None = None
    """Answers approval questions. None: the run is suspended until an answer comes from outside."""
    listen: Listener = lambda run, news: None
    replayed: bool = False
    """Whether everything comes from a cassette."""
    run: str = ""
    path: str = ""
    """The ids of the calls that lead from the top-level run to this one, such as `c1.0.c2.1`."""
    parent_tools: tuple[str, ...] = ()
    """The tools of those calls."""
    wrappers: tuple[Wrapper, ...] = ()
    """The wrappers of the ports, in the order of their application."""
    unwrapped: World | None = None
    """The world without its wrappers. None: it has no wrappers."""
    programs: Mapping[str, str] = {}
    """The file of each command that tools may start, found before the run."""
    redactor: Redactor = Redactor(())
    """Knows the secret values. They are replaced in every fact before it is committed, and in transient events."""


def wrap(world: World, *wrappers: Wrapper) -> World:
    """Wrap the ports of a world and of the worlds of its sub-agents."""
    wrapped = world
    for wrapper in wrappers:
        wrapped = wrapper(wrapped)
    inner = world if world.unwrapped is None else world.unwrapped
    return replace(wrapped, wrappers=(*world.wrappers, *wrappers), unwrapped=inner) if wrappers else world


def _rewrap(world: World, **changes: Any) -> World:
    """Change fields of the world below its wrappers."""
    inner = world if world.unwrapped is None else world.unwrapped
    return wrap(replace(inner, **changes), *world.wrappers)


def world_of_run(world: World, run: str) -> World:
    """The world of a top-level run."""
    return _rewrap(world, run=run)


def world_of_child(world: World, run: str, call: str, tool: str) -> World:
    """The world of a sub-agent that a tool call starts."""
    path = f"{world.path}.{call}" if world.path else call
    return _rewrap(world, run=run, path=path, parent_tools=(*world.parent_tools, tool))


def find_provider(world: World, name: str) -> ports.Provider:
    if name not in world.providers:
        raise HostError("provider.not_found", f"there is no provider {name!r}", fields={"provider": name})
    return world.providers[name]


def find_hook(world: World, name: str) -> ports.HookFunction:
    if name not in world.hooks:
        raise _missing_port_error(name, "hook")
    return world.hooks[name]


def find_executor(world: World, name: str, tool: Tool) -> ports.Executor:
    """The executor of a tool. The tools of an MCP server are called server.tool."""
    for key in (name, name.partition(".")[0], kind_tag(tool)):
        if key in world.executors:
            return world.executors[key]
    raise _missing_port_error(name, "executor")


def find_sink(world: World, name: str, sink: Sink) -> ports.SinkPort:
    for key in (name, kind_tag(sink)):
        if key in world.sinks:
            return world.sinks[key]
    raise _missing_port_error(name, "sink")


def find_missing_port(world: World, package: Package) -> HostError | None:
    """The error for the first port that the package names and the world lacks."""
    packages = tuple(iterate_packages(package))
    try:
        for _, route in iterate_routes(package):
            find_provider(world, route.provider)
        for hook in (hook for each in packages for hook in each.hooks):
            find_hook(world, hook.id)
        for name, tool in (item for each in packages for item in each.tools.items()):
            if not _has_executor(world, name, tool):
                return _missing_port_error(name, "executor")
        for name, sink in (item for each in packages for item in each.sinks.items()):
            if sink.delivery != "disabled":
                find_sink(world, name, sink)
    except HostError as error:
        return error
    return None


def iterate_packages(package: Package) -> Iterator[Package]:
    """A package and the packages of its sub-agents."""
    yield package
    for agent in package.agents.values():
        yield from iterate_packages(agent)


def iterate_routes(package: Package) -> Iterator[tuple[Package, Route]]:
    """The routes of a package and its sub-agents, each with its package."""
    return ((agent, route) for agent in iterate_packages(package) for route in agent.model.routes)


def _has_executor(world: World, name: str, tool: Tool) -> bool:
    if isinstance(tool, AgentTool) or name in world.executors or kind_tag(tool) in world.executors:
        return True
    return isinstance(tool, McpTool) and any(key.startswith(f"{name}.") for key in world.executors)


def kind_tag(part: Tool | Sink) -> str:
    """The kind of a tool or sink: `python`, `http` and so on."""
    return str(type(part).__struct_config__.tag)


def _missing_port_error(name: str, what: str) -> HostError:
    return HostError("host.missing", f"there is no {what} for {name!r}", fields={"name": name, "what": what})
