"""Commands without the start of Python: a process that has imported everything waits, and copies of it become commands.

To start Python and import what a command needs takes a third of a second or more; to copy a process that has done both
takes a hundredth. A copy is a process like any other, with its own folder, environment, streams and signals. What it
cannot show is how Python starts, what a command imports, and how Python takes its modules apart at the end: the tests
of streams, signals, terminals, import weight and documentation start commands as a user would.

Rule 1  Each worker has a process of its own that waits, and a further one only while all are busy.
Rule 2  It has one thread, has read no file of a test, and has no variable of the caller.
Rule 3  What Python reads when it starts is not for copies: `enough` says so.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from threading import Thread

SCRIPT = str(Path(sys.executable).with_name("agentrun"))

_idle: list[socket.socket] = []


@atexit.register
def _end() -> None:
    """Whoever waits ends when nobody can ask it any more."""
    for channel in _idle:
        channel.close()


def enough(environment: Iterable[str]) -> bool:
    """Whether a copy will do: here it can be made, and nothing of the environment is read when Python starts."""
    return sys.platform == "linux" and not any(name.startswith(("PYTHON", "LANG", "LC_")) for name in environment)


def run(
    args: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: bytes, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """A command, as `subprocess.run` would run it."""
    channel = _idle.pop() if _idle else _waiting()
    asked = {"args": args, "folder": str(folder), "environment": dict(environment), "umask": _umask()}
    pipes = [os.pipe() for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = pipes
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(asked).encode())
        file.seek(0)
        socket.send_fds(channel, [b"?"], [file.fileno(), theirs_in, theirs_out, theirs_err])
    for each in (theirs_in, theirs_out, theirs_err):
        os.close(each)
    process = int.from_bytes(_exactly(channel, 4), "big")
    said = _talk(ours_in, stdin, (ours_out, ours_err), time.monotonic() + seconds)
    if said is None:
        os.kill(process, signal.SIGKILL)
    code = int.from_bytes(_exactly(channel, 4), "big", signed=True)
    _idle.append(channel)
    if said is None:
        raise subprocess.TimeoutExpired([SCRIPT, *args], seconds)
    return subprocess.CompletedProcess([SCRIPT, *args], code, *said)


def _waiting() -> socket.socket:
    """The way to a new process that waits. Its streams are pipes, as those of its copies will be."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, str(Path(__file__).with_name("waiting.py")), str(theirs.fileno()), SCRIPT]
        clean = {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"}
        file = theirs.fileno()
        with subprocess.Popen(command, cwd="/", env=clean, stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=[file]) as it:
            theirs.close()
            assert it.stderr is not None
            assert ours.recv(1) == b"!", it.stderr.read().decode()
    return ours


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        assert more, "the process that waits has ended"
        data += more
    return data


def _talk(to: int, stdin: bytes, ways: Sequence[int], end: float) -> list[bytes] | None:
    """What is said on each way until nobody can say more. None: that took too long."""
    said = [b"" for _ in ways]

    def read(number: int) -> None:
        with open(ways[number], "rb") as stream:
            said[number] = stream.read()

    def write() -> None:
        with suppress(BrokenPipeError), open(to, "wb") as stream:
            stream.write(stdin)

    listeners = [Thread(target=read, args=(number,), daemon=True) for number in range(len(ways))]
    for thread in (*listeners, Thread(target=write, daemon=True)):
        thread.start()
    for thread in listeners:
        thread.join(max(0.0, end - time.monotonic()))
    return None if any(thread.is_alive() for thread in listeners) else said
