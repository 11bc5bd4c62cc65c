"""The sources of Python tools in the metadata of a cassette, because a replay uses what they returned then.

Rule 1  Anyone may have edited the metadata. Metadata of the wrong form, and cassettes without it, say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentrun.cassette.interactions import Interaction
from agentrun.core.package import Package
from agentrun.core.package_tools import PythonTool

TOOL_SOURCES_KEY = "tool_sources"


def tool_sources(package: Package) -> dict[str, str]:
    """The hash of the source of each Python tool. Tools of sub-agents have names such as `reader/search`."""
    own = {name: tool.source for name, tool in package.tools.items() if isinstance(tool, PythonTool)}
    return own | {
        f"{agent}/{name}": source
        for agent, inner in package.agents.items()
        for name, source in tool_sources(inner).items()
    }


def recorded_tool_sources(package: Package, before: Mapping[str, Any], reused: Iterable[Interaction]) -> dict[str, str]:
    """The sources for a new recording. A tool whose results are reused keeps its source in the metadata `before`."""
    kept = {each.call.url.removeprefix("tool://") for each in reused if each.call.method == "CALL"}
    old = _recorded_sources(before)
    return {
        name: old.get(name, source) if name.rpartition("/")[2] in kept else source
        for name, source in tool_sources(package).items()
    }


def changed_tools(metadata: Mapping[str, Any], package: Package) -> tuple[str, ...]:
    """The tools whose source changed since the recording."""
    recorded = _recorded_sources(metadata)
    now = tool_sources(package) if recorded else {}
    return tuple(name for name, source in now.items() if recorded.get(name, source) != source)


def _recorded_sources(metadata: Mapping[str, Any]) -> dict[str, str]:
    sources = metadata.get(TOOL_SOURCES_KEY)
    is_valid = isinstance(sources, dict) and all(isinstance(part, str) for pair in sources.items() for part in pair)
    return sources if isinstance(sources, dict) and is_valid else {}
