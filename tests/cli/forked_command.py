"""Run commands as forks of a process that has already imported everything.

To start Python and import what a command needs takes a third of a second or more; to copy a process that has done both
takes a hundredth. A copy is a process like any other, with its own folder, environment, streams and signals. What it
cannot show is how Python starts, what a command imports, and how Python takes its modules apart at the end: the tests
of streams, signals and import weight start commands as a user would, and so do some of terminals.

Rule 1  Each worker has a process of its own that waits, and a further one only while all are busy.
Rule 2  It has one thread, has read no file of a test, and has no variable of the caller.
Rule 3  What Python reads when it starts is not for copies: `enough` says so.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
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


def can_fork(environment: Iterable[str]) -> bool:
    """Whether a copy will do: here it can be made, and nothing of the environment is read when Python starts."""
    return sys.platform == "linux" and not any(name.startswith(("PYTHON", "LANG", "LC_")) for name in environment)


class Copy:
    """A command that runs. It has what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        args: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
        *,
        terminal: bool = False,
        program: str | None = None,
    ) -> None:
        """`terminal`: its standard input is one, and becomes the terminal that controls it.

        `program`: Python that runs in place of the command.
        """
        self.args = [SCRIPT, *args]
        self.returncode: int | None = None
        self.stdout: FileIO | None = None
        self.stderr: FileIO | None = None
        self._channel = _idle.pop() if _idle else _start_fork_server()
        asked = {"args": args, "folder": str(folder), "environment": dict(environment), "umask": _umask()}
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps({**asked, "terminal": terminal, "program": program}).encode())
            file.seek(0)
            socket.send_fds(self._channel, [b"?"], [file.fileno(), *streams])
        self.pid = int.from_bytes(_receive(self._channel, 4), "big")

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int.from_bytes(_receive(self._channel, 4), "big", signed=True)
            _idle.append(self._channel)
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float = 60) -> tuple[bytes, bytes]:
        """Wait for its end. What it has said since, on the streams that are pipes."""
        ways = {name: way for name, way in (("out", self.stdout), ("err", self.stderr)) if way and not way.closed}
        said = listen([*ways.values()], time.monotonic() + timeout)
        if said is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(timeout)
        found = dict(zip(ways, said, strict=True))
        return found.get("out", b""), found.get("err", b"")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    args: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    seconds: float,
    program: str | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """A command, or a program, as `subprocess.run` would run it."""
    pipes = [os.pipe() for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = pipes
    copy = Copy(args, folder, environment, [theirs_in, theirs_out, theirs_err], program=program)
    for each in (theirs_in, theirs_out, theirs_err):
        os.close(each)
    said = _exchange(ours_in, stdin, (ours_out, ours_err), time.monotonic() + seconds)
    if said is None:
        copy.kill()
    code = copy.wait()
    if said is None:
        raise subprocess.TimeoutExpired(copy.args, seconds)
    return subprocess.CompletedProcess(copy.args, code, *said)


def start(args: Sequence[str], folder: Path, environment: Mapping[str, str], *streams: int | None) -> Copy:
    """A command with these three streams. An input that is not given is empty, an output a pipe."""
    ways = [(None, each) if each is not None else os.pipe() for each in streams[1:]]
    with open(os.devnull, "rb") as null:
        stdin = null.fileno() if streams[0] is None else streams[0]
        copy = Copy(args, folder, environment, [stdin, *(theirs for _, theirs in ways)])
    for ours, theirs in ways:
        if ours is not None:
            os.close(theirs)
    copy.stdout, copy.stderr = (None if ours is None else FileIO(ours, "rb") for ours, _ in ways)
    return copy


def _start_fork_server() -> socket.socket:
    """The way to a new process that waits. Its streams are pipes, as those of its copies will be."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno()), SCRIPT]
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


def _receive(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        assert more, "the process that waits has ended"
        data += more
    return data


def _exchange(to: int, stdin: bytes, ways: Sequence[int], end: float) -> list[bytes] | None:
    """What is said on each way until nobody can say more. None: that took too long."""

    def write() -> None:
        with suppress(BrokenPipeError), open(to, "wb") as stream:
            stream.write(stdin)

    Thread(target=write, daemon=True).start()
    return listen([open(way, "rb", buffering=0) for way in ways], end)


def listen(ways: Sequence[FileIO], end: float) -> list[bytes] | None:
    """As `_talk`, to a command that is told nothing."""
    said = [b"" for _ in ways]

    def read(number: int) -> None:
        with ways[number] as stream:
            said[number] = stream.readall()

    listeners = [Thread(target=read, args=(number,), daemon=True) for number in range(len(ways))]
    for thread in listeners:
        thread.start()
    for thread in listeners:
        thread.join(max(0.0, end - time.monotonic()))
    return None if any(thread.is_alive() for thread in listeners) else said
