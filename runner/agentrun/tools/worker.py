"""The process of one call of a Python function (`isolation: process`).

It reads what to call from standard input and writes lines of JSON to descriptor 3: how far it is, and in the end what
came of it. Standard output and standard error are the function's.

Rule 1  The function is found, compared with its pin and called by the same code as in a thread.
Rule 2  When there is a result the process ends at once: threads that the function left behind do not hold it.
Rule 3  Nothing that the function starts inherits descriptor 3. A copy of the process (a fork that returns) ends.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core.effects import Returned
from agentrun.tools.calling import called, finished, found_function
from agentrun.tools.progress import telling
from agentrun.tools.raised import fault_of
from agentrun.tools.threads import COPY_EXIT, end_copies

SIDE = 3
GAP = 0.05
"""Seconds between two lines that say how far it is."""
START = "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; from agentrun.tools.worker import main; main()"
"""With the folders of this process's `sys.path` as arguments: the function finds what it would find here."""


class Order(Struct, frozen=True):
    """What to call."""

    name: str
    """The tool's."""
    module: str
    function: str
    source: str
    roots: tuple[str, ...]
    arguments: dict[str, Any]


class Line(Struct, frozen=True, omit_defaults=True):
    """What is written to descriptor 3."""

    progress: str | None = None
    returned: Returned | None = None


def main() -> None:
    owner = os.getpid()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    _take_streams()
    side = _Side(owner)
    with telling(side.progress):
        returned = _returned(order)
    end_copies(owner)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # the function closed it, or took it away
    with suppress(OSError):  # the function closed it: there is no result
        side.write(Line(returned=returned))
        os._exit(0)
    os._exit(COPY_EXIT)


def _returned(order: Order) -> Returned:
    roots = [Path(root) for root in order.roots]
    try:
        found = found_function(roots, order.name, order)
        answer = found if isinstance(found, Returned) else called(order.name, found, order.arguments, roots)
        return answer if isinstance(answer, Returned) else asyncio.run(_awaited(order.name, answer, roots))
    except BaseException as error:  # noqa: BLE001  # an interrupt or an exit in a task
        return Returned(fault=fault_of(order.name, error, roots=roots))


async def _awaited(name: str, answer: Awaitable[object], roots: list[Path]) -> Returned:
    return await finished(name, answer, roots)


def _take_streams() -> None:
    """Nothing to read; what is printed goes out in the order in which it is printed."""
    os.set_inheritable(SIDE, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(1, 2)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="", write_through=True)


class _Side:
    """Whoever waits for the result."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._lock = Lock()
        self._next = 0.0

    def progress(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next and os.getpid() == self._owner:
            self._next = now + GAP
            self.write(Line(progress=text.encode("utf-8", "replace").decode()))

    def write(self, line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._lock:
            while data:
                data = data[os.write(SIDE, data) :]
