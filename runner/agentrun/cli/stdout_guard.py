"""Keep standard output for the answer, while tools run in this process.

A tool may write to descriptor 1 directly, or start a program that does. So descriptor 1 is a pipe while a run is live,
and the answer goes to the original descriptor.

Rule 1  Descriptor 1 is not restored: a tool that runs too long may still write to it later.
Rule 2  The pipe is always read, so that no writer blocks. Only the first lines are reported.
Rule 3  Output of threads that are not ours is reported too: a tool may start a thread, which does not know its call.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread
from typing import Any

from agentrun.tools.captured_output import switchable_stream

STDOUT_DESCRIPTOR = 1
MAX_PRINTED_LINE = 16 * 1024
MAX_PRINTED_LINES = 1000
OWN_THREADS = "agentrun-"
"""Prefix of the names of our threads."""
DRAIN_SECONDS = 0.2
"""Seconds to wait for the end of the pipe. A program that still runs may keep it open."""


@contextmanager
def guard_stdout(on_line: Callable[[str, str], None]) -> Iterator[None]:
    """Redirect descriptor 1. `on_line` is called with each line written to it, until the context ends."""
    stream = sys.stdout
    try:
        is_guarded = stream.fileno() == STDOUT_DESCRIPTOR
    except (AttributeError, OSError, ValueError):  # there is no standard output, or it is not a file
        is_guarded = False
    if not is_guarded:
        yield
        return
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
    others = open(STDOUT_DESCRIPTOR, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # open until the process ends
    sys.stdout, sys.stderr = _OwnStream(sys.stdout, others), _OwnStream(sys.stderr, others)
    streams = switchable_stream(sys.stdout), switchable_stream(sys.stderr)
    listener = Thread(target=_forward_lines, args=(read, on_line), name="agentrun-output", daemon=True)
    listener.start()
    try:
        yield
    finally:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT_DESCRIPTOR)
        os.close(nowhere)
        listener.join(DRAIN_SECONDS)
        sys.stdout, sys.stderr = streams  # a tool may have replaced them


class _OwnStream:
    """The original stream for our threads, and the pipe for all others."""

    def __init__(self, ours: Any, others: Any) -> None:
        self._ours = ours
        self._others = others
        self._owner = current_thread()

    def __getattr__(self, name: str) -> Any:
        thread = current_thread()
        is_ours = thread is self._owner or thread.name.startswith(OWN_THREADS)
        return getattr(self._ours if is_ours else self._others, name)


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
