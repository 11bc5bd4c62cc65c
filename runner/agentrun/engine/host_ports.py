"""The models, tools, hooks, sinks and the approver that a program passes to a run, and the world that they are in.

Rule 1  What the program does not pass runs for real, as the spec declares it. For a part that it passes, nothing is
        imported and no variable or command is required.
Rule 2  A name that the agent does not have is refused, because a misspelt stub would let the real tool run.
Rule 3  On a step clock nothing runs for real: the program passes everything that the run needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.core.package import SINK_KINDS, Package, argument_schemas
from agentrun.core.package_tools import TOOL_KINDS, AgentTool, McpTool
from agentrun.engine.approvals import ApprovalCallback, to_approver
from agentrun.engine.argument_checks import check_type
from agentrun.engine.clock import StepClock
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.memory import Journals, MemoryBlobs
from agentrun.engine.ports import Approver, Blobs, Clock, Executor, HookFunction, Provider, SinkPort
from agentrun.engine.world import Listener, World, iterate_packages, iterate_routes, kind_tag
from agentrun.engine.worlds import hosted_world
from agentrun.errors import HostError
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.spec.project import find_project

if TYPE_CHECKING:
    from agentrun.engine.functions import ModelFunction, SinkFunction, ToolFunction
    from agentrun.engine.http_clients import HttpClients
    from agentrun.store.inbox import Inbox


MAX_KEPT_PORTS = 64
"""Packages whose live ports are kept."""


class PortOptions(TypedDict, total=False):
    """The keyword arguments that replace parts of the world of a run."""

    model: Provider | ModelFunction | Mapping[str, Provider | ModelFunction]
    """One model for all providers, or one for each provider by name: an object, or a function `request -> reply`.
    Absent: the real models, with keys from the environment."""
    tools: Mapping[str, Executor | ToolFunction]
    """Functions by the name of the tool, which get its arguments as keywords; or objects with `run(call)`, by the name
    of a tool or by its kind. Other tools run for real, as the spec declares them."""
    hooks: Mapping[str, HookFunction]
    """Functions `question -> answer` by the id of the hook. Other hooks run for real."""
    sinks: Mapping[str, SinkPort | SinkFunction]
    """Functions `delivery -> None`, or objects with `deliver(delivery)`, by the name of a sink or by its kind. Other
    sinks run for real."""
    approver: Approver | ApprovalCallback
    """Answers approval questions: an object, or a function `question -> "approved"` (or `"denied"`, a bool, …). Without
    it the run is suspended at a question."""
    clock: Clock
    """With a `StepClock` a run takes no real time and run ids are the same every time."""
    project: str | PathLike[str]
    """The folder of the project with the functions, commands and files of the package. Absent: the project of the spec;
    for a package, the project of the current folder."""
    env_file: str | PathLike[str]
    """A file with more environment variables for the real models, tools and sinks."""


class HostPorts(Struct, frozen=True):
    """What a program passes to a run, as ports."""

    clock: Clock
    providers: dict[str, Provider]
    executors: dict[str, Executor]
    hooks: dict[str, HookFunction]
    sinks: dict[str, SinkPort]
    approver: Approver | None
    has_models: bool
    """Whether the program passes the models. If not, they are real."""


def check_port_options(options: PortOptions) -> None:
    """Check what can be checked without the package."""
    for name in ("env_file", "project"):
        if name in options:
            check_type(name, options[name], (str, PathLike), "a path")
    check_methods("clock", options.get("clock"), ("now", "sleep_until"))
    for name in ("tools", "hooks", "sinks"):
        check_type(name, options.get(name, {}), Mapping, "a mapping from names to functions or objects")
    models = options.get("model", ())
    for name, model in models.items() if isinstance(models, Mapping) else [("", models)] if models != () else ():
        _check_port(f'model["{name}"]' if name else "model", model, "ask")
    if not callable(options.get("approver")):
        check_methods("approver", options.get("approver"), ("answer",))
    for key, method in (("tools", "run"), ("sinks", "deliver"), ("hooks", "")):
        for name, port in options.get(key, {}).items():  # type: ignore[attr-defined]  # it is a mapping
            _check_port(f"{key}[{quote_text(name)}]", port, method)


def check_methods(name: str, value: object, methods: Iterable[str]) -> None:
    for method in methods if value is not None else ():
        if not callable(getattr(value, method, None)):
            raise TypeError(f"`{name}` must be an object with a method `{method}`, not {type(value).__name__}")


def _check_port(label: str, port: object, method: str) -> None:
    is_class = isinstance(port, type)
    if is_class or not (callable(port) or (method and callable(getattr(port, method, None)))):
        wanted = f"a function or an object with a method `{method}`" if method else "a function"
        found = f"the class {port.__name__}" if isinstance(port, type) else type(port).__name__
        raise TypeError(f"`{label}` must be {wanted}, not {found}")


def refuse_unknown_keywords(options: Collection[str], known: Collection[str]) -> None:
    for word in options:
        if word not in known:
            hint = did_you_mean(word, known)
            raise TypeError(f"unknown keyword argument {word!r}" + (f": {hint}" if hint else ""))


def refuse_unknown_names(package: Package, options: PortOptions) -> None:
    """Raise `host.missing` for a tool, hook or sink that the agent and its sub-agents do not have."""
    packages = tuple(iterate_packages(package))
    tools = [item for each in packages for item in each.tools.items()]
    served = {f"{name}.{inner}" for name, tool in tools if isinstance(tool, McpTool) for inner in tool.pinned}
    known = {
        "tools": {*TOOL_KINDS, *dict(tools), *served},
        "hooks": {hook.id for each in packages for hook in each.hooks},
        "sinks": {*SINK_KINDS, *(name for each in packages for name in each.sinks)},
    }
    for key, names in known.items():
        for name in options.get(key, ()):  # type: ignore[attr-defined]  # it is a mapping
            if name not in names:
                what = key.removesuffix("s")
                hint = did_you_mean(name, names) or f"use the names that the spec declares under `{key}`"
                message = f"the agent has no {what} {quote_text(name)}"
                raise HostError("host.missing", message, hint=hint, fields={"name": name, "what": what})


def providers_by_name(package: Package, model: Provider | Mapping[str, Provider] | None) -> dict[str, Provider]:
    if model is None or isinstance(model, Mapping):
        return dict(model or {})
    return dict.fromkeys(sorted({route.provider for _, route in iterate_routes(package)}), model)


def make_ports(package: Package, options: PortOptions) -> HostPorts:
    """The ports of a run. Raises `host.missing` for an unknown name, and TypeError for a function that does not take
    the arguments of its tool."""
    refuse_unknown_names(package, options)
    clock = options.get("clock") or _system_clock()
    model: Any = options.get("model")
    if isinstance(model, Mapping):
        model = {name: _to_model(each, clock) for name, each in model.items()}
    elif model is not None:
        model = _to_model(model, clock)
    return HostPorts(
        clock,
        providers_by_name(package, model),
        {name: _to_executor(package, name, tool, clock) for name, tool in options.get("tools", {}).items()},
        dict(options.get("hooks", {})),
        {name: _to_sink(sink, clock) for name, sink in options.get("sinks", {}).items()},
        to_approver(options.get("approver"), clock),
        model is not None,
    )


def _system_clock() -> Clock:
    from agentrun.engine.event_loop import SystemClock  # late: a step clock needs no event loop

    return SystemClock()


def _to_model(model: Provider | ModelFunction, clock: Clock) -> Provider:
    if hasattr(model, "ask"):
        return model
    from agentrun.engine.functions import FunctionModel  # late: only if a function is passed

    return FunctionModel(model, clock)


def _to_executor(package: Package, name: str, tool: Executor | ToolFunction, clock: Clock) -> Executor:
    if hasattr(tool, "run"):
        return tool
    from agentrun.engine.functions import FunctionTool, check_parameters  # late: only if a function is passed

    label = f"`tools[{quote_text(name)}]`"
    tools = [each.tools for each in iterate_packages(package)]
    schemas = [schemas[name] for each in tools if name in (schemas := argument_schemas(each))]
    if not schemas:
        raise TypeError(f"{label} is for several tools, so it must be an object with a method `run`, not a function")
    for schema in schemas:
        own = next((each[name] for each in tools if name in each), None)
        defaults = getattr(own, "defaults", UNSET)
        if not getattr(own, "actions", {}):
            check_parameters(label, tool, schema, () if defaults is UNSET else defaults)
    return FunctionTool(tool, clock)


def _to_sink(sink: SinkPort | SinkFunction, clock: Clock) -> SinkPort:
    if hasattr(sink, "deliver"):
        return sink
    from agentrun.engine.functions import FunctionSink  # late: only if a function is passed

    return FunctionSink(sink, clock)


# --- the world of a run ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_host_world(
    package: Package,
    ports: HostPorts,
    run: str,
    *,
    journals: Journals,
    place: Path,
    env_file: str | PathLike[str] | None = None,
    blobs: Blobs | None = None,
    inbox: Inbox | None = None,
    listen: Listener = lambda run, news: None,
    clients: HttpClients | None = None,
) -> AsyncIterator[World]:
    """The world of a run with these ports. `place`: a path in its project. Raises `host.missing`, `provider.not_found`,
    `package.invalid`."""
    rest = without_replaced_parts(package, ports)
    own: dict[str, Any] = {"journals": journals, "listen": listen, "inbox": inbox, "approver": ports.approver}
    if isinstance(ports.clock, StepClock) or (ports.has_models and not _needs_real_parts(rest)):
        memory = MemoryBlobs() if blobs is None else blobs
        yield hosted_world((), **own, run=run, blobs=memory, **_replaced(ports))
        return
    from agentrun.engine.http_clients import shared_clients  # late: Rule 1
    from agentrun.engine.worlds.live import closing_functions, world_with_ports  # late: Rule 1

    live = _live_ports(package, rest, ports, place, env_file, clients or await shared_clients())
    given = _replaced(ports)
    for name in ("providers", "executors", "hooks", "sinks"):
        given[name] = {**live[name], **given[name]}
    async with AsyncExitStack() as opened:
        for close in closing_functions(live):
            opened.push_async_callback(close)
        yield world_with_ports({**live, **given}, run, blobs=blobs, **own)


def _live_ports(
    package: Package,
    rest: Package,
    ports: HostPorts,
    place: Path,
    env_file: str | PathLike[str] | None,
    clients: HttpClients,
) -> dict[str, Any]:
    """The live ports of a run. Ports that need no closing are kept for the next run of the same package, as long as the
    environment and the files with variables do not change."""
    from agentrun.engine.live_providers import live_settings  # late: Rule 1
    from agentrun.engine.settings import environment_state  # late: Rule 1
    from agentrun.engine.worlds.live import closing_functions, make_live_ports  # late: Rule 1

    project, file = find_project(place), None if env_file is None else Path(env_file)
    names = (ports.has_models, frozenset(ports.executors), frozenset(ports.hooks), frozenset(ports.sinks))
    key = (id(package), project, file, names, environment_state(project.root, file))
    if (kept := clients.kept.get(key)) is not None:
        return dict(kept[1])
    settings = live_settings(package, project.root, file)
    live = make_live_ports(package, project, settings, clients, models=not ports.has_models, parts=rest)
    if not closing_functions(live):
        while len(clients.kept) >= MAX_KEPT_PORTS:
            del clients.kept[next(iter(clients.kept))]
        clients.kept[key] = package, live  # with the package, so that its id is not used again
    return live


def _replaced(ports: HostPorts) -> dict[str, Any]:
    return {
        "clock": ports.clock,
        "crews": CrewRegistry(ports.clock),
        "providers": ports.providers,
        "executors": ports.executors,
        "hooks": ports.hooks,
        "sinks": ports.sinks,
    }


def without_replaced_parts(package: Package, ports: HostPorts) -> Package:
    """The package with the tools, hooks and sinks that run for real."""
    servers = {name.partition(".")[0] for name in ports.executors}
    return replace(
        package,
        tools={
            name: tool
            for name, tool in package.tools.items()
            if isinstance(tool, AgentTool) or not _is_replaced(ports.executors, servers, name, kind_tag(tool))
        },
        hooks=tuple(hook for hook in package.hooks if hook.id not in ports.hooks),
        sinks={
            name: sink
            for name, sink in package.sinks.items()
            if sink.delivery != "disabled" and name not in ports.sinks and kind_tag(sink) not in ports.sinks
        },
        agents={name: without_replaced_parts(agent, ports) for name, agent in package.agents.items()},
    )


def _is_replaced(executors: Iterable[str], servers: Iterable[str], name: str, kind: str) -> bool:
    return name in executors or kind in executors or (kind == "mcp" and name in servers)


def _needs_real_parts(package: Package) -> bool:
    return any(
        each.hooks or each.sinks or any(not isinstance(tool, AgentTool) for tool in each.tools.values())
        for each in iterate_packages(package)
    )
