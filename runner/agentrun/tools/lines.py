"""The ends of a keeper's lines that are ours: what its program writes, and what it says itself."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from agentrun.tools.output import Output
from agentrun.tools.strays import pipe_name


class Ended(Struct, frozen=True):
    """How a program ended. Neither code nor signal: nobody knows, its keeper was killed."""

    code: int | None = None
    signal: int | None = None


class Pipes(SubprocessStreamProtocol):
    """What a program writes: into an `Output`, or into a reader that makes it wait."""

    def __init__(self, limit: int, outputs: dict[int, Output]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit, loop)
        self.outputs = outputs
        self.closed: dict[int, asyncio.Future[None]] = {each: loop.create_future() for each in outputs}
        self.flooded: Callable[[], None] = lambda: None
        """Called when there is too much of it."""
        self.exited: asyncio.Future[None] = loop.create_future()
        """Done when the keeper is."""

    def names(self, keeper: asyncio.SubprocessTransport) -> set[str]:
        """What /proc calls them."""
        pipes: list[Any] = [keeper.get_pipe_transport(each) for each in (1, 2)]
        return {pipe_name(pipe.get_extra_info("pipe").fileno()) for pipe in pipes if not pipe.is_closing()}

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        output = self.outputs.get(fd)
        if output is None:
            super().pipe_data_received(fd, data)
        else:
            assert isinstance(data, bytes)
            output.add(data)
            if output.is_flood:
                self.flooded()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd in self.closed and not self.closed[fd].done():
            self.closed[fd].set_result(None)

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


class Control(asyncio.Protocol):
    """The socket between us and a keeper. That we close our half is all that it ever hears from us."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.heard: asyncio.Future[str] = loop.create_future()
        """The first line that it says."""
        self.over: asyncio.Future[None] = loop.create_future()
        """Done when it says nothing more."""
        self._said = b""

    @property
    def ended(self) -> Ended:
        match self._last:
            case ["ended" | "left", number] if number != "?":
                return Ended(code=int(number)) if int(number) >= 0 else Ended(signal=-int(number))
            case _:
                return Ended()

    @property
    def is_clean(self) -> bool:
        """Whether it said that nothing is left."""
        return self._last[0] in ("ended", "failed")

    @property
    def _last(self) -> list[str]:
        return (self._said.decode().splitlines() or ["nothing"])[-1].split()

    def send(self, order: bytes) -> None:
        assert self.transport is not None
        self.transport.write(order)

    def stop(self) -> None:
        """Ask it to end its program. Once is enough."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._said += data
        if b"\n" in self._said and not self.heard.done():
            self.heard.set_result(self._said.partition(b"\n")[0].decode())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        if not self.heard.done():
            self.heard.set_result("")
        self.over.set_result(None)
