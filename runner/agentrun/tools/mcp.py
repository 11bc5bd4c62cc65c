"""Calls the tools of MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agentrun.core.effects import Returned, RunTool
from agentrun.net.environment import Lookup


class McpServers:
    """The servers of one run. Each is started when it is first needed, and serves all calls after that."""

    def __init__(
        self,
        root: Path,
        programs: Mapping[str, str],
        lookup: Lookup,
        *,
        clean: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._root = root
        self._programs = programs
        self._lookup = lookup
        self._clean = clean

    async def run(self, call: RunTool) -> Returned:
        raise NotImplementedError

    async def close(self) -> None:
        """End all servers."""
