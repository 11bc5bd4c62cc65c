"""A connection with one MCP server, and the session that is held over it.

Rule 1  One task holds the connection: it opens it, reads the list of tools, and closes it. Calls come from anywhere.
Rule 2  A server answers `initialize` and lists its tools within its time, or it did not start.
Rule 3  Requests of the server are refused, unless the spec declares them. Then `roots` is answered with the folder of
        the project; `elicitation` and `sampling` are answered as a person would who says no: there is nobody to ask,
        and a model is asked by the agent alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    Root,
)
from msgspec import Struct
from pydantic import FileUrl, ValidationError

from agentrun.core.package_tools import McpTool
from agentrun.distribution import version
from agentrun.errors import AgentrunError
from agentrun.net.environment import Lookup, filled, is_field
from agentrun.tools.mcp_http import Exchange, exchange, streamable_http
from agentrun.tools.mcp_listing import Listed, listed_tools
from agentrun.tools.mcp_stdio import Streams, stdio
from agentrun.tools.mcp_traffic import Broken, Traffic
from agentrun.tools.progress import Hear

REJECTED = ErrorData(code=-1, message="nobody is here to be asked")
LONGEST_CLOSE = 6.0
"""Seconds. A server's process is gone long before."""
logging.getLogger("mcp").addHandler(logging.NullHandler())  # what a server says is not for our standard error
logging.getLogger("client").addHandler(logging.NullHandler())  # as the SDK calls its session


class NotStarted(Exception):
    """A server that did not start, in words."""


class Site(Struct, frozen=True):
    """Where servers are started."""

    root: Path
    programs: Mapping[str, str]
    """The file of each command."""
    lookup: Lookup


class Connection:
    """One connection, from its opening to its end."""

    def __init__(self, tool: McpTool, site: Site) -> None:
        self._tool = tool
        self._site = site
        self._traffic = Traffic()
        self._ends = asyncio.Event()
        self._session: ClientSession | None = None
        self.why: str | None = None
        """Why it is of no use any more."""
        self.tools: dict[str, Listed] = {}
        """What the server listed last."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(), name="mcp server")

    async def ready(self) -> None:
        """Wait until it is open, and its list of tools is what it is now. Raises `NotStarted`, `Broken`, MCPError."""
        await asyncio.shield(self.opened)
        if self._traffic.is_stale and self.why is None:
            self._traffic.is_stale = False
            try:
                with anyio.fail_after(self._tool.start_timeout / 1000):
                    self.tools = await listed_tools(self._open)
            except BaseException as error:
                self._traffic.is_stale = True
                if isinstance(error, TimeoutError | ValidationError):
                    raise Broken("it does not list its tools any more") from None
                raise

    async def call(self, name: str, arguments: dict[str, Any], hear: Hear | None) -> CallToolResult:
        """What a tool gives. Raises MCPError, and ValidationError for a reply that is none."""

        async def told(progress: float, total: float | None, message: str | None) -> None:
            assert hear is not None
            far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            hear(far if message is None else f"{far}: {message}")

        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        return await self._open.send_request(request, CallToolResult, progress_callback=told if hear else None)

    async def close(self) -> None:
        """End it. When this returns, its process is gone."""
        self.over("it was ended")
        if not self.opened.done():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=LONGEST_CLOSE)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def over(self, why: str) -> None:
        """Let it end; what is under way fails."""
        self.why = self.why or why
        self._ends.set()

    @property
    def _open(self) -> ClientSession:
        assert self._session is not None
        return self._session

    async def _hold(self) -> None:
        try:
            async with self._streams() as (read, write), self._made(read, write) as session:
                await self._begin(session)
                self._session = session
                self.opened.set_result(None)
                try:
                    await self._ends.wait()
                finally:
                    self.over("it was ended")  # before the session tells those who wait
        except asyncio.CancelledError:
            self._end("it was ended")
            raise
        except Exception as error:  # noqa: BLE001  # of a foreign library, and of groups of them: all mean the same
            self._end(_reason(error))
        else:
            self._end("it was ended")

    def _end(self, why: str) -> None:
        self.over(why)
        if not self.opened.done():
            self.opened.set_exception(NotStarted(self.why))
            self.opened.exception()  # whoever asked for it may be gone

    async def _begin(self, session: ClientSession) -> None:
        limit = self._tool.start_timeout
        first = Exchange()
        exchange.set(first)
        try:
            with anyio.fail_after(limit / 1000):
                await session.initialize()
                self.tools = await listed_tools(session)
        except TimeoutError:
            self.over(first.trouble or f"it did not answer within {limit} ms")
        except Broken as broken:
            self.over(str(broken))
        except (MCPError, ValidationError, RuntimeError) as error:
            self.over(first.trouble or first.refusal or f"it did not begin as it should: {_first(error)}")
        if self.why is not None:
            raise Broken(self.why)

    def _streams(self) -> AbstractAsyncContextManager[Streams]:
        tool, lookup = self._tool, self._site.lookup
        if tool.url is None:
            env = {name: filled(value, lookup) for name, value in tool.env.items()}
            program = self._site.programs[tool.command[0]]
            return stdio(program, [program, *tool.command[1:]], env, self._site.root, self._traffic, self.over)
        headers = {name: filled(value, lookup) for name, value in tool.headers.items()}
        if not all(map(is_field, headers.values())):
            raise Broken("a header has characters that no header can hold")
        return streamable_http(
            filled(tool.url, lookup),
            headers,
            private_network=tool.private_network,
            silence=max(tool.timeout, tool.start_timeout) / 1000 + 1,
            traffic=self._traffic,
            over=self.over,
        )

    def _made(self, read: Any, write: Any) -> ClientSession:
        allowed = self._tool.requests
        return ClientSession(
            read,
            write,
            client_info=Implementation(name="agentrun", version=version()),
            sampling_callback=_rejects if "sampling" in allowed else None,
            elicitation_callback=_declines if "elicitation" in allowed else None,
            list_roots_callback=self._roots if "roots" in allowed else None,
        )

    async def _roots(self, context: ClientRequestContext) -> ListRootsResult:  # noqa: ARG002  # the SDK's signature
        return ListRootsResult(roots=[Root(uri=FileUrl(self._site.root.resolve().as_uri()), name="project")])


async def _rejects(context: ClientRequestContext, params: Any) -> ErrorData:  # noqa: ARG001  # the SDK's signature
    return REJECTED


async def _declines(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:  # noqa: ARG001  # the SDK's signature
    return ElicitResult(action="decline")


def _reason(error: BaseException) -> str:
    """Why a connection could not be, or go on. A library's own words may hold an address: only some are repeated."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case Broken():
            return str(error)
        case AgentrunError():
            return error.message
        case OSError():
            return f"it cannot be started: {error.strerror}"
        case ValueError():
            return "it cannot be started: its command or a variable holds what no program can be given"
        case _:
            return f"the connection failed: {type(error).__name__}"


def _first(error: Exception) -> str:
    """What a library says of a mistake, in one line."""
    if isinstance(error, ValidationError):
        return "its reply is not what the protocol says"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
