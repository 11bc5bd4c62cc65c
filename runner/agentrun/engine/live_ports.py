"""Who does for real what the tools, hooks and sinks of a package ask for.

Rule 1  What a package needs and this machine lacks is found before the run starts, all of it: commands that are not
        installed, variables that are not set.
Rule 2  Only what a package names is made, and imported.
Rule 3  Close them at the end: what was started for the run ends with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentrun.core.package import Package
from agentrun.engine.lacks import programs_of
from agentrun.engine.ports import Executor, Hook, SinkPort
from agentrun.engine.world import kind_of, packages_of
from agentrun.net.environment import Lookup
from agentrun.wire import Sender


class Site(Struct, frozen=True, kw_only=True):
    """Where a run takes place."""

    root: Path
    """The project. No path of a tool or a sink leads out of it."""
    import_roots: tuple[Path, ...]
    """The folders under which Python tools and hooks are found."""
    lookup: Lookup
    """The value of a variable of the environment. Raises `host.missing`."""
    sender: Sender
    """Sends the requests of HTTP tools and sinks."""
    clean: Callable[[str], str] = lambda text: text
    """Takes out of a text what must not be shown."""
    printed: Callable[[str, str], None] = lambda tool, text: None
    """Told what a Python tool printed."""
    write: Callable[[str], None] = print
    """Writes a line to standard output, for a sink."""


class LivePorts(Struct, kw_only=True):
    """Who does it, by name or kind."""

    executors: dict[str, Executor] = {}
    hooks: dict[str, Hook] = {}
    sinks: dict[str, SinkPort] = {}
    programs: dict[str, str] = {}
    """The file of each command."""

    async def close(self) -> None:
        for part in (*self.executors.values(), *self.sinks.values()):
            if (close := getattr(part, "close", None)) is not None:
                await close()


def live_ports(package: Package, site: Site) -> LivePorts:
    """Everybody that a package and its sub-agents name. Raises `host.missing`."""
    packages = tuple(packages_of(package))
    tools = [tool for each in packages for tool in each.tools.values()]
    sinks = [sink for each in packages for sink in each.sinks.values() if sink.delivery != "disabled"]
    ports = LivePorts(programs=programs_of(packages, site.root, site.lookup))
    for kind in sorted({kind_of(tool) for tool in tools} - {"agent"}):
        ports.executors[kind] = _executor(kind, site, ports.programs)
    if hooks := [hook for each in packages for hook in each.hooks]:
        from agentrun.tools.hooks import python_hooks  # late: Rule 2

        ports.hooks = python_hooks(site.import_roots, hooks, printed=site.printed, clean=site.clean)
    for kind in sorted({kind_of(sink) for sink in sinks}):
        ports.sinks[kind] = _sink(kind, site)
    return ports


def _executor(kind: str, site: Site, programs: dict[str, str]) -> Executor:
    match kind:
        case "python":
            from agentrun.tools.python import PythonTools  # late: Rule 2

            return PythonTools(site.import_roots, printed=site.printed, clean=site.clean)
        case "http":
            from agentrun.tools.http import HttpTools  # late: Rule 2

            return HttpTools(site.sender)
        case "shell":
            from agentrun.tools.shell import ShellTools  # late: Rule 2

            return ShellTools(site.root, programs, site.lookup)
        case _:
            from agentrun.tools.mcp import McpServers  # late: Rule 2

            return McpServers(site.root, programs, site.lookup, clean=site.clean)


def _sink(kind: str, site: Site) -> SinkPort:
    if kind == "http":
        from agentrun.tools.http_sink import HttpSinks  # late: Rule 2

        return HttpSinks(site.sender)
    from agentrun.tools.sinks import FileSinks, JsonlSinks, StdoutSinks  # late: Rule 2

    made: dict[str, Any] = {
        "file": lambda: FileSinks(site.root),
        "jsonl": lambda: JsonlSinks(site.root),
        "stdout": lambda: StdoutSinks(site.write),
    }
    sink: SinkPort = made[kind]()
    return sink
