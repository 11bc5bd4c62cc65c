"""MCP servers as local programs: one message per line on standard input and output. The filter of messages is shared
with servers over HTTP.

Rule 1  A line has at most 10 MiB. A longer line, or one that is not a message, ends the server.
Rule 2  A reply without a matching request is dropped, and so is a second reply to the same request.
Rule 3  To stop a server, its input is closed first. Then its whole process tree is killed (see `processes.py`).
Rule 4  Notifications are dropped, except two kinds: a change of the list of tools is noted, and progress is passed on.
        The number of requests that a server can send is limited.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter
from msgspec import Struct

from agentrun.core import model_texts as texts
from agentrun.tools.processes import Process, open_folder, start_process

McpStreams: TypeAlias = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Any]

MAX_SERVER_REQUESTS = 100
"""The number of requests that a server can send at once. Ten more are allowed each second."""
PROGRESS_EVERY = 0.1
MAX_MESSAGE_LINE = 10 * 1024 * 1024
SERVER_GRACE_MS = 2000
"""Milliseconds between SIGTERM and SIGKILL."""
EXIT_WAIT_SECONDS = 0.5
"""Seconds between the end of its input and SIGTERM."""
MESSAGES_PER_TURN = 50
"""The number of messages after which other tasks can run."""
_BUFFER_SIZE = 256


class McpProtocolError(Exception):
    """A server broke the protocol. The message says how."""


class MessageFilter:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.is_stale = False
        """Whether the list of tools has changed since it was read."""
        self._now = now
        self._questions = float(MAX_SERVER_REQUESTS)
        self._last = now()
        self._progress = 0.0

    def allows(self, method: str, *, asks: bool) -> bool:
        """Whether a request or notification is passed on. Raises `McpProtocolError`."""
        if asks:
            self._count()
            return True
        if method == "notifications/tools/list_changed":
            self.is_stale = True
        if method != "notifications/progress" or self._now() < self._progress:
            return False
        self._progress = self._now() + PROGRESS_EVERY
        return True

    def _count(self) -> None:
        now = self._now()
        self._questions = min(self._questions + 10 * (now - self._last), MAX_SERVER_REQUESTS) - 1
        self._last = now
        if self._questions < 0:
            raise McpProtocolError(texts.MCP_TOO_MANY_REQUESTS)


class _Head(Struct):
    """The fields that distinguish requests, notifications and replies."""

    jsonrpc: str
    method: str | None = None
    id: Any = None


_heads = msgspec.json.Decoder(_Head)


@asynccontextmanager
async def open_stdio(
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    root: Path,
    traffic: MessageFilter,
    over: Callable[[str], None],
) -> AsyncIterator[McpStreams]:
    """Run a server for the duration of the block. `over` is called with the reason when no more messages will come.

    Raises OSError if it cannot be started, and ValueError for a text with a NUL.
    """
    with open_folder(root) as folder:
        running = start_process(program, argv, env=env, folder=folder, grace=SERVER_GRACE_MS, limit=MAX_MESSAGE_LINE)
        process = await running.__aenter__()
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFER_SIZE)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](_BUFFER_SIZE)
    try:
        tasks = (
            asyncio.create_task(_read_messages(process, to_session, traffic, over), name=f"reads {process.pid}"),
            asyncio.create_task(_write_messages(process, from_session), name=f"writes {process.pid}"),
        )
        try:
            yield read, write
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_session, read, write, from_session):
                stream.close()
            with suppress(OSError):
                process.stdin.close()
            with suppress(TimeoutError):  # give the server time to exit on its own
                await asyncio.wait_for(process.wait(), EXIT_WAIT_SECONDS)
    finally:
        await running.__aexit__(None, None, None)


async def _read_messages(
    process: Process,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    traffic: MessageFilter,
    over: Callable[[str], None],
) -> None:
    with to_session:
        try:
            await _forward_lines(process, to_session, traffic)
        except McpProtocolError as broken:
            over(str(broken))
            return
        over(await _describe_end(process))


async def _forward_lines(
    process: Process, to_session: MemoryObjectSendStream[SessionMessage | Exception], traffic: MessageFilter
) -> None:
    count = 0
    while line := await _read_line(process):
        count += 1
        if count % MESSAGES_PER_TURN == 0:
            await asyncio.sleep(0)  # let other tasks run
        message = _parse_message(line, traffic) if line.strip() else None
        if message is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is closed
                await to_session.send(SessionMessage(message))


def _parse_message(line: bytes, traffic: MessageFilter) -> JSONRPCMessage | None:
    """Parse a line. None: the message is dropped. Raises `McpProtocolError`."""
    try:
        try:
            head = _heads.decode(line)
        except msgspec.DecodeError:  # unpaired surrogates, of a text that was cut inside a character
            line = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
            head = _heads.decode(line)
        if head.method is None and head.id is None:
            return None  # a reply without an id
        if head.method is not None and not traffic.allows(head.method, asks=head.id is not None):
            return None
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):  # the errors of msgspec and pydantic are ValueErrors
        start = line[:200].decode("utf-8", "replace").strip()
        raise McpProtocolError(texts.MCP_NOT_A_MESSAGE.format(start)) from None


async def _read_line(process: Process) -> bytes:
    try:
        return await process.stdout.readline()
    except ValueError:
        raise McpProtocolError(texts.MCP_LINE_TOO_LONG.format(MAX_MESSAGE_LINE)) from None


async def _write_messages(process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(OSError):  # the reader of its output notices that it ended
        async for message in from_session:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(data.encode() + b"\n")
            await process.stdin.drain()


async def _describe_end(process: Process) -> str:
    try:
        ended = await asyncio.wait_for(process.wait(), 1)
    except TimeoutError:
        return texts.MCP_OUTPUT_CLOSED
    lines = [line.strip() for line in process.stderr_tail().decode("utf-8", "replace").splitlines() if line.strip()]
    return texts.mcp_exited(ended.code, ended.signal) + (f": {lines[-1]}" if lines else "")
