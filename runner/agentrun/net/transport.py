"""How httpx reaches the network here: HTTP/1.1 as httpx speaks it, over connections that are kept for the next request.

httpx's own pool takes most of the time of a request on the same machine; one event loop and no limits need none of it.

Rule 1  A connection is kept only after a whole reply, and used again only if nothing came on it since.
Rule 2  A connection serves one request at a time. There is always one more.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpcore
import httpx

from agentrun.net.connection import Backend

IDLE = 60
"""Seconds that a connection is kept for the next request."""


class Transport(httpx.AsyncBaseTransport):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: dict[str, list[httpcore.AsyncHTTPConnection]] = {}

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
        connection = await self._free(url.origin)
        try:
            response = await connection.handle_async_request(asked)
        except BaseException:
            await connection.aclose()
            raise
        stream = _Stream(self, str(url.origin), connection, response)
        return httpx.Response(response.status, headers=response.headers, stream=stream)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                await connection.aclose()

    def keep(self, origin: str, connection: httpcore.AsyncHTTPConnection) -> None:
        self._idle.setdefault(origin, []).append(connection)

    async def _free(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        idle = self._idle.get(str(origin), [])
        while idle:
            connection = idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTPConnection(
            origin, ssl_context=self._context, keepalive_expiry=IDLE, network_backend=Backend()
        )


class _Stream(httpx.AsyncByteStream):
    """The body of a reply, and what becomes of its connection."""

    def __init__(
        self, transport: Transport, origin: str, connection: httpcore.AsyncHTTPConnection, response: httpcore.Response
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._connection = connection
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_stream()

    async def aclose(self) -> None:
        await self._response.aclose()
        if self._connection.is_idle():
            self._transport.keep(self._origin, self._connection)
