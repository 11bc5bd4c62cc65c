"""MCP servers over streamable HTTP.

Rule 1  All requests go to the declared origin, to addresses that `net/guard.py` allows, without a proxy. A redirect
        within the origin is followed; any other is an error. No login is ever started.
Rule 2  Headers with values of the environment are added here and never shown.
Rule 3  Replies have a size limit and must not be compressed, so that a few bytes cannot become many.
Rule 4  A network error ends the request, not the session. If a request raised, the SDK would end all running requests,
        so the reply is 502 and the `McpExchange` has the reason.
Rule 5  The stream of server messages is opened only a limited number of times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest

from agentrun.core import model_texts as texts
from agentrun.errors import AgentrunError
from agentrun.net.failures import NETWORK_ERRORS, network_failure
from agentrun.net.guard import UrlOrigin, check_addresses, refuse_other_origins, url_origin
from agentrun.net.transport import ADDRESSES_EXTENSION, PooledTransport
from agentrun.tools.mcp_stdio import McpProtocolError, McpStreams, MessageFilter
from agentrun.wire import NetworkAccess

MAX_REPLY_BYTES = 10 * 1024 * 1024
MAX_STREAMS = 32
"""How often the stream of server messages is opened."""
_BUFFER_SIZE = 256
current_exchange: ContextVar[McpExchange | None] = ContextVar("exchange", default=None)
"""The current request of this context. The SDK passes contexts on."""
CONNECTION_ENDED = "the connection ended"


class McpExchange:
    """The outcome of one request."""

    def __init__(self) -> None:
        self.sent = False
        """Whether a part of the request may have been sent."""
        self.trouble: str | None = None
        """The network error. It is unknown whether the request was processed."""
        self.refusal: str | None = None
        """Why the server refused the request."""
        self.is_session_unknown = False
        """Whether the server no longer knows the session."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of the SDK to allowed addresses only."""

    def __init__(self, home: str, headers: Mapping[str, str], *, private_network: bool, silence: float) -> None:
        self._home = url_origin(home)
        self._headers = dict(headers)
        self._reach = NetworkAccess((), private_network, MAX_REPLY_BYTES, home)
        self._silence = silence
        self._transport = PooledTransport(httpx.create_ssl_context(trust_env=False))
        self._streams = 0
        self.trouble: str | None = None
        """The last error, which explains why a server did not start."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        found = current_exchange.get()
        under_way = found if found is not None and request.method == "POST" else McpExchange()
        try:
            response = await self._send(request, under_way)
            self.trouble = under_way.trouble or under_way.refusal
            return response
        except AgentrunError as error:
            under_way.trouble = error.message
        except TimeoutError:
            under_way.trouble = texts.MCP_NO_REPLY
        except NETWORK_ERRORS as error:
            under_way.trouble = network_failure(error, None).message
        self.trouble = under_way.trouble
        return httpx2.Response(502, request=request)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _send(self, request: httpx2.Request, under_way: McpExchange) -> httpx2.Response:
        if request.method == "GET":
            self._streams += 1
            if self._streams > MAX_STREAMS:
                return httpx2.Response(405, request=request)
        response = await self._reply(request, under_way)
        fields = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            await response.aclose()
            under_way.trouble = texts.MCP_COMPRESSED
            return httpx2.Response(502, request=request)
        refusal = _refusal(response, str(request.url), self._home)
        under_way.refusal, under_way.is_session_unknown = refusal, response.status_code == 404
        if response.status_code >= 500 or (refusal is not None and response.status_code < 400):
            await response.aclose()
            under_way.trouble = None if refusal else texts.MCP_STATUS.format(response.status_code)
            return httpx2.Response(400 if refusal else 502, request=request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = _Body(response.stream, under_way, None if request.method == "GET" else self._silence)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            content = await body.whole()
            return httpx2.Response(response.status_code, headers=fields, content=content, request=request)
        return httpx2.Response(response.status_code, headers=fields, stream=body, request=request)

    async def _reply(self, request: httpx2.Request, under_way: McpExchange) -> httpx.Response:
        url = str(request.url)
        origin = url_origin(url)
        refuse_other_origins(origin, self._reach, self._home)
        async with asyncio.timeout(self._silence):
            addresses = await check_addresses(origin.host, origin.port, self._reach)
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
            own = {name.lower() for name in self._headers} | {"accept-encoding"}
            fields = [field for field in fields if field[0].lower() not in own]
            fields += [("accept-encoding", "identity"), *self._headers.items()]
            asked = httpx.Request(
                request.method,
                url,
                headers=fields,
                content=await request.aread(),
                extensions={
                    ADDRESSES_EXTENSION: addresses,
                    "timeout": {"connect": self._silence},
                    "trace": _trace(under_way),
                },
            )
            return await self._transport.handle_async_request(asked)


def _refusal(response: httpx.Response, url: str, home: UrlOrigin) -> str | None:
    """Why a server refused a request."""
    if 400 <= response.status_code < 500:
        return texts.MCP_STATUS.format(response.status_code)
    if not 300 <= response.status_code < 400:
        return None
    try:
        at_home = url_origin(urljoin(url, response.headers.get("location", ""))) == home
    except (AgentrunError, ValueError):
        at_home = False
    return None if at_home else texts.MCP_REDIRECTS


def _trace(under_way: McpExchange) -> Callable[[str, object], object]:
    async def told(event: str, _: object) -> None:
        under_way.sent = under_way.sent or event.endswith(".send_request_headers.started")

    return told


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, under_way: McpExchange, silence: float | None) -> None:
        self._stream = stream
        self._under_way = under_way
        self._silence = silence

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    data = await anext(pieces, b"")
                if not data:
                    break
                yield data
            self._under_way.trouble = texts.MCP_REPLY_ENDED  # after a complete reply the SDK stops reading
            return
        except TimeoutError:
            self._under_way.trouble = texts.MCP_REPLY_STOPPED
        except NETWORK_ERRORS as error:
            self._under_way.trouble = network_failure(error, 0).message
        raise httpx2.StreamError("the reply was cut off")

    async def whole(self) -> bytes:
        """The complete body. Empty after an error, which is in `trouble`."""
        data = bytearray()
        try:
            async for piece in self:
                data += piece
                if len(data) > MAX_REPLY_BYTES:
                    self._under_way.trouble = texts.MCP_REPLY_TOO_LARGE.format(MAX_REPLY_BYTES)
                    return b""
        except httpx2.StreamError:
            return b""
        finally:
            await self.aclose()
        self._under_way.trouble = None
        return bytes(data)

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def streamable_http(
    url: str,
    headers: Mapping[str, str],
    *,
    private_network: bool,
    silence: float,
    traffic: MessageFilter,
    over: Callable[[str], None],
) -> AsyncIterator[McpStreams]:
    """Connect to a server for the duration of the block. `silence`: the time limit between two pieces of a reply, in
    seconds.

    Raises `provider.fatal` for an invalid address.
    """
    transport = GuardedTransport(url, headers, private_network=private_network, silence=silence)
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFER_SIZE)
    async with (
        transport,
        httpx2.AsyncClient(
            transport=transport, trust_env=False, timeout=None
        ) as client,  # GuardedTransport has its own
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_REPLY_BYTES) as (incoming, write),
        anyio.create_task_group() as tasks,
        to_session,
        read,
    ):
        tasks.start_soon(
            _forward_messages,
            incoming,
            to_session,
            traffic,
            lambda why: over(why or transport.trouble or CONNECTION_ENDED),
        )
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()


async def _forward_messages(
    incoming: Any,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    traffic: MessageFilter,
    over: Callable[[str | None], None],
) -> None:
    why = None
    try:
        async for item in incoming:
            if not isinstance(item, SessionMessage):
                continue
            if isinstance(item.message, JSONRPCRequest | JSONRPCNotification):
                asks = isinstance(item.message, JSONRPCRequest)
                if not traffic.allows(item.message.method, asks=asks):
                    continue
            await to_session.send(item)
    except McpProtocolError as broken:
        why = str(broken)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is closed
        return
    over(why)
    to_session.close()
