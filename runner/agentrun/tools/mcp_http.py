"""MCP servers that are reached over streamable HTTP.

Rule 1  All requests go to the origin that was declared, to addresses that `net/guard.py` allows, through no proxy. A
        redirect within that origin is followed, any other is an error. Nobody is ever asked to log in anywhere.
Rule 2  Headers with values of the environment are added here, and shown to nobody.
Rule 3  Replies are read up to a limit, and are not compressed: a few bytes cannot become many.
Rule 4  What goes wrong on the way ends the request, not the session: the SDK ends all that is under way when a request
        raises. So nothing here does; the reply says 502, and the `Exchange` says why.
Rule 5  A server that ends its stream of messages again and again is not followed for ever.
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

from agentrun.errors import AgentrunError
from agentrun.net.failures import NETWORK, failure_of
from agentrun.net.guard import Origin, checked_addresses, origin_of, refuse_elsewhere
from agentrun.net.transport import ADDRESSES, Transport
from agentrun.tools.mcp_stdio import Streams
from agentrun.tools.mcp_traffic import Broken, Traffic
from agentrun.wire import Reach

LARGEST_REPLY = 10 * 1024 * 1024
MOST_STREAMS = 32
"""How often a stream for messages of the server is opened."""
WAITING = 256


class Exchange:
    """What became of one request."""

    def __init__(self) -> None:
        self.sent = False
        """Whether anything of it may have left."""
        self.trouble: str | None = None
        """What went wrong on the way: whether it was carried out is not known."""
        self.refusal: str | None = None
        """Why it was not carried out, if the server said so."""
        self.is_forgotten = False
        """Whether the server knows nothing of the session any more."""


exchange: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
"""The request that is under way in this context. The SDK carries contexts along."""


ENDED = "the connection ended"


class Guarded(httpx2.AsyncBaseTransport):
    """Sends the requests of the SDK, where they may go."""

    def __init__(self, home: str, headers: Mapping[str, str], *, private_network: bool, silence: float) -> None:
        self._home = origin_of(home)
        self._headers = dict(headers)
        self._reach = Reach((), private_network, LARGEST_REPLY, home)
        self._silence = silence
        self._transport = Transport(httpx.create_ssl_context(trust_env=False))
        self._streams = 0
        self.trouble: str | None = None
        """What went wrong last: why a server did not start is told by whoever asked it last."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        found = exchange.get()
        under_way = found if found is not None and request.method == "POST" else Exchange()
        try:
            response = await self._sent(request, under_way)
            self.trouble = under_way.trouble or under_way.refusal
            return response
        except AgentrunError as error:
            under_way.trouble = error.message
        except TimeoutError:
            under_way.trouble = "no reply came in time"
        except NETWORK as error:
            under_way.trouble = failure_of(error, None).message
        self.trouble = under_way.trouble
        return httpx2.Response(502, request=request)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _sent(self, request: httpx2.Request, under_way: Exchange) -> httpx2.Response:
        if request.method == "GET":
            self._streams += 1
            if self._streams > MOST_STREAMS:
                return httpx2.Response(405, request=request)
        response = await self._reply(request, under_way)
        fields = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            await response.aclose()
            under_way.trouble = "its reply is compressed, which was not asked for"
            return httpx2.Response(502, request=request)
        refusal = _refusal(response, str(request.url), self._home)
        under_way.refusal, under_way.is_forgotten = refusal, response.status_code == 404
        if response.status_code >= 500 or (refusal is not None and response.status_code < 400):
            await response.aclose()
            under_way.trouble = None if refusal else f"it answered with status {response.status_code}"
            return httpx2.Response(400 if refusal else 502, request=request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = _Body(response.stream, under_way, None if request.method == "GET" else self._silence)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            content = await body.whole()
            return httpx2.Response(response.status_code, headers=fields, content=content, request=request)
        return httpx2.Response(response.status_code, headers=fields, stream=body, request=request)

    async def _reply(self, request: httpx2.Request, under_way: Exchange) -> httpx.Response:
        url = str(request.url)
        origin = origin_of(url)
        refuse_elsewhere(origin, self._reach, self._home)
        async with asyncio.timeout(self._silence):
            addresses = await checked_addresses(origin.host, origin.port, self._reach)
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
            own = {name.lower() for name in self._headers} | {"accept-encoding"}
            fields = [field for field in fields if field[0].lower() not in own]
            fields += [("accept-encoding", "identity"), *self._headers.items()]
            asked = httpx.Request(
                request.method,
                url,
                headers=fields,
                content=await request.aread(),
                extensions={ADDRESSES: addresses, "timeout": {"connect": self._silence}, "trace": _trace(under_way)},
            )
            return await self._transport.handle_async_request(asked)


def _refusal(response: httpx.Response, url: str, home: Origin) -> str | None:
    """Why a server did not do what it was asked."""
    if 400 <= response.status_code < 500:
        return f"it answered with status {response.status_code}"
    if not 300 <= response.status_code < 400:
        return None
    try:
        at_home = origin_of(urljoin(url, response.headers.get("location", ""))) == home
    except (AgentrunError, ValueError):
        at_home = False
    return None if at_home else "it redirects to another place"


def _trace(under_way: Exchange) -> Callable[[str, object], object]:
    async def told(event: str, _: object) -> None:
        under_way.sent = under_way.sent or event.endswith(".send_request_headers.started")

    return told


class _Body(httpx2.AsyncByteStream):
    """The body of a reply."""

    def __init__(self, stream: httpx.AsyncByteStream, under_way: Exchange, silence: float | None) -> None:
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
            self._under_way.trouble = "its reply ended too early"  # whoever has a whole one asks for no more
            return
        except TimeoutError:
            self._under_way.trouble = "its reply stopped in the middle"
        except NETWORK as error:
            self._under_way.trouble = failure_of(error, 0).message
        raise httpx2.StreamError("the reply was cut off")

    async def whole(self) -> bytes:
        """All of it. Raises TimeoutError, what `NETWORK` names, and `Broken` when it is too much."""
        data = bytearray()
        try:
            async for piece in self:
                data += piece
                if len(data) > LARGEST_REPLY:
                    self._under_way.trouble = f"its reply is larger than {LARGEST_REPLY:,} bytes"
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
    traffic: Traffic,
    over: Callable[[str], None],
) -> AsyncIterator[Streams]:
    """Talk with a server while the block lasts. `silence` is the longest, in seconds, within a reply.

    Raises `provider.fatal` for an address that cannot be used.
    """
    transport = Guarded(url, headers, private_network=private_network, silence=silence)
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](WAITING)
    async with (
        transport,
        httpx2.AsyncClient(transport=transport, trust_env=False, timeout=None) as client,  # Guarded has them
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST_REPLY) as (incoming, write),
        anyio.create_task_group() as tasks,
        to_session,
        read,
    ):
        tasks.start_soon(_passes, incoming, to_session, traffic, lambda why: over(why or transport.trouble or ENDED))
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()


async def _passes(
    incoming: Any,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    traffic: Traffic,
    over: Callable[[str | None], None],
) -> None:
    why = None
    try:
        async for item in incoming:
            if not isinstance(item, SessionMessage):
                continue
            if isinstance(item.message, JSONRPCRequest | JSONRPCNotification):
                asks = isinstance(item.message, JSONRPCRequest)
                if not traffic.lets(item.message.method, asks=asks):
                    continue
            await to_session.send(item)
    except Broken as broken:
        why = str(broken)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more
        return
    over(why)
    to_session.close()
