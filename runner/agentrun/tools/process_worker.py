"""The process of one call of a Python function (`isolation: process`), or of a check that imports functions.

It reads the request from standard input and writes JSON lines to descriptor 3: progress, and at the end the result. A
check writes a line before and after each import. Standard output and standard error belong to the functions.

Rule 1  The process exits as soon as there is a result. It does not wait for threads of the function.
Rule 2  Child processes do not inherit descriptor 3. A fork that returns from the function exits.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core.effects import ToolReturn
from agentrun.core.fault import Fault
from agentrun.tools import process_owner
from agentrun.tools.call_results import clean_fault, fault_from_exception
from agentrun.tools.function_calls import await_result, call_function, load_function
from agentrun.tools.function_imports import ImportMessage, ImportOrder, import_fault, is_of_module
from agentrun.tools.progress import listen_to_progress
from agentrun.tools.threads import FORK_EXIT_CODE, exit_if_forked

RESULT_FD = 3
PROGRESS_INTERVAL = 0.05
"""Minimum of seconds between two progress lines."""
WORKER_START_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from agentrun.tools.process_worker import run_worker; run_worker()"
)
"""The arguments are the entries of `sys.path` of the parent, so that the function finds the same modules."""


class WorkerRequest(Struct, frozen=True):
    name: str
    module: str
    function: str
    source: str
    roots: tuple[str, ...]
    arguments: dict[str, Any]


class WorkerMessage(Struct, frozen=True, omit_defaults=True):
    """A line on descriptor 3."""

    progress: str | None = None
    returned: ToolReturn | None = None


def run_worker() -> None:
    owner = os.getpid()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerRequest)
    _redirect_streams()
    process_owner.is_owned = True
    side = _ResultChannel(owner)
    with listen_to_progress(side.progress):
        returned = _call_requested(order)
    exit_if_forked(owner)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # the function closed or replaced it
    with suppress(OSError):  # the function closed descriptor 3: there is no result
        side.write(WorkerMessage(returned=returned))
        os._exit(0)
    os._exit(FORK_EXIT_CODE)


def run_import_worker() -> None:
    owner = os.getpid()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=ImportOrder)
    _redirect_streams()
    process_owner.is_owned = True
    side = _ResultChannel(owner)
    roots = [Path(root) for root in order.roots]
    broken: dict[str, Fault] = {}
    for number, part in enumerate(order.parts):
        side.write(ImportMessage(number))
        fault = broken.get(part.module) or import_fault(part, roots)
        exit_if_forked(owner)
        if fault is not None and is_of_module(fault):
            broken[part.module] = fault
        side.write(ImportMessage(number, True, None if fault is None else clean_fault(fault, str)))
    os._exit(0)


def _call_requested(order: WorkerRequest) -> ToolReturn:
    roots = [Path(root) for root in order.roots]
    try:
        found = load_function(roots, order.name, order)
        answer = found if isinstance(found, ToolReturn) else call_function(order.name, found, order.arguments, roots)
        return answer if isinstance(answer, ToolReturn) else asyncio.run(await_result(order.name, answer, roots))
    except BaseException as error:  # noqa: BLE001  # an interrupt or an exit in a task
        return ToolReturn(fault=fault_from_exception(order.name, error, roots=roots))


def _redirect_streams() -> None:
    """Empty standard input, and one unbuffered stream for standard output and standard error."""
    os.set_inheritable(RESULT_FD, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(1, 2)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="", write_through=True)


class _ResultChannel:
    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._lock = Lock()
        self._next = 0.0

    def progress(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next and os.getpid() == self._owner:
            self._next = now + PROGRESS_INTERVAL
            self.write(WorkerMessage(progress=text.encode("utf-8", "replace").decode()))

    def write(self, line: WorkerMessage | ImportMessage) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._lock:
            while data:
                data = data[os.write(RESULT_FD, data) :]
