"""Run the tools of MCP servers.

Rule 1  A server is started for the first call and then serves all calls of the run, including those of sub-agents that
        declare the same server. It ends with the run.
Rule 2  The MCP SDK is an extra. Without it, a run with MCP tools does not start. It is imported for the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.package_tools import McpTool
from agentrun.errors import HostError
from agentrun.net.environment import Lookup

if TYPE_CHECKING:
    from agentrun.tools.mcp_calls import McpServer


class McpServers:
    def __init__(
        self,
        root: Path,
        programs: Mapping[str, str],
        lookup: Lookup,
        *,
        clean: Callable[[str], str] = lambda text: text,
    ) -> None:
        """Raises `host.missing` if the SDK is not installed."""
        require_mcp_sdk()
        self._root = root
        self._programs = programs
        self._lookup = lookup
        self._clean = clean
        self._servers: dict[bytes, McpServer] = {}

    async def run(self, call: RunTool) -> ToolReturn:
        from agentrun.tools.mcp_calls import McpServer  # late: Rule 2
        from agentrun.tools.mcp_connection import McpEnvironment  # late: Rule 2

        assert isinstance(call.tool, McpTool)
        tool = call.tool
        env, headers = sorted(tool.env.items()), sorted(tool.headers.items())  # equal declarations share one server
        key = sorted_json((tool.command, tool.url, env, headers, tool.private_network, tool.requests))
        if key not in self._servers:
            self._servers[key] = McpServer(McpEnvironment(self._root, self._programs, self._lookup), self._clean)
        return await self._servers[key].run(call, tool)

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(server.close() for server in servers.values()))


def require_mcp_sdk() -> None:
    """Raise `host.missing` if the SDK is not installed."""
    if find_spec("mcp") is None:
        from agentrun.distribution import install_hint  # late: only for this hint

        fields = {"name": "mcp", "what": "package"}
        raise HostError("host.missing", "MCP servers need the package mcp", hint=install_hint("mcp"), fields=fields)
