"""The connection to a supervisor: the output of its program, its messages, and the search for orphaned processes."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from agentrun.core import model_texts as texts
from agentrun.tools.supervisor import find_descendants, list_processes

MAX_WORD = 4096


class ProcessExit(Struct, frozen=True):
    """How a program ended. Without code and signal: unknown, because the supervisor was killed."""

    code: int | None = None
    signal: int | None = None

    @property
    def signal_name(self) -> str | None:
        if self.signal is None:
            return None
        known = next((each.name for each in signal.Signals if each == self.signal), None)
        return known or f"signal {self.signal}"  # a real-time signal


class ProcessPipes(SubprocessStreamProtocol):
    """The output of a program: into a `BoundedOutput`, or into a reader with backpressure."""

    def __init__(self, limit: int, outputs: dict[int, BoundedOutput]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit, loop)
        self.outputs = outputs
        self.closed: dict[int, asyncio.Future[None]] = {each: loop.create_future() for each in outputs}
        self.on_flood: Callable[[], None] = lambda: None
        """Called if there is too much output."""
        self.exited: asyncio.Future[None] = loop.create_future()
        """Done when the supervisor has exited."""

    def names(self, supervisor: asyncio.SubprocessTransport) -> set[str]:
        pipes: list[Any] = [supervisor.get_pipe_transport(each) for each in (1, 2)]
        return {pipe_name(pipe.get_extra_info("pipe").fileno()) for pipe in pipes if not pipe.is_closing()}

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        output = self.outputs.get(fd)
        if output is None:
            super().pipe_data_received(fd, data)
        else:
            assert isinstance(data, bytes)
            output.add(data)
            if output.is_flood:
                self.on_flood()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd in self.closed and not self.closed[fd].done():
            self.closed[fd].set_result(None)

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


class SupervisorConnection(asyncio.Protocol):
    """The socket to a supervisor. After the order, the only message to it is the end of the stream."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.first_line: asyncio.Future[str] = loop.create_future()
        """The first line of the supervisor."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the supervisor has closed the connection."""
        self._said = b""

    @property
    def exit(self) -> ProcessExit:
        match self._last:
            case ["ended" | "left", number] if number != "?":
                return ProcessExit(code=int(number)) if int(number) >= 0 else ProcessExit(signal=-int(number))
            case _:
                return ProcessExit()

    @property
    def is_clean(self) -> bool:
        """Whether the supervisor reported that no process is left."""
        return self._last[0] in ("ended", "failed")

    @property
    def _last(self) -> list[str]:
        return (self._said.decode().splitlines() or ["nothing"])[-1].split()

    def send(self, order: bytes) -> None:
        assert self.transport is not None
        self.transport.write(order)

    def stop(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._said += data
        if b"\n" in self._said and not self.first_line.done():
            self.first_line.set_result(self._said.partition(b"\n")[0].decode())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        if not self.first_line.done():
            self.first_line.set_result("")
        self.closed.set_result(None)


def kill_orphans(supervisor: int, group: int, pipes: Collection[str]) -> int:
    """Kill the processes of a supervisor that was killed or stopped, without waiting. Returns their number."""
    if not os.path.isdir("/proc/self/fd"):
        if group > 0:  # 0 would be the group of agentrun
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        return 0
    found = {pid for pid, _, session in list_processes() if session == supervisor} | _find_writers(pipes)
    found |= {below for pid in (supervisor, *found) for below in find_descendants(pid)}
    found -= {supervisor, os.getpid()}
    for pid in found:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def pipe_name(descriptor: int) -> str:
    return f"pipe:[{os.fstat(descriptor).st_ino}]"


def _find_writers(pipes: Collection[str]) -> set[int]:
    """The processes that can write to one of these pipes. A fork of agentrun can only read from them."""
    found = set()
    for pid, _, _ in list_processes():
        with suppress(OSError):
            folder = f"/proc/{pid}/fd"
            for path in [f"{folder}/{name}" for name in os.listdir(folder)]:
                if os.readlink(path) in pipes and os.lstat(path).st_mode & 0o200:
                    found.add(pid)
                    break
    return found


class BoundedOutput:
    """Keeps the beginning and the end of an output."""

    def __init__(self, *, head: int, tail: int, most: int | None = None) -> None:
        self.total = 0
        """The number of bytes of the output."""
        self._head = bytearray()
        self._tail = bytearray()
        self._room = head
        self._last = tail
        self._most = most

    def add(self, data: bytes) -> None:
        self.total += len(data)
        taken = min(len(data), self._room - len(self._head))
        self._head += data[:taken]
        self._tail += data[taken:]
        if len(self._tail) > 2 * self._last:  # not for every byte
            del self._tail[: -self._last or None]

    @property
    def is_flood(self) -> bool:
        return self._most is not None and self.total > self._most

    @property
    def omitted_bytes(self) -> int:
        """The number of bytes that are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._last)

    def text(self, secrets: Iterable[bytes] = ()) -> str:
        """The kept output, with a line in place of the omitted part. Invalid UTF-8 is replaced."""
        if not self.omitted_bytes:
            return (self._head + self._tail).decode("utf-8", "replace")
        secrets = tuple(secrets)
        head = _drop_partial_word(bytes(self._head), secrets)
        tail = _drop_partial_word(self.end[::-1], [secret[::-1] for secret in secrets])[::-1]
        gap = texts.output_omitted(self.total - len(head) - len(tail))
        return f"{head.decode('utf-8', 'replace')}\n{gap}\n{tail.decode('utf-8', 'replace')}"

    @property
    def beginning(self) -> bytes:
        return bytes(self._head)

    @property
    def end(self) -> bytes:
        """The kept part after the beginning."""
        return bytes(self._tail[-self._last :] if self._last else b"")


def _drop_partial_word(data: bytes, secrets: Iterable[bytes]) -> bytes:
    """Remove the beginning of a secret or of a word from the end of the data."""
    halves = (size for secret in secrets for size in range(len(secret) - 1, 0, -1) if data.endswith(secret[:size]))
    data = data[: len(data) - max(halves, default=0)]
    last = data[-MAX_WORD:]
    word = 0 if last[-1:].isspace() else len((last.split() or [b""])[-1])
    return data[: len(data) - word]
