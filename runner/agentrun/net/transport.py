"""The transport of httpx: HTTP/1.1 over connections that are reused.

The pool of httpx takes most of the time of a local request. With one event loop and no limits it is not needed.

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
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import suppress
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
        asked = request.url
        url = httpcore.URL(scheme=asked.raw_scheme, host=asked.raw_host, port=asked.port, target=asked.raw_path)
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
        self._backend = AsyncioBackend(addresses)
        super().__init__(
            origin, ssl_context=context, keepalive_expiry=KEEP_ALIVE_SECONDS, network_backend=self._backend
        )

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
        # Also if httpcore has marked it as closed: after two cancellations during the close it is still open.
        await self._connection.aclose()
        if isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()
            for _ in range(_INSIDE):  # the event loop closes each nested generator in its own task
                await asyncio.sleep(0)


# --- connections on transports of the event loop --------------------------------------------------------------


MAX_UNREAD_BYTES = 256 * 1024
"""Above this number of unread bytes the connection stops reading."""
_PACKET = 64 * 1024


class AsyncioBackend(httpcore.AsyncNetworkBackend):
    """Connects to one of the given addresses, or without addresses to the host."""

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        self._addresses = addresses
        self.address: str | None = None
        """The given address that it connected to."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's interface
        local_address: str | None = None,  # noqa: ARG002  # never given
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002  # never given
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                flow = await (self._connect_to_addresses(port) if self._addresses else _connect(host, port))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError from error
        return AsyncioStream(flow)

    async def _connect_to_addresses(self, port: int) -> _StreamProtocol:
        for address in self._addresses:
            try:
                flow = await _connect(address, port)
            except OSError as error:
                if isinstance(error, TimeoutError) or address == self._addresses[-1]:
                    raise
            else:
                self.address = address
                return flow
        raise OSError  # not reached: the last address raises


async def _connect(host: str, port: int) -> _StreamProtocol:
    # Addresses are tried one by one: asyncio's parallel attempts leave tasks behind after a cancellation.
    _, flow = await asyncio.get_running_loop().create_connection(_StreamProtocol, host, port)
    return flow


class AsyncioStream(httpcore.AsyncNetworkStream):
    def __init__(self, flow: _StreamProtocol) -> None:
        self._flow = flow
        self._unsent: list[bytes] = []
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # deadlines are the sender's
        try:
            with suppress(OSError):  # a server may reply before it has read the whole request
                await self._flush()
            return await self._flow.read()
        except OSError as error:
            raise httpcore.ReadError from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109  # httpcore's own signature
        self._unsent.append(buffer)
        self._size += len(buffer)
        if self._size > _PACKET:
            try:
                await self._flush()
            except OSError as error:
                raise httpcore.WriteError from error

    async def aclose(self) -> None:
        self._flow.close()
        await asyncio.sleep(0)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's own signature
    ) -> httpcore.AsyncNetworkStream:
        flow, loop = self._flow, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                secure = await loop.start_tls(flow.transport, flow, ssl_context, server_hostname=server_hostname)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, OSError):
                raise (httpcore.ConnectTimeout if isinstance(error, TimeoutError) else httpcore.ConnectError) from error
            raise
        assert isinstance(secure, asyncio.Transport)
        flow.transport = secure
        return AsyncioStream(flow)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._flow.has_news
        return self._flow.transport.get_extra_info(info)

    async def _flush(self) -> None:
        if self._unsent:
            unsent, self._unsent, self._size = self._unsent, [], 0
            await self._flow.write(b"".join(unsent))


class _StreamProtocol(asyncio.Protocol):
    """Buffers the incoming bytes of a connection and writes the outgoing ones."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._arrived: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._lost = False
        self._error: Exception | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    @property
    def has_news(self) -> bool:
        return bool(self._arrived) or self._ended

    async def read(self) -> bytes:
        """The next bytes. Empty at the end of the stream."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        data = self._arrived.popleft()
        self._size -= len(data)
        if self._size <= MAX_UNREAD_BYTES < self._size + len(data):
            self.transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if self._error is not None or self.transport.is_closing():
            raise self._error or ConnectionResetError
        self.transport.write(data)
        if self._writing is not None:
            await self._writing

    def close(self) -> None:
        if not self._lost:  # asyncio fails if a lost connection is aborted
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._arrived.append(data)
        if self._size <= MAX_UNREAD_BYTES < self._size + len(data):
            self.transport.pause_reading()
        self._size += len(data)
        _wake(self._reading)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._reading)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._lost, self._error = True, True, exc
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._writing = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._writing)
        self._writing = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
