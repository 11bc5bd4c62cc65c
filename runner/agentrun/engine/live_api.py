"""Runs in real time for `agentrun.run`: tools, hooks and sinks that the caller does not replace run for real.

Rule 1  For a tool, hook or sink of the caller, nothing is imported and no variable or command is required.
Rule 2  Only what the other ports need is imported. If the caller replaces the model and everything else, no
        environment variable is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentrun.core.outcome import Ending
from agentrun.core.package import Package
from agentrun.core.package_tools import AgentTool
from agentrun.engine.handle import RunHandle
from agentrun.engine.runtime import Runtime
from agentrun.engine.world import iterate_packages, kind_tag
from agentrun.spec.project import find_project


async def run_in_event_loop(
    package: Package,
    arguments: dict[str, Any],
    project: Path,
    env_file: Path | None,
    begin: Callable[[Runtime], RunHandle],
) -> Ending:
    """Run to the end. `arguments`: those of the runtime; `project`: a path in the project."""
    rest, live = _without_replaced_ports(package, arguments), arguments.pop("live")
    if not live and not _needs_real_ports(rest):
        return await wait_or_cancel(begin(Runtime.in_memory(**arguments)))
    from agentrun.engine.live_providers import live_settings  # late: Rule 2

    found = find_project(project)
    options = {"models": live, "parts": rest, "settings": live_settings(package, found.root, env_file)}
    async with (
        Runtime.in_memory(**arguments) as runtime,
        runtime.live_world(package, found, **options) as world,
    ):
        runtime.add_ports(world)
        await world.prepare()
        return await wait_or_cancel(begin(runtime))


async def wait_or_cancel(handle: RunHandle) -> Ending:
    """Wait for the end of a run. If the wait is cancelled, the run is cancelled too."""
    try:
        return await handle.wait()
    except asyncio.CancelledError:  # end the run while its journal can still be written
        handle.cancel("host")
        with suppress(Exception):
            await asyncio.shield(handle.wait())
        raise


def _without_replaced_ports(package: Package, arguments: Mapping[str, Mapping[str, Any]]) -> Package:
    executors, hooks, sinks = arguments["executors"], arguments["hooks"], arguments["sinks"]
    servers = {name.partition(".")[0] for name in executors}
    return replace(
        package,
        tools={
            name: tool
            for name, tool in package.tools.items()
            if isinstance(tool, AgentTool) or not _is_replaced(executors, servers, name, kind_tag(tool))
        },
        hooks=tuple(hook for hook in package.hooks if hook.id not in hooks),
        sinks={
            name: sink
            for name, sink in package.sinks.items()
            if sink.delivery != "disabled" and name not in sinks and kind_tag(sink) not in sinks
        },
        agents={name: _without_replaced_ports(agent, arguments) for name, agent in package.agents.items()},
    )


def _is_replaced(executors: Iterable[str], servers: Iterable[str], name: str, kind: str) -> bool:
    return name in executors or kind in executors or (kind == "mcp" and name in servers)


def _needs_real_ports(package: Package) -> bool:
    return any(
        each.hooks or each.sinks or any(not isinstance(tool, AgentTool) for tool in each.tools.values())
        for each in iterate_packages(package)
    )
