"""How httpx reaches the network here: HTTP/1.1 as httpx speaks it, over connections that are kept for the next request.

httpx's own pool takes most of the time of a request on the same machine; one event loop and no limits need none of it.

Rule 1  A connection is kept only after a whole reply, and used again only if nothing came on it since.
Rule 2  A connection serves one request at a time. There is always one more.
Rule 3  A request that may go to certain addresses only (`ADDRESSES_EXTENSION`) uses a connection to one of them.
        Connections that were made without looking are for requests without this rule, and the other way round.
Rule 4  One of those that changes something at its server gets a new connection: an old one may be about to be closed,
        and then nobody knows whether the request was still read.
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
"""Seconds that a connection is kept for the next request."""
ADDRESSES_EXTENSION = "agentrun.addresses"
"""The extension of a request that says which addresses it may go to."""
_HARMLESS = ("GET", "HEAD")
_INSIDE = 2
"""Generators of the library inside the one that gives a body."""


class PooledTransport(httpx.AsyncBaseTransport):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: dict[tuple[str, str | None], list[_Connection]] = {}

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
        addresses: Sequence[str] = request.extensions.get(ADDRESSES_EXTENSION, ())
        once = bool(addresses) and request.method not in _HARMLESS
        way = None if once else await self._take_idle(str(url.origin), addresses)
        way = way or _Connection(url.origin, self._context, addresses)
        try:
            response = await way.handle_async_request(asked)
        except BaseException:
            await way.aclose()
            raise
        stream = _ReplyStream(None if once else self, way, response)
        return httpx.Response(response.status, headers=response.headers, stream=stream)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for ways in idle.values():
            for way in ways:
                await way.aclose()

    def release(self, way: _Connection) -> None:
        self._idle.setdefault(way.pool_key, []).append(way)

    async def _take_idle(self, origin: str, addresses: Sequence[str]) -> _Connection | None:
        for address in addresses or (None,):
            idle = self._idle.get((origin, address), [])
            while idle:
                way = idle.pop()
                if not way.has_expired():
                    return way
                await way.aclose()
        return None


class _Connection(httpcore.AsyncHTTPConnection):
    """A connection that knows where it leads."""

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
    """The body of a reply, and what becomes of its connection."""

    def __init__(self, transport: PooledTransport | None, way: _Connection, response: httpcore.Response) -> None:
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
            self._transport.release(self._way)
            return
        # Also where the library thinks it has closed it: whoever is stopped twice while closing has not.
        await self._way.aclose()
        if isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()
            for _ in range(_INSIDE):  # the event loop ends each of those in a task of its own
                await asyncio.sleep(0)


# --- connections, straight on the event loop's transports -----------------------------------------------------


MAX_UNREAD_BYTES = 256 * 1024
"""Bytes that arrived and were not read: above that the other side is kept waiting."""
_PACKET = 64 * 1024


class AsyncioBackend(httpcore.AsyncNetworkBackend):
    """Makes connections, to one of the given addresses or else to whatever the name of a host means."""

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        self._addresses = addresses
        self.address: str | None = None
        """Which of the given addresses it connected to."""

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
        raise OSError  # there is always a last one


async def _connect(host: str, port: int) -> _StreamProtocol:
    # Addresses are tried one by one: asyncio's race of several leaves tasks behind when it is stopped.
    _, flow = await asyncio.get_running_loop().create_connection(_StreamProtocol, host, port)
    return flow


class AsyncioStream(httpcore.AsyncNetworkStream):
    """One connection."""

    def __init__(self, flow: _StreamProtocol) -> None:
        self._flow = flow
        self._unsent: list[bytes] = []
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # deadlines are the sender's
        try:
            with suppress(OSError):  # a server may refuse before it has read all: what it says counts
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
    """What arrives on a connection and what leaves."""

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
        """What arrived; nothing: the other side has ended."""
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
        if not self._lost:  # asyncio breaks when what is lost is aborted
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
