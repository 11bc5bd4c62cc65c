"""The world of a run: all its ports, and the lookup of the port for a name in a package.

Rule 1  A name takes precedence over a kind: the executor `lookup` runs the tool of that name, and the executor `http`
        runs all other HTTP tools.
Rule 2  Everything that a package or its sub-agents name must exist before the run starts, except optional sinks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from agentrun.core.facts import Record, StandIns
from agentrun.core.package import Package, Route, Sink
from agentrun.core.package_tools import AgentTool, McpTool, Tool
from agentrun.engine import ports
from agentrun.errors import HostError
from agentrun.redactor import Redactor

if TYPE_CHECKING:
    from agentrun.engine.crew_registry import CrewRegistry
    from agentrun.engine.memory import Journals
    from agentrun.store.inbox import Inbox

_T = TypeVar("_T")

Listener: TypeAlias = Callable[[str, Record | ports.TransientEvent], None]
"""Called with the run id and a committed record or a transient event."""

Wrapper: TypeAlias = Callable[["World"], "World"]
"""Wraps the ports of a world: with a cassette that records or replays, with stubs, or with faults."""


async def _prepare_nothing() -> None:
    return


class World(Struct, frozen=True, kw_only=True):
    clock: ports.Clock
    blobs: ports.Blobs
    journals: Journals
    crews: CrewRegistry
    crew: Callable[[World, Package], ports.Crew]
    providers: Mapping[str, ports.Provider] = {}
    executors: Mapping[str, ports.Executor] = {}
    """By tool name or tool kind."""
    hooks: Mapping[str, ports.HookFunction] = {}
    sinks: Mapping[str, ports.SinkPort] = {}
    """By sink name or sink kind."""
    approver: ports.Approver | None = None
    """Answers approval questions. None: the run is suspended until an answer comes from outside."""
    suspends: bool = False
    """Whether a question that the approver does not answer suspends the run. If not, it is `unavailable`."""
    inbox: Inbox | None = None
    """Messages of other processes to this run. None: the run is not stored."""
    listen: Listener = lambda run, news: None
    replayed: bool = False
    is_recorded: bool = False
    stand_ins: StandIns | UnsetType = UNSET
    """What replaces a part of a live world. Unset: nothing."""
    run: str = ""
    path: str = ""
    """The ids of the calls that lead from the top-level run to this one, such as `c1.0.c2.1`."""
    parent_tools: tuple[str, ...] = ()
    """The tools of those calls."""
    wrappers: tuple[Wrapper, ...] = ()
    unwrapped: World | None = None
    """The world without its wrappers. None: it has no wrappers."""
    programs: Mapping[str, str] = {}
    """The file of each command that tools may start, found before the run."""
    prepare: Callable[[], Awaitable[None]] = _prepare_nothing
    """Called before the run starts, when nothing else can refuse it: imports the project's code. Raises
    `host.missing`, `tool.drift`."""
    redactor: Redactor = Redactor(())
    """Knows the secret values. They are replaced in every fact before it is committed, and in transient events."""


def wrap(world: World, *wrappers: Wrapper) -> World:
    """Wrap the ports of a world and of the worlds of its sub-agents."""
    wrapped = world
    for wrapper in wrappers:
        wrapped = wrapper(wrapped)
    if not wrappers:
        return world
    return replace(wrapped, wrappers=(*world.wrappers, *wrappers), unwrapped=world.unwrapped or world)


def _rewrap(world: World, **changes: Any) -> World:
    return wrap(replace(world.unwrapped or world, **changes), *world.wrappers)


def world_of_run(world: World, run: str) -> World:
    return _rewrap(world, run=run)


def world_of_child(world: World, run: str, call: str, tool: str) -> World:
    path = f"{world.path}.{call}" if world.path else call
    return _rewrap(world, run=run, path=path, parent_tools=(*world.parent_tools, tool))


def find_provider(world: World, name: str) -> ports.Provider:
    if name not in world.providers:
        raise HostError("provider.not_found", f"there is no provider {name!r}", fields={"provider": name})
    return world.providers[name]


def find_hook(world: World, name: str) -> ports.HookFunction:
    return _find(world.hooks, "hook", name)


def find_executor(world: World, name: str, tool: Tool) -> ports.Executor:
    """The executor of a tool. The tools of an MCP server are called server.tool."""
    return _find(world.executors, "executor", name, name.partition(".")[0], kind_tag(tool))


def find_sink(world: World, name: str, sink: Sink) -> ports.SinkPort:
    return _find(world.sinks, "sink", name, kind_tag(sink))


def _find(known: Mapping[str, _T], what: str, name: str, *other_keys: str) -> _T:
    for key in (name, *other_keys):
        if key in known:
            return known[key]
    raise HostError("host.missing", f"there is no {what} for {name!r}", fields={"name": name, "what": what})


def find_missing_port(world: World, package: Package) -> HostError | None:
    packages = tuple(iterate_packages(package))
    try:
        for _, route in iterate_routes(package):
            find_provider(world, route.provider)
        for hook in (hook for each in packages for hook in each.hooks):
            find_hook(world, hook.id)
        for name, tool in (item for each in packages for item in each.tools.items()):
            is_served = isinstance(tool, McpTool) and any(key.startswith(f"{name}.") for key in world.executors)
            if not is_served and not isinstance(tool, AgentTool):
                find_executor(world, name, tool)
        for name, sink in (item for each in packages for item in each.sinks.items()):
            if sink.delivery == "required":
                find_sink(world, name, sink)
    except HostError as error:
        return error
    return None


def iterate_packages(package: Package) -> Iterator[Package]:
    yield package
    for agent in package.agents.values():
        yield from iterate_packages(agent)


def iterate_routes(package: Package) -> Iterator[tuple[Package, Route]]:
    return ((agent, route) for agent in iterate_packages(package) for route in agent.model.routes)


def kind_tag(part: Tool | Sink) -> str:
    """The kind of a tool or sink: `python`, `http` and so on."""
    return str(type(part).__struct_config__.tag)
