"""What a package may ask for and nothing here does yet.

Running it all the same would ignore what its author wrote, so it is refused. A test lists these keys; each
leaves with the part that implements it, until the list is empty.

A spec is looked at first: every key that is written counts, whatever its value. A package is looked at once more,
whoever made it: there only values count that would change the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.core.package import Package
from agentrun.core.package_tools import PythonTool, Tool
from agentrun.errors import HostError
from agentrun.spec.problems import Place, Problem
from agentrun.spec.tree import Mapping, plain

UNBUILT: dict[str, Callable[[Package], bool]] = {
    "tools": lambda package: any(not _runs(tool) for tool in package.tools.values()),
    "sinks": lambda package: any(sink.delivery != "disabled" for sink in package.sinks.values()),
    "hooks": lambda package: bool(package.hooks),
}


def _runs(tool: Tool) -> bool:
    return isinstance(tool, PythonTool) and tool.isolation == "thread"


def unbuilt(package: Package) -> list[str]:
    """The keys of a package that nothing implements yet."""
    return [key for key, asked in UNBUILT.items() if asked(package)]


def refuse_unbuilt(package: Package) -> None:
    if keys := unbuilt(package):
        raise HostError(
            "host.missing",
            f"this version does not implement {', '.join(keys)}",
            hint="remove it from the spec, or wait for the version that does",
            fields={"name": keys[0], "keys": keys},
        )


BUILT: dict[str, tuple[str, ...] | None] = {
    "agentrun": None,
    "name": None,
    "description": None,
    "params": None,
    "profiles": None,
    "instructions": None,
    "input": None,
    "model": None,
    "tools": None,
    "policy": None,
    "budgets": None,
    "limits": (
        *("parallel_tools", "on_oversize_batch", "tool_timeout", "stream_gap", "call_time"),
        *("on_truncated", "truncations", "output_lines", "output_bytes"),
    ),
    "guards": None,
    "retry": None,
    "context": None,
    "admission": None,
    "output": None,
    "session": None,
    "replay": None,
}
"""The keys of a spec that are acted on, and inside a key those of its own (None: all of them)."""


def unbuilt_problems(root: Mapping) -> list[Problem]:
    """Every key that is written in a spec and that nothing implements yet, at its place."""
    problems = []
    for key, entry in root.entries.items():
        if key not in BUILT:
            problems += [] if plain(entry.node) in ({}, []) else [_problem(key, entry.key_place)]
            continue
        inner = BUILT[key]
        if inner is not None and isinstance(entry.node, Mapping):
            for name, below in entry.node.entries.items():
                if name not in inner:
                    problems.append(_problem(f"{key}.{name}", below.key_place))
    return [*problems, *_unbuilt_tools(root)]


def _unbuilt_tools(root: Mapping) -> Iterator[Problem]:
    tools = root.entries["tools"].node if "tools" in root.entries else None
    for entry in tools.entries.values() if isinstance(tools, Mapping) else ():
        tool = entry.node
        if not isinstance(tool, Mapping) or "kind" not in tool.entries:
            continue
        if (kind := plain(tool.entries["kind"].node)) != "python":
            yield _problem(f"a tool of kind {kind}", tool.entries["kind"].key_place)
        elif "isolation" in tool.entries and plain(tool.entries["isolation"].node) != "thread":
            yield _problem("isolation: process", tool.entries["isolation"].key_place)


def _problem(key: str, place: Place) -> Problem:
    message = f"{key} cannot be run by this version"
    return Problem(place, "spec.not_built", message, "remove it, or wait for the version that runs it")
