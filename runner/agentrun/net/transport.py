"""How httpx reaches the network here: HTTP/1.1 as httpx speaks it, over connections that are kept for the next request.

httpx's own pool takes most of the time of a request on the same machine; one event loop and no limits need none of it.

Rule 1  A connection is kept only after a whole reply, and used again only if nothing came on it since.
Rule 2  A connection serves one request at a time. There is always one more.
Rule 3  A request that may go to certain addresses only (`ADDRESSES`) uses a connection that was made to one of them.
        Connections that were made without looking are for requests without this rule, and the other way round.
Rule 4  One of those that changes something at its server gets a new connection: an old one may be about to be closed,
        and then nobody knows whether the request was still read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import httpcore
import httpx

from agentrun.net.connection import Backend

IDLE = 60
"""Seconds that a connection is kept for the next request."""
ADDRESSES = "agentrun.addresses"
"""The extension of a request that says which addresses it may go to."""
_HARMLESS = ("GET", "HEAD")
_INSIDE = 2
"""Generators of the library inside the one that gives a body."""


class Transport(httpx.AsyncBaseTransport):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: dict[tuple[str, str | None], list[_Way]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        asked = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        addresses: Sequence[str] = request.extensions.get(ADDRESSES, ())
        once = bool(addresses) and request.method not in _HARMLESS
        way = None if once else await self._free(str(url.origin), addresses)
        way = way or _Way(url.origin, self._context, addresses)
        try:
            response = await way.handle_async_request(asked)
        except BaseException:
            await way.aclose()
            raise
        stream = _Stream(None if once else self, way, response)
        return httpx.Response(response.status, headers=response.headers, stream=stream)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for ways in idle.values():
            for way in ways:
                await way.aclose()

    def keep(self, way: _Way) -> None:
        self._idle.setdefault(way.ends, []).append(way)

    async def _free(self, origin: str, addresses: Sequence[str]) -> _Way | None:
        for address in addresses or (None,):
            idle = self._idle.get((origin, address), [])
            while idle:
                way = idle.pop()
                if not way.has_expired():
                    return way
                await way.aclose()
        return None


class _Way(httpcore.AsyncHTTPConnection):
    """A connection that knows where it leads."""

    def __init__(self, origin: httpcore.Origin, context: ssl.SSLContext, addresses: Sequence[str]) -> None:
        self._name = str(origin)
        self._backend = Backend(addresses)
        super().__init__(origin, ssl_context=context, keepalive_expiry=IDLE, network_backend=self._backend)

    @property
    def ends(self) -> tuple[str, str | None]:
        return self._name, self._backend.address


class _Stream(httpx.AsyncByteStream):
    """The body of a reply, and what becomes of its connection."""

    def __init__(self, transport: Transport | None, way: _Way, response: httpcore.Response) -> None:
        self._transport = transport
        self._way = way
        self._response = response
        self._pieces: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._pieces = self._response.aiter_stream()
        return self._pieces

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except BaseException:  # stopped in the middle: the connection is in no state for another request
            await self._way.aclose()
            raise
        if self._transport is not None and self._way.is_idle():
            self._transport.keep(self._way)
            return
        # Also where the library thinks it has closed it: whoever is stopped twice while closing has not.
        await self._way.aclose()
        if isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()
            for _ in range(_INSIDE):  # the event loop ends each of those in a task of its own
                await asyncio.sleep(0)
