"""MCP servers that are programs: one message a line, on standard input and output.

Rule 1  A line is at most 10 MiB. One that is longer, and one that is no message, ends the server: whatever follows
        could be anything.
Rule 2  A reply that nobody waits for is dropped, also a second one to the same request.
Rule 3  What it writes to standard error is kept, the end of it, for the message that says how it ended.
Rule 4  It is asked to end by the end of its input, then by signal; nothing of it is left (see `processes.py`).
"""

from __future__ import annotations

import asyncio
import json
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

from agentrun.tools.folders import folder_inside
from agentrun.tools.lines import Ended
from agentrun.tools.mcp_traffic import Broken, Traffic
from agentrun.tools.processes import Process, started

Streams: TypeAlias = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Any]
"""What a session reads from and writes to."""

LONGEST_LINE = 10 * 1024 * 1024
GRACE = 2000
"""Milliseconds that a server has between SIGTERM and SIGKILL."""
LEAVE = 0.5
"""Seconds that it has before, when its input has ended."""
AT_ONCE = 50
"""Messages after which others get their turn."""
WAITING = 256


class _Head(Struct):
    """What tells one message from another."""

    jsonrpc: str
    method: str | None = None
    id: Any = None


_heads = msgspec.json.Decoder(_Head)


@asynccontextmanager
async def stdio(
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    root: Path,
    traffic: Traffic,
    over: Callable[[str], None],
) -> AsyncIterator[Streams]:
    """Talk with a server that runs while the block lasts. `over` hears why no more messages will come.

    Raises OSError when it cannot be started, ValueError for a text that no program can be given.
    """
    with folder_inside(root) as folder:
        running = started(program, argv, env=env, folder=folder, grace=GRACE, limit=LONGEST_LINE)
        process = await running.__aenter__()
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](WAITING)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](WAITING)
    try:
        tasks = (
            asyncio.create_task(_reads(process, to_session, traffic, over), name=f"reads {process.pid}"),
            asyncio.create_task(_writes(process, from_session), name=f"writes {process.pid}"),
        )
        try:
            yield read, write
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_session, read, write, from_session):
                stream.close()
            await _left(process)
    finally:
        await running.__aexit__(None, None, None)


async def _reads(
    process: Process,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    traffic: Traffic,
    over: Callable[[str], None],
) -> None:
    with to_session:
        try:
            await _messages(process, to_session, traffic)
        except Broken as broken:
            over(str(broken))
            return
        over(await _how_it_ended(process))


async def _messages(
    process: Process, to_session: MemoryObjectSendStream[SessionMessage | Exception], traffic: Traffic
) -> None:
    count = 0
    while line := await _line(process):
        count += 1
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)  # a flood does not keep everybody else waiting
        message = _message(line, traffic) if line.strip() else None
        if message is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more
                await to_session.send(SessionMessage(message))


def _message(line: bytes, traffic: Traffic) -> JSONRPCMessage | None:
    """The message that a line is; None for one that is dropped. Raises `Broken`."""
    try:
        try:
            head = _heads.decode(line)
        except msgspec.DecodeError:
            line = _mended(line)
            head = _heads.decode(line)
        if head.method is None and head.id is None:
            return None  # a reply to nothing
        if head.method is not None and not traffic.lets(head.method, asks=head.id is not None):
            return None
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):  # those of msgspec and pydantic are
        start = line[:200].decode("utf-8", "replace").strip()
        raise Broken(f"it wrote something that is no message: {start}") from None


def _mended(line: bytes) -> bytes:
    """A line without halves of surrogate pairs: a text that was cut in the middle of a sign is all the same a text."""
    return json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")


async def _line(process: Process) -> bytes:
    try:
        return await process.stdout.readline()
    except ValueError:
        raise Broken(f"it wrote a line of more than {LONGEST_LINE:,} bytes") from None


async def _writes(process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(OSError):  # whoever reads its output sees that it ended
        async for message in from_session:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(data.encode() + b"\n")
            await process.stdin.drain()


async def _how_it_ended(process: Process) -> str:
    try:
        ended = await asyncio.wait_for(process.ended(), 1)
    except TimeoutError:
        return "it closed its output"
    return _words(ended) + _last_words(process)


def _words(ended: Ended) -> str:
    if ended.signal is not None:
        return f"it was ended by signal {ended.signal}"
    return "it ended" if ended.code is None else f"it ended with code {ended.code}"


def _last_words(process: Process) -> str:
    lines = [line.strip() for line in process.stderr_tail().decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {lines[-1]}" if lines else ""


async def _left(process: Process) -> None:
    """Let it leave by itself."""
    with suppress(OSError):
        process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.ended(), LEAVE)
