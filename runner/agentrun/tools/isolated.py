"""Python functions in processes of their own (`isolation: process`).

Rule 1  The process and all its descendants are gone when the call is over, however that comes about: a result, a crash,
        the end of its time, the end of the run.
Rule 2  A process that ends without a result has failed, and the fault says how: its exit code or the signal.
Rule 3  No more is read than a result may have, whatever the function writes to the descriptor of the result.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agentrun.core.effects import Returned
from agentrun.core.facts_base import Fault
from agentrun.tools.folders import folder_inside
from agentrun.tools.lines import Ended
from agentrun.tools.modules import Pin
from agentrun.tools.output import Output
from agentrun.tools.printed import Printed
from agentrun.tools.processes import Process, started
from agentrun.tools.progress import tell
from agentrun.tools.raised import SAYS
from agentrun.tools.values import MOST_BYTES
from agentrun.tools.worker import START, Line, Order

GRACE = 500
"""Milliseconds that what the function left behind has to end by itself."""
MOST_READ = 6 * MOST_BYTES + 1024 * 1024
"""Bytes of one line on descriptor 3: in JSON a character may be written as six."""


async def run_isolated(
    roots: Sequence[Path], name: str, pin: Pin, arguments: dict[str, Any], printed: Printed
) -> Returned:
    """What a function gives in a process of its own. `printed` gets what it prints."""
    order = Order(name, pin.module, pin.function, pin.source, tuple(map(str, roots)), arguments)
    argv = [sys.executable, "-P", "-c", START, *sys.path]
    try:
        with folder_inside(Path.cwd()) as folder:
            process = started(
                sys.executable,
                argv,
                env=dict(os.environ),
                folder=folder,
                grace=GRACE,
                side=True,
                stdout=_Prints(printed),
            )
            async with process as running:
                returned = await _answered(running, name, msgspec.json.encode(order))
                if returned is not None:
                    await running.stop()
                ended = await running.ended()
    except (OSError, ValueError) as error:
        message = f"its process cannot be started: {type(error).__name__}"
        return Returned(fault=Fault("tool.execution", message, {"tool": name, "error": type(error).__name__}))
    return returned or Returned(fault=_crashed(name, ended))


class _Prints(Output):
    """What the function prints, where all that it prints is kept."""

    def __init__(self, printed: Printed) -> None:
        super().__init__(head=0, tail=0)
        self._printed = printed

    def add(self, data: bytes) -> None:
        self._printed.write(data)


async def _answered(process: Process, name: str, order: bytes) -> Returned | None:
    """What the function gave. None: the process ended before there was anything."""
    with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, and its end is seen below
        process.stdin.write(order)
        process.stdin.close()
    unread = bytearray()
    while data := await process.side.read(1 << 16):
        *lines, rest = data.split(b"\n")
        for each in lines:
            unread += each
            line = _read(bytes(unread))
            unread.clear()
            match line:
                case Line(returned=Returned() as returned):
                    return returned
                case Line(progress=str() as text):
                    tell(text)
                case _:
                    return Returned(fault=_failed(name, "its process wrote something that is not a result"))
        unread += rest
        if len(unread) > MOST_READ:
            return Returned(fault=_failed(name, f"its process gave more than {MOST_READ:,} bytes"))
    return None


def _read(line: bytes) -> Line | None:
    try:
        read = msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    fault = None if read.returned is None else read.returned.fault
    return read if fault is None or fault.code in (*SAYS, "tool.drift") else None


def _crashed(name: str, ended: Ended) -> Fault:
    if ended.signal is not None:
        word = next((each.name for each in signal.Signals if each == ended.signal), f"signal {ended.signal}")
        return _failed(name, f"its process was killed by {word}", signal=word)
    if ended.code is not None:
        return _failed(name, f"its process ended with exit code {ended.code} and without a result", exit=ended.code)
    return _failed(name, "its process was killed")


def _failed(name: str, message: str, **fields: Any) -> Fault:
    return Fault("tool.execution", message, {"tool": name, **fields})
