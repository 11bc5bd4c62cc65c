"""Connections, straight on the event loop's transports.

Rule 1  What arrives is kept until it is read, and only so much of it. What nobody asked for makes a connection unfit
        for the next request.
Rule 2  A request leaves in one piece where it can: what is written goes out when more than a packet is there, or when
        the reply is waited for.
Rule 3  A connection that is closed is gone at once; nothing of it is waited for.
Rule 4  Where addresses are given, no name is looked up: these and no others are connected to.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import httpcore

MOST_WAITING = 256 * 1024
"""Bytes that arrived and were not read: above that the other side is kept waiting."""
_PACKET = 64 * 1024


class Backend(httpcore.AsyncNetworkBackend):
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
                flow = await (self._to_given(port) if self._addresses else _connected(host, port))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError from error
        return Connection(flow)

    async def _to_given(self, port: int) -> _Flow:
        for address in self._addresses:
            try:
                flow = await _connected(address, port)
            except OSError as error:
                if isinstance(error, TimeoutError) or address == self._addresses[-1]:
                    raise
            else:
                self.address = address
                return flow
        raise OSError  # there is always a last one


async def _connected(host: str, port: int) -> _Flow:
    # Addresses are tried one by one: asyncio's race of several leaves tasks behind when it is stopped.
    _, flow = await asyncio.get_running_loop().create_connection(_Flow, host, port)
    return flow


class Connection(httpcore.AsyncNetworkStream):
    """One connection."""

    def __init__(self, flow: _Flow) -> None:
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
        return Connection(flow)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._flow.has_news
        return self._flow.transport.get_extra_info(info)

    async def _flush(self) -> None:
        if self._unsent:
            unsent, self._unsent, self._size = self._unsent, [], 0
            await self._flow.write(b"".join(unsent))


class _Flow(asyncio.Protocol):
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
        if self._size <= MOST_WAITING < self._size + len(data):
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
        if self._size <= MOST_WAITING < self._size + len(data):
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
