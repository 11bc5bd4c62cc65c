"""Standard output for the answer alone, while tools run in this process.

A tool may write to descriptor 1 itself, or start a program that does: neither knows of `sys.stdout`. So descriptor 1 is
a pipe while a run is live, and what comes out of it is told like everything that tools print; the answer goes to what
descriptor 1 was before.

Rule 1  Descriptor 1 never becomes standard output again: a tool that nobody waits for any more may still write.
Rule 2  Only where standard output is descriptor 1. Where it is something else, a tool that writes there does no harm.
Rule 3  What comes is read whatever happens, so that nobody waits for it; as much as is worth reading is told.
Rule 4  What a thread prints that is none of ours is told as well, whichever stream it takes: a tool may start one, and
        that does not know which call it was started in.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from threading import Thread, current_thread
from typing import Any

from agentrun.tools.captured_output import switchable_stream

STDOUT_DESCRIPTOR = 1
MAX_PRINTED_LINE = 16 * 1024
MAX_PRINTED_LINES = 1000
OWN_THREADS = "agentrun-"
"""How the names of our threads begin."""
DRAIN_SECONDS = 0.2
"""Seconds to wait for the end of what was written: a program that was left behind may hold it open."""


def guard_stdout(on_line: Callable[[str, str], None]) -> Callable[[], None]:
    """From here on descriptor 1 is not standard output. `on_line` hears what is written to it, line by line.

    Call what this gives when the run is over: what was written until then is told, and no more.
    """
    stream = sys.stdout
    try:
        if stream.fileno() != STDOUT_DESCRIPTOR:
            return _do_nothing
    except (AttributeError, OSError, ValueError):  # there is none, or it is not a file
        return _do_nothing
    stream.flush()
    ours = os.dup(STDOUT_DESCRIPTOR)
    read, write = os.pipe()
    os.dup2(write, STDOUT_DESCRIPTOR)
    os.close(write)
    file = io.FileIO(ours, "w", closefd=False)
    encoding, errors = stream.encoding, stream.errors
    line_buffering = getattr(stream, "line_buffering", False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(file), encoding=encoding, errors=errors, line_buffering=line_buffering
    )
    others = open(STDOUT_DESCRIPTOR, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # theirs until the end
    sys.stdout, sys.stderr = _OwnStream(sys.stdout, others), _OwnStream(sys.stderr, others)
    streams = switchable_stream(sys.stdout), switchable_stream(sys.stderr)
    listener = Thread(target=_forward_lines, args=(read, on_line), name="agentrun-output", daemon=True)
    listener.start()

    def end() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT_DESCRIPTOR)
        os.close(nowhere)
        listener.join(DRAIN_SECONDS)
        sys.stdout, sys.stderr = streams  # a tool may have put others there

    return end


class _OwnStream:
    """A stream for this thread and the others of agentrun's."""

    def __init__(self, ours: Any, others: Any) -> None:
        self._ours = ours
        self._others = others
        self._owner = current_thread()

    def __getattr__(self, name: str) -> Any:
        thread = current_thread()
        is_ours = thread is self._owner or thread.name.startswith(OWN_THREADS)
        return getattr(self._ours if is_ours else self._others, name)


def _do_nothing() -> None:
    """There is nothing to end."""


def _forward_lines(read: int, on_line: Callable[[str, str], None]) -> None:
    left, line = MAX_PRINTED_LINES, b""
    while data := os.read(read, 1 << 16):
        *lines, rest = data.split(b"\n")
        for each in lines:
            line, whole = b"", (line + each)[:MAX_PRINTED_LINE]
            if left:
                left -= 1
                on_line("a program", whole.decode("utf-8", "replace"))
        line = (line + rest)[:MAX_PRINTED_LINE]
