"""Call the tools of one MCP server.

Rule 1  Before a call, the tools of the server are compared with their pins, and again after the server reports a
        change. A missing or changed tool ends the run (`tool.drift`). Tools without a pin are ignored.
Rule 2  If a server is lost, its running calls are not sent again. The outcome of a call that must not be repeated is
        unknown (`tool.indeterminate`). The next call starts the server again, at most three times in all.
Rule 3  Other failures are results for the model: one line, without secrets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from mcp import types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agentrun.compiler.lock_file import escape_invisible_lines
from agentrun.core import model_texts as texts
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, text_of
from agentrun.core.package import tool_effect
from agentrun.core.package_tools import McpTool
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible
from agentrun.tools.mcp_connection import McpConnection, McpEnvironment, ServerNotStarted
from agentrun.tools.mcp_http import McpExchange, current_exchange
from agentrun.tools.mcp_stdio import McpProtocolError
from agentrun.tools.progress import current_listener

MAX_STARTS = 3
MAX_MCP_ERROR = 300
DRIFT_HINT = "to see what changed, run agentrun lock SPEC --check; to accept it, run agentrun lock SPEC"


class McpServer:
    def __init__(self, site: McpEnvironment, clean: Callable[[str], str]) -> None:
        self._site = site
        self._clean = clean
        self._connection: McpConnection | None = None
        self._starts = 0
        self._turn = asyncio.Lock()

    async def run(self, call: RunTool, tool: McpTool) -> ToolReturn:
        try:
            async with self._turn:
                connection = await self._ready(tool)
        except ServerNotStarted as error:
            return self._failed_result(call, texts.MCP_NOT_STARTED.format(error), "start")
        except (McpProtocolError, MCPError) as error:
            return self._failed_result(call, texts.MCP_UNUSABLE.format(error), "list")
        return _find_drift(call, tool, connection) or await self._call(call, connection)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _ready(self, tool: McpTool) -> McpConnection:
        if self._connection is not None and self._connection.closed_reason is not None:
            await self._connection.close()
            self._connection = None
        if self._connection is None:
            if self._starts >= MAX_STARTS:
                raise ServerNotStarted(texts.MCP_STARTED_TOO_OFTEN.format(MAX_STARTS))
            self._starts += 1
            self._connection = McpConnection(tool, self._site)
        await self._connection.ready()
        return self._connection

    async def _call(self, call: RunTool, connection: McpConnection) -> ToolReturn:
        under_way = McpExchange()
        token = current_exchange.set(under_way)
        try:
            result = await connection.call(call.name.partition(".")[2], call.arguments, current_listener())
        except MCPError as error:
            if under_way.is_session_unknown:
                connection.mark_closed(texts.MCP_SESSION_OVER)
            if under_way.refusal is not None or (under_way.trouble is None and connection.closed_reason is None):
                return self._failed_result(call, ": ".join(filter(None, (under_way.refusal, error.message))), "error")
            return self._lost_result(call, connection, under_way)
        except ValidationError:
            return self._failed_result(call, texts.MCP_BAD_REPLY, "reply")
        finally:
            current_exchange.reset(token)
        parts = result_parts(result)
        fault = self._fault(call, text_of(parts) or texts.MCP_TOOL_FAILED, "tool") if result.is_error else None
        return ToolReturn(parts, fault)

    def _lost_result(self, call: RunTool, connection: McpConnection, under_way: McpExchange) -> ToolReturn:
        connection.mark_closed(under_way.trouble or texts.MCP_CONNECTION_LOST)
        is_sent = under_way.sent or under_way.trouble is None
        message = texts.MCP_LOST.format(under_way.trouble or connection.closed_reason)
        if is_sent and tool_effect(call.tool, call.name) == "at_most_once":
            fault = Fault("tool.indeterminate", self._line(message), {"tool": call.name, "call": call.id})
            return ToolReturn(fault=fault)
        return self._failed_result(call, message, "lost")

    def _failed_result(self, call: RunTool, message: str, reason: str) -> ToolReturn:
        return ToolReturn(fault=self._fault(call, message, reason))

    def _fault(self, call: RunTool, message: str, reason: str) -> Fault:
        return Fault("tool.execution", self._line(message), {"tool": call.name, "reason": reason})

    def _line(self, text: str) -> str:
        """A message on one line, masked and shortened."""
        clean = escape_invisible(mask(self._clean(text.encode("utf-8", "replace").decode())))
        return clean if len(clean) <= MAX_MCP_ERROR else clean[:MAX_MCP_ERROR] + "…"


def _find_drift(call: RunTool, tool: McpTool, connection: McpConnection) -> ToolReturn | None:
    """The fault for the first tool that does not match its pin."""
    server = call.name.partition(".")[0]
    for name, pinned in tool.pinned.items():
        found = connection.tools.get(name)
        digest = None if found is None else found.digest
        if digest == pinned.digest:
            continue
        what = "is gone"
        if found is not None:
            same = escape_invisible_lines(found.description) == pinned.description
            what = f"is not the one that was pinned: its {'schema' if same else 'description'} has changed"
        fields = {"tool": f"{server}.{name}", "pinned": pinned.digest, "found": digest}
        message = f"the tool {server}.{name} {what}"
        return ToolReturn(fault=Fault("tool.drift", message, fields, DRIFT_HINT))
    return None


def result_parts(result: types.CallToolResult) -> tuple[Text, ...]:
    texts = [_block_text(block) for block in result.content]
    if (
        not any(isinstance(block, types.TextContent) for block in result.content)
        and result.structured_content is not None
    ):
        texts.append(json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":")))
    return tuple(Text(text.encode("utf-8", "replace").decode()) for text in texts)


def _block_text(block: Any) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return texts.mcp_attachment(block.type, block.mime_type, _size(block.data))
        case types.ResourceLink():
            about = " ".join(filter(None, (block.title or block.name, block.description)))
            return texts.MCP_LINK.format(block.uri, about)
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inside):
            return texts.mcp_attachment(f"resource {inside.uri}", inside.mime_type, _size(inside.blob))
        case types.EmbeddedResource(resource=types.TextResourceContents() as inside):
            return f"{texts.MCP_RESOURCE.format(inside.uri)}\n{inside.text}"
        case _:
            return texts.MCP_UNKNOWN_CONTENT


def _size(data: str) -> int:
    """The number of bytes in base64 data."""
    return len(data) * 3 // 4 - data[-2:].count("=")
