"""The connection and session with one MCP server.

Rule 1  One task owns the connection: it opens it, lists the tools and closes it. Calls can come from any task.
Rule 2  Requests of the server are refused unless the spec declares them. Then `roots` is answered with the folder of
        the project, and `elicitation` and `sampling` are declined: there is no person to ask, and only the agent asks a
        model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from msgspec import Struct
from pydantic import FileUrl, ValidationError

from agentrun.canonical_json import fingerprint
from agentrun.compiler.lock_file import is_too_deep, with_exact_numbers
from agentrun.core import model_texts as texts
from agentrun.core.package_tools import McpTool
from agentrun.distribution import version
from agentrun.errors import AgentrunError
from agentrun.net.environment import Lookup, fill_variables, is_header_value
from agentrun.tools.mcp_http import McpExchange, current_exchange, streamable_http
from agentrun.tools.mcp_stdio import McpProtocolError, McpStreams, MessageFilter, open_stdio
from agentrun.tools.progress import ProgressListener

SAMPLING_REJECTED = types.ErrorData(code=-1, message="there is no model or person to ask")
MAX_CLOSE_SECONDS = 6.0
"""Seconds. The process of a server ends long before."""
logging.getLogger("mcp").addHandler(logging.NullHandler())  # keep messages of servers off standard error
logging.getLogger("client").addHandler(logging.NullHandler())  # the logger of the SDK's session
MAX_PAGES = 1000
MAX_LISTED_MCP_TOOLS = 20_000


class ServerNotStarted(Exception):
    """A server did not start. The message says why."""


class McpEnvironment(Struct, frozen=True):
    root: Path
    programs: Mapping[str, str]
    lookup: Lookup


class McpConnection:
    def __init__(self, tool: McpTool, site: McpEnvironment) -> None:
        self._tool = tool
        self._site = site
        self._traffic = MessageFilter()
        self._ends = asyncio.Event()
        self._session: ClientSession | None = None
        self.closed_reason: str | None = None
        self.tools: dict[str, ListedTool] = {}
        """The tools that the server listed last."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="mcp server")

    async def ready(self) -> None:
        """Wait until it is open and its tools are listed. Raises `ServerNotStarted`, `McpProtocolError`, MCPError."""
        await asyncio.shield(self.opened)
        if self._traffic.is_stale and self.closed_reason is None:
            self._traffic.is_stale = False
            try:
                with anyio.fail_after(self._tool.start_timeout / 1000):
                    self.tools = await list_tools(self._open)
            except BaseException as error:
                self._traffic.is_stale = True
                if isinstance(error, TimeoutError | ValidationError):
                    raise McpProtocolError(texts.MCP_LISTS_NO_TOOLS) from None
                raise

    async def call(self, name: str, arguments: dict[str, Any], hear: ProgressListener | None) -> types.CallToolResult:
        """Call a tool. Raises MCPError, and ValidationError for an invalid reply."""

        async def told(progress: float, total: float | None, message: str | None) -> None:
            assert hear is not None
            far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            hear(far if message is None else f"{far}: {message}")

        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        return await self._open.send_request(request, types.CallToolResult, progress_callback=told if hear else None)

    async def close(self) -> None:
        """Close the connection. When this returns, the process of the server has ended."""
        self.mark_closed(texts.MCP_ENDED)
        if not self.opened.done():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=MAX_CLOSE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def mark_closed(self, why: str) -> None:
        """Close the connection soon. Running calls fail."""
        self.closed_reason = self.closed_reason or why
        self._ends.set()

    @property
    def _open(self) -> ClientSession:
        assert self._session is not None
        return self._session

    async def _run(self) -> None:
        try:
            async with self._streams() as (read, write), self._new_session(read, write) as session:
                await self._begin(session)
                self._session = session
                self.opened.set_result(None)
                try:
                    await self._ends.wait()
                finally:
                    self.mark_closed(texts.MCP_ENDED)  # before the session informs those who wait
        except asyncio.CancelledError:
            self._end(texts.MCP_ENDED)
            raise
        except Exception as error:  # noqa: BLE001  # of a foreign library, and of groups of them: all mean the same
            self._end(_closing_reason(error))
        else:
            self._end(texts.MCP_ENDED)

    def _end(self, why: str) -> None:
        self.mark_closed(why)
        if not self.opened.done():
            self.opened.set_exception(ServerNotStarted(self.closed_reason))
            self.opened.exception()  # retrieved, because the caller may have been cancelled

    async def _begin(self, session: ClientSession) -> None:
        limit = self._tool.start_timeout
        first = McpExchange()
        current_exchange.set(first)
        try:
            with anyio.fail_after(limit / 1000):
                await session.initialize()
                self.tools = await list_tools(session)
        except TimeoutError:
            self.mark_closed(first.trouble or texts.MCP_SILENT.format(limit))
        except McpProtocolError as broken:
            self.mark_closed(str(broken))
        except (MCPError, ValidationError, RuntimeError) as error:
            self.mark_closed(first.trouble or first.refusal or texts.MCP_BAD_START.format(_first_line(error)))
        if self.closed_reason is not None:
            raise McpProtocolError(self.closed_reason)

    def _streams(self) -> AbstractAsyncContextManager[McpStreams]:
        tool, lookup = self._tool, self._site.lookup
        if tool.url is None:
            env = {name: fill_variables(value, lookup) for name, value in tool.env.items()}
            program = self._site.programs[tool.command[0]]
            return open_stdio(
                program, [program, *tool.command[1:]], env, self._site.root, self._traffic, self.mark_closed
            )
        headers = {name: fill_variables(value, lookup) for name, value in tool.headers.items()}
        if not all(map(is_header_value, headers.values())):
            raise McpProtocolError(texts.MCP_BAD_HEADER)
        return streamable_http(
            fill_variables(tool.url, lookup),
            headers,
            private_network=tool.private_network,
            silence=max(tool.timeout, tool.start_timeout) / 1000 + 1,
            traffic=self._traffic,
            over=self.mark_closed,
        )

    def _new_session(self, read: Any, write: Any) -> ClientSession:
        allowed = self._tool.requests
        return ClientSession(
            read,
            write,
            client_info=types.Implementation(name="agentrun", version=version()),
            sampling_callback=_reject_sampling if "sampling" in allowed else None,
            elicitation_callback=_decline_elicitation if "elicitation" in allowed else None,
            list_roots_callback=self._roots if "roots" in allowed else None,
        )

    async def _roots(self, context: ClientRequestContext) -> types.ListRootsResult:  # noqa: ARG002  # the SDK's signature
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(self._site.root.resolve().as_uri()), name="project")]
        )


async def _reject_sampling(context: ClientRequestContext, params: Any) -> types.ErrorData:  # noqa: ARG001  # the SDK's signature
    return SAMPLING_REJECTED


async def _decline_elicitation(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:  # noqa: ARG001  # the SDK's signature
    return types.ElicitResult(action="decline")


def _closing_reason(error: BaseException) -> str:
    """Why a connection failed. Texts of libraries may contain an address, so only some of them are shown."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case McpProtocolError():
            return str(error)
        case AgentrunError():
            return error.message
        case OSError():
            return texts.MCP_CANNOT_START.format(error.strerror)
        case ValueError():
            return texts.MCP_NOT_STARTABLE
        case _:
            return texts.MCP_CONNECTION_FAILED.format(type(error).__name__)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return texts.MCP_BAD_REPLY
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class ListedTool(Struct, frozen=True):
    name: str
    description: str
    schema: dict[str, Any]

    @property
    def digest(self) -> str | None:
        """The hash for the pin. None: the tool cannot be pinned."""
        if is_too_deep(self.schema):
            return None
        try:
            parts = {"name": self.name, "description": self.description, "args": with_exact_numbers(self.schema)}
            return fingerprint(parts)
        except (TypeError, ValueError, OverflowError):  # an unpaired surrogate, an infinite number
            return None


async def list_tools(session: ClientSession) -> dict[str, ListedTool]:
    """All tools of a server, by name. Raises `McpProtocolError`, and the errors of the session."""
    found: dict[str, ListedTool] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        page = await session.send_request(types.ListToolsRequest(params=params), types.ListToolsResult)
        for tool in page.tools:
            if tool.name in found:
                raise McpProtocolError(texts.MCP_LISTED_TWICE.format(tool.name[:60]))
            found[tool.name] = ListedTool(tool.name, tool.description or "", tool.input_schema)
        if len(found) > MAX_LISTED_MCP_TOOLS:
            raise McpProtocolError(texts.MCP_TOO_MANY_TOOLS.format(MAX_LISTED_MCP_TOOLS))
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
    raise McpProtocolError(texts.MCP_TOO_MANY_PAGES.format(MAX_PAGES))
