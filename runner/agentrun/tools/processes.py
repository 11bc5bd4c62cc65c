"""Starts programs, and leaves nothing of them behind.

    async with started(file, ["git", "log"], env={}, folder=descriptor, grace=2000) as process:
        process.stdin.write(b"...")
        line = await process.stdout.readline()

Rule 1  Each program has a keeper (see there). When the block is left, however that happens, the program and all its
        descendants are gone: within `grace` and 2 seconds, also when the task is cancelled again and again.
Rule 2  When agentrun itself is killed, the keeper sees that and does the same.
Rule 3  A program inherits three pipes, one more if `side` asks for it, a folder and the variables it is given: nothing
        else. Its folder is handed over open, so that nobody can put another one under its name.
Rule 4  A program that kills or stops its own keeper is searched for by its session and its pipes, and killed. One that
        has left those too is out of reach: it has the same user, and could kill agentrun as well.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from io import FileIO
from pathlib import Path

from agentrun.files import open_directory
from agentrun.tools.supervisor import LENGTH_BYTES
from agentrun.tools.supervisor_client import (
    BoundedOutput,
    ProcessExit,
    ProcessPipes,
    SupervisorConnection,
    kill_orphans,
)

SUPERVISOR_COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py")))
SUPERVISOR_MARGIN = 1.2
"""Seconds after `grace` in which a keeper must be done. Then we do its work."""
MAX_KILLS = 10
SUPERVISOR_KILLED = "its keeper was killed"
MAX_STDOUT_LINE = 1024 * 1024
STDERR_BYTES = 64 * 1024


class Process:
    """A program that runs, or ran."""

    def __init__(self, pipes: ProcessPipes, grace: int) -> None:
        self.pid = 0
        """The program's own; also its group."""
        self._pipes = pipes
        self._control = SupervisorConnection()
        pipes.on_flood = self._control.stop
        self._keeper: asyncio.SubprocessTransport | None = None
        self._names: set[str] = set()
        self._grace = grace / 1000
        self.side = asyncio.StreamReader()
        """What it writes to descriptor 3, if it was started with `side`."""
        self._stdin: asyncio.StreamWriter | None = None
        self._more: list[asyncio.BaseTransport] = []

    @property
    def stdin(self) -> asyncio.StreamWriter:
        assert self._stdin is not None, "it was started without"
        return self._stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """What it writes. It waits when nobody reads."""
        assert self._pipes.stdout is not None
        return self._pipes.stdout

    def stderr_tail(self) -> bytes:
        """The end of what it wrote to standard error."""
        return self._pipes.outputs[2].end

    async def wait(self) -> ProcessExit:
        """Wait until it has ended and its descendants are gone. What an `BoundedOutput` keeps is then complete."""
        await asyncio.wait([self._control.closed])
        if not self._control.is_clean:
            return await self.stop()
        await asyncio.wait(self._pipes.closed.values(), timeout=1)  # what was written last may be on its way
        return self._control.exit

    async def stop(self) -> ProcessExit:
        """End it and all its descendants. A cancellation waits until they are gone, and is then raised."""
        if self._keeper is None:
            return ProcessExit()
        self._control.stop()
        over = [self._control.closed, self._pipes.exited]
        cancelled = await _wait_all(over, self._grace + SUPERVISOR_MARGIN)
        for _ in range(MAX_KILLS):
            is_over = all(each.done() for each in over)
            if is_over and self._control.is_clean:
                break
            if self._kill() == 0 and is_over:
                break
            cancelled = await _wait_all([asyncio.get_running_loop().create_future()], 0.05) or cancelled
        if cancelled is not None:
            raise cancelled
        return self._control.exit

    def _kill(self) -> int:
        """What the keeper would have done: how many it was done to."""
        assert self._keeper is not None
        found = kill_orphans(self._keeper.get_pid(), self.pid, self._names)
        with suppress(ProcessLookupError):
            self._keeper.kill()
        return found

    def _close(self) -> None:
        for transport in (self._keeper, *self._more, self._control.transport):
            if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
                transport.abort()  # what was not read until now is read by nobody
            elif transport is not None:
                transport.close()

    async def _start(self, order: bytes, folder: int, *, stdin: bool, side: bool) -> None:
        """Hand an order to a new keeper. What is half made when this raises, `_close` closes."""
        loop = asyncio.get_running_loop()
        with ExitStack() as its:
            mine, control = socket.socketpair()
            its.callback(control.close)
            await loop.create_unix_connection(lambda: self._control, sock=mine)
            handed = [control.fileno(), await self._read_from_side(its) if side else -1, folder]
            self._keeper, _ = await loop.subprocess_exec(
                lambda: self._pipes,
                *SUPERVISOR_COMMAND,
                *map(str, handed),
                stdin=await self._write_to_stdin(its) if stdin else DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=[each for each in handed if each >= 0],
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                start_new_session=True,  # the terminal's Ctrl-C is for agentrun
            )
        self._names = self._pipes.names(self._keeper)
        self._control.send(order)
        await asyncio.wait([self._control.first_line])
        match self._control.first_line.result().split():
            case ["started", pid]:
                self.pid = int(pid)
            case ["failed", number]:
                raise OSError(int(number), os.strerror(int(number)))
            case _:
                raise ChildProcessError(SUPERVISOR_KILLED)  # perhaps by the program itself

    async def _read_from_side(self, its: ExitStack) -> int:
        """The end of a pipe that the program gets."""
        read, write = os.pipe()
        its.callback(os.close, write)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.side), FileIO(read, "rb")
        )
        self._more.append(transport)
        return write

    async def _write_to_stdin(self, its: ExitStack) -> int:
        """The end of a pipe that the program gets. A socket, as asyncio would make, is no /dev/stdin."""
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        its.callback(os.close, read)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), FileIO(write, "wb")
        )
        self._more.append(transport)
        self._stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        return read


@asynccontextmanager
async def start_process(
    program: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: int,
    grace: int,
    stdin: bool = True,
    side: bool = False,
    stdout: BoundedOutput | None = None,
    stderr: BoundedOutput | None = None,
    limit: int = MAX_STDOUT_LINE,
) -> AsyncIterator[Process]:
    """Run a program while the block lasts.

    `program` is its file, `argv` what it sees of its command line, `folder` a descriptor of its working directory,
    `grace` the milliseconds that it has between SIGTERM and SIGKILL. With `side` it has a descriptor 3 to write to.
    A `BoundedOutput` takes what is written as it comes, and too much of it ends the program; without one, standard
    output is read by the block, in lines of no more than `limit` bytes, and of standard error the end is kept. Raises
    `OSError` when the program cannot be started, and `ValueError` for a text that no program can be given.
    """
    order = _encode_order(program, argv, env, grace)
    outputs = {2: stderr if stderr is not None else BoundedOutput(head=0, tail=STDERR_BYTES)}
    if stdout is not None:
        outputs[1] = stdout
    process = Process(ProcessPipes(limit, outputs), grace)
    try:
        await process._start(order, folder, stdin=stdin, side=side)  # noqa: SLF001  # nobody else may start it
        yield process
    finally:
        try:
            await process.stop()
        finally:
            process._close()  # noqa: SLF001  # nor close it


async def _wait_all(futures: Iterable[asyncio.Future[None]], seconds: float) -> asyncio.CancelledError | None:
    """Wait for all of them, but no longer than that. A cancellation is noted and does not end it."""
    cancelled = None
    end = asyncio.get_running_loop().time() + seconds
    while waiting := [each for each in futures if not each.done()]:
        left = end - asyncio.get_running_loop().time()
        if left <= 0:
            break
        try:
            await asyncio.wait(waiting, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _encode_order(program: str, argv: Sequence[str], env: Mapping[str, str], grace: int) -> bytes:
    words = [str(grace), str(len(argv)), program, *argv, *(f"{name}={value}" for name, value in env.items())]
    if any("\0" in word for word in words):
        raise ValueError("no program can be given a NUL")
    data = "\0".join(words).encode("utf-8", "surrogateescape")
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


# --- folders of a project, opened so that nobody can put another one in their place ---------------------------


class FolderNotFound(OSError):
    """There is no such folder in the project, or it is reached through a link."""


@contextmanager
def open_folder(root: Path, path: str = ".") -> Iterator[int]:
    """A descriptor of a folder of the project. Raises `FolderNotFound`."""
    here = _open_path(root, path)
    try:
        yield here
    finally:
        os.close(here)


def _open_path(root: Path, path: str) -> int:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise FolderNotFound(errno.EINVAL, os.strerror(errno.EINVAL))
    try:
        return open_directory(root, parts)  # the root itself is the operator's: it may be reached through links
    except OSError as error:
        raise FolderNotFound(error.errno, error.strerror) from None
