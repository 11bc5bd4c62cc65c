"""Connections: HTTP/1.1 by httpcore, over connections that are reused.

The pool of httpx takes half of the time of a local request. With one event loop and no limits it is not needed.

Rule 1  A connection is kept only after a complete reply, and reused only if no bytes arrived on it since.
Rule 2  A connection serves one request at a time. The number of connections is not limited.
Rule 3  A request with checked addresses (`ADDRESSES_EXTENSION`) uses only a connection to one of them, and other
        requests do not use such connections.
Rule 4  A request with checked addresses that is not GET or HEAD gets a new connection. The server may be closing an old
        one, and then it would be unknown whether the request was processed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import httpcore
import httpx

KEEP_ALIVE_SECONDS = 60
"""Seconds that an idle connection is kept."""
ADDRESSES_EXTENSION = "agentrun.addresses"
"""The extension of a request with the IP addresses that it may connect to."""
_HARMLESS = ("GET", "HEAD")
_INSIDE = 2
"""The number of nested generators in httpcore's body stream."""


class PooledTransport(httpx.AsyncBaseTransport):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: dict[tuple[str, str | None], list[_Connection]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked, target = request.url, request.extensions.get("target", request.url.raw_path)
        url = httpcore.URL(scheme=asked.raw_scheme, host=asked.raw_host, port=asked.port, target=target)
        core_request = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        addresses: Sequence[str] = request.extensions.get(ADDRESSES_EXTENSION, ())
        once = bool(addresses) and request.method not in _HARMLESS
        connection = None if once else await self._take_idle(str(url.origin), addresses)
        connection = connection or _Connection(url.origin, self._context, addresses)
        try:
            response = await connection.handle_async_request(core_request)
        except BaseException:
            await connection.aclose()
            raise
        stream = _ReplyStream(None if once else self, connection, response)
        return httpx.Response(response.status, headers=response.headers, stream=stream)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                await connection.aclose()

    def release(self, connection: _Connection) -> None:
        self._idle.setdefault(connection.pool_key, []).append(connection)

    async def _take_idle(self, origin: str, addresses: Sequence[str]) -> _Connection | None:
        for address in addresses or (None,):
            idle = self._idle.get((origin, address), [])
            while idle:
                connection = idle.pop()
                if not connection.has_expired():
                    return connection
                await connection.aclose()
        return None


class _Connection(httpcore.AsyncHTTPConnection):
    """A connection that knows its origin and address."""

    def __init__(self, origin: httpcore.Origin, context: ssl.SSLContext, addresses: Sequence[str]) -> None:
        self._name = str(origin)
        self._backend = PinnedBackend(addresses)
        super().__init__(
            origin, ssl_context=context, keepalive_expiry=KEEP_ALIVE_SECONDS, network_backend=self._backend
        )

    async def aclose(self) -> None:
        await super().aclose()
        await self._backend.aclose()

    @property
    def pool_key(self) -> tuple[str, str | None]:
        return self._name, self._backend.address


class _ReplyStream(httpx.AsyncByteStream):
    """The body of a reply. At its end the connection is released or closed."""

    def __init__(self, transport: PooledTransport | None, connection: _Connection, response: httpcore.Response) -> None:
        self._transport = transport
        self._connection = connection
        self._response = response
        self._pieces: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._pieces = self._response.aiter_stream()
        return self._pieces

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except BaseException:  # interrupted: the connection cannot be used for another request
            await self._connection.aclose()
            raise
        if self._transport is not None and self._connection.is_idle():
            self._transport.release(self._connection)
            return
        # Even if httpcore has marked it as closed: after two cancellations during the close it is still open.
        await self._connection.aclose()
        if isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()
            for _ in range(_INSIDE):  # the event loop closes each nested generator in its own task
                await asyncio.sleep(0)


class PinnedBackend(httpcore.AnyIOBackend):
    """Connects to one of the given addresses, or without addresses to the host."""

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        self._addresses = addresses
        self.address: str | None = None
        """The given address that it connected to."""
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        addresses = self._addresses or (host,)
        for address in addresses:
            try:
                self._stream = await super().connect_tcp(address, port, *args, **options)
            except httpcore.ConnectError:
                if address == addresses[-1]:
                    raise
            else:
                self.address = address if self._addresses else None
                return self._stream
        raise httpcore.ConnectError  # not reached: the last address raises

    async def aclose(self) -> None:
        """Close the connection, even in a cancelled TLS handshake, which httpcore leaves open."""
        if self._stream is not None:
            await self._stream.aclose()
