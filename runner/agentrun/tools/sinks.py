"""Deliver answers to files, standard output and HTTP endpoints.

Rule 1  Files are inside the project (see `files.py`). Missing directories are created.
Rule 2  A file is replaced completely or not at all. A line is appended completely or not at all.
Rule 3  A delivery that is repeated with the same key counts once: a file gets the same content, and a JSONL file is
        searched for the key. Equal texts with two keys are two deliveries.
Rule 4  After a timeout or a cancellation nothing is written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
from msgspec import UNSET

from agentrun.canonical_json import is_json, sorted_json
from agentrun.compiler.url_templates import RESERVED_HEADERS
from agentrun.core.effects import Deliver
from agentrun.core.fault import Fault
from agentrun.core.package import FileSink, HttpSink, JsonlSink
from agentrun.errors import ProviderError, StorageError
from agentrun.files import ProjectTree, write_all
from agentrun.tools.http import IDEMPOTENCY_KEY, http_auth, with_default_header
from agentrun.tools.threads import run_in_thread
from agentrun.wire import HttpCall, HttpReply, NetworkAccess, Sender

LOCK_RETRY_SECONDS = 0.02
"""Seconds between two attempts to lock a file."""
READ_BLOCK = 1 << 20
MAX_TORN_LINE = 16 << 20
"""The size limit for a line that a crash may have cut."""
_OWN = b'{"key":"'
"""The beginning of every line that agentrun writes."""
MAX_SINK_REPLY = 1024 * 1024
_LOST = ("provider.transient", "provider.zero_output")


class _Late(Exception):
    """The delivery timed out or was cancelled."""


class FileSinks:
    """Writes each answer to a file, replacing it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def deliver(self, delivery: Deliver) -> Fault | None:
        sink = delivery.sink
        assert isinstance(sink, FileSink)
        text = delivery.text if delivery.text.endswith("\n") else f"{delivery.text}\n"
        data = text.encode("utf-8", "replace")
        tree = ProjectTree(self._root, "sink")
        write = partial(tree.write, self._root / sink.path, data)
        return await _write_in_thread(delivery, lambda over: write(confirm=lambda: _refuse_late(over)))


class JsonlSinks:
    """Appends one JSON line for each answer."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def deliver(self, delivery: Deliver) -> Fault | None:
        sink = delivery.sink
        assert isinstance(sink, JsonlSink)
        begin, data = _line(delivery, key_only=True)[:-1], _line(delivery) + b"\n"
        tree = ProjectTree(self._root, "sink")
        return await _write_in_thread(delivery, lambda over: _append(tree, self._root / sink.path, begin, data, over))


class StdoutSinks:
    """Prints each answer as one JSON line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    async def deliver(self, delivery: Deliver) -> Fault | None:
        try:
            self._write(_line(delivery).decode())
        except (OSError, ValueError) as error:  # a closed stream is a ValueError
            return _delivery_fault(delivery, "standard output cannot be written to", reason=type(error).__name__)
        return None


def _line(delivery: Deliver, *, key_only: bool = False) -> bytes:
    fields: dict[str, Any] = {"key": delivery.key}
    if not key_only:
        fields |= {"sink": delivery.name, "text": delivery.text.encode("utf-8", "replace").decode()}
        fields |= {} if delivery.output is UNSET else {"output": delivery.output}
    return msgspec.json.encode(fields)


async def _write_in_thread(delivery: Deliver, write: Callable[[Event], None]) -> Fault | None:
    """Write in a thread, because a disk may be slow."""
    over = Event()

    def work() -> Fault | None:
        try:
            write(over)
        except _Late:
            return _delivery_fault(delivery, "it was not written in time", reason="late")
        except StorageError as error:
            return _delivery_fault(
                delivery, error.message, reason=error.fields.get("reason", "storage"), errno=error.fields["errno"]
            )
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            return _delivery_fault(delivery, f"cannot write its file: {why}", reason="storage", errno=error.errno)
        return None

    try:
        return await run_in_thread(work, f"sink {delivery.name}")
    finally:
        over.set()


def _delivery_fault(delivery: Deliver, what: str, **fields: Any) -> Fault:
    return Fault("delivery.failed", f"the sink {delivery.name}: {what}", {"sink": delivery.name, **fields})


def _append(tree: ProjectTree, path: Path, begin: bytes, data: bytes, over: Event) -> None:
    file = tree.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _lock(file, over)
        size = _repair_torn_line(file)
        if size and _contains_line(file, begin):
            return
        try:
            write_all(file, data)
            os.fsync(file)
        except BaseException:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _lock(file: int, over: Event) -> None:
    """Wait for the lock of the file."""
    while not over.is_set():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            over.wait(LOCK_RETRY_SECONDS)
        else:
            return
    _refuse_late(over)


def _refuse_late(over: Event) -> None:
    if over.is_set():
        raise _Late


def _repair_torn_line(file: int) -> int:
    """Make the file end with a complete line, and return its size. A line that a crash cut is removed."""
    size = os.fstat(file).st_size
    last = os.pread(file, MAX_TORN_LINE, max(size - MAX_TORN_LINE, 0))
    torn = last[last.rfind(b"\n") + 1 :]
    if not torn:
        return size
    if len(torn) < MAX_TORN_LINE and (torn.startswith(_OWN) or _OWN.startswith(torn)) and not is_json(torn):
        os.ftruncate(file, size - len(torn))
        return size - len(torn)
    write_all(file, b"\n")
    return size + 1


def _contains_line(file: int, begin: bytes) -> bool:
    """Whether a line begins with these bytes. Only one block of the file is in memory at a time."""
    wanted, place, end = b"\n" + begin, 0, b"\n"
    while data := os.pread(file, READ_BLOCK, place):
        if (end + data).find(wanted) >= 0:
            return True
        place += len(data)
        end = (end + data)[-len(wanted) + 1 :]
    return False


class HttpSinks:
    """Posts answers as JSON."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def deliver(self, delivery: Deliver) -> Fault | None:
        sink = delivery.sink
        assert isinstance(sink, HttpSink)
        own = [name for name in sink.headers if name.lower() in RESERVED_HEADERS]
        if own:
            return _http_failure(
                delivery, f"cannot be reached: the header {own[0]} is set by agentrun and cannot be declared"
            )
        try:
            reply = await self._post(_request(delivery, sink), sink.timeout + 1000)
        except ProviderError as error:
            reason = error.fields.get("reason", error.code.partition(".")[2])
            return _http_failure(delivery, f"did not accept the answer: {error.message}", reason=reason)
        if 200 <= reply.status < 300:
            return None
        return _http_failure(delivery, f"refused the answer with status {reply.status}", status=reply.status)

    async def _post(self, request: HttpCall, time: int) -> HttpReply:
        try:
            return await self._sender.send(request, gap=time, time=time)
        except ProviderError as error:
            if error.code not in _LOST:
                raise
        return await self._sender.send(request, gap=time, time=time)


def _request(delivery: Deliver, sink: HttpSink) -> HttpCall:
    output = {} if delivery.output is UNSET else {"output": delivery.output}
    body = sorted_json({"answer": delivery.text, "key": delivery.key, **output})
    fields = with_default_header(list(sink.headers.items()), "Content-Type", "application/json")
    fields = with_default_header(fields, IDEMPOTENCY_KEY, delivery.key)
    reach = NetworkAccess((), sink.private_network, MAX_SINK_REPLY, sink.url)
    return HttpCall("POST", sink.url, tuple(fields), body, http_auth(sink.auth), reach)


def _http_failure(delivery: Deliver, what: str, **fields: str | int) -> Fault:
    return Fault("delivery.failed", f"the sink {delivery.name} {what}", {"sink": delivery.name, **fields})
