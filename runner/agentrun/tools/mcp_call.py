"""Calls the tools of one MCP server.

Rule 1  Before a call the tools of the server are compared with their pins; again when it says that they changed. One
        that is missing or different ends the run (`tool.drift`). Tools that are not pinned do not exist.
Rule 2  When a server is lost, so are the calls under way: nobody sends them again. Of one that must not be repeated
        nobody knows whether it took effect (`tool.indeterminate`). The next call may start the server once more, three
        times in all.
Rule 3  What goes wrong is a result that the model reads: one line, without secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult
from pydantic import ValidationError

from agentrun.compiler.foreign import visible_lines
from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.messages import words
from agentrun.core.names import effect_of
from agentrun.core.package_tools import McpTool
from agentrun.secret import mask
from agentrun.spec.problems import visible
from agentrun.tools.mcp_http import Exchange, exchange
from agentrun.tools.mcp_results import parts_of
from agentrun.tools.mcp_server import Connection, NotStarted, Site
from agentrun.tools.mcp_traffic import Broken
from agentrun.tools.progress import hearing

__all__ = ["Server", "Site"]

MOST_STARTS = 3
LONGEST_MESSAGE = 300
AGAIN = "see what changed: agentrun lock SPEC --check; without --check it is accepted"


class Server:
    """One server, however often it has to be started."""

    def __init__(self, site: Site, clean: Callable[[str], str]) -> None:
        self._site = site
        self._clean = clean
        self._connection: Connection | None = None
        self._starts = 0
        self._turn = asyncio.Lock()

    async def run(self, call: RunTool, tool: McpTool) -> Returned:
        try:
            async with self._turn:
                connection = await self._ready(tool)
        except NotStarted as error:
            return self._failed(call, f"the server did not start: {error}", "start")
        except (Broken, MCPError) as error:
            return self._failed(call, f"the server cannot be used: {error}", "list")
        return _drifted(call, tool, connection) or await self._called(call, connection)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _ready(self, tool: McpTool) -> Connection:
        """A connection whose tools are known."""
        if self._connection is not None and self._connection.why is not None:
            await self._connection.close()
            self._connection = None
        if self._connection is None:
            if self._starts >= MOST_STARTS:
                raise NotStarted(f"it was started {MOST_STARTS} times, which is enough")
            self._starts += 1
            self._connection = Connection(tool, self._site)
        await self._connection.ready()
        return self._connection

    async def _called(self, call: RunTool, connection: Connection) -> Returned:
        under_way = Exchange()
        token = exchange.set(under_way)
        try:
            result = await connection.call(call.name.partition(".")[2], call.arguments, hearing())
        except MCPError as error:
            if under_way.is_forgotten:
                connection.over("its session is over")
            if under_way.refusal is not None or (under_way.trouble is None and connection.why is None):
                return self._failed(call, ": ".join(filter(None, (under_way.refusal, error.message))), "error")
            return self._lost(call, connection, under_way)
        except ValidationError:
            return self._failed(call, "the reply is not what the protocol says", "reply")
        finally:
            exchange.reset(token)
        return self._given(call, result)

    def _given(self, call: RunTool, result: CallToolResult) -> Returned:
        parts = parts_of(result)
        if not result.is_error:
            return Returned(parts)
        return Returned(parts, self._fault(call, words(parts) or "the tool failed", "tool"))

    def _lost(self, call: RunTool, connection: Connection, under_way: Exchange) -> Returned:
        """A call whose server was lost."""
        connection.over(under_way.trouble or "the connection is lost")
        is_sent = under_way.sent or under_way.trouble is None
        message = f"the server was lost during the call: {under_way.trouble or connection.why}"
        if is_sent and effect_of(call.tool, call.name) == "at_most_once":
            fault = Fault("tool.indeterminate", self._line(message), {"tool": call.name, "call": call.id})
            return Returned(fault=fault)
        return self._failed(call, message, "lost")

    def _failed(self, call: RunTool, message: str, reason: str) -> Returned:
        return Returned(fault=self._fault(call, message, reason))

    def _fault(self, call: RunTool, message: str, reason: str) -> Fault:
        return Fault("tool.execution", self._line(message), {"tool": call.name, "reason": reason})

    def _line(self, text: str) -> str:
        """A message without secrets, on one line, and not all of it if it is long."""
        clean = visible(mask(self._clean(text.encode("utf-8", "replace").decode())))
        return clean if len(clean) <= LONGEST_MESSAGE else clean[:LONGEST_MESSAGE] + "…"


def _drifted(call: RunTool, tool: McpTool, connection: Connection) -> Returned | None:
    """The first tool that is not as it was pinned."""
    server = call.name.partition(".")[0]
    for name, pinned in tool.pinned.items():
        found = connection.tools.get(name)
        digest = None if found is None else found.digest
        if digest == pinned.digest:
            continue
        what = "is gone"
        if found is not None:
            same = visible_lines(found.description) == pinned.description
            what = f"is not the one that was pinned: its {'schema' if same else 'description'} has changed"
        fields = {"tool": f"{server}.{name}", "pinned": pinned.digest, "found": digest}
        message = f"the tool {server}.{name} {what}"
        return Returned(fault=Fault("tool.drift", message, fields, AGAIN))
    return None
