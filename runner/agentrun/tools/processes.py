"""Start programs and kill their whole process tree at the end.

Rule 1  Each program has a supervisor process (`supervisor.py`). When the block ends for any reason, the program and all
        its descendants are killed within `grace` and 2 seconds, even if the task is cancelled several times.
Rule 2  If agentrun itself is killed, the supervisor notices and does the same.
Rule 3  A program inherits only three pipes, a fourth with `side`, a folder and its variables. The folder is passed as
        an open descriptor, so that it cannot be replaced.
Rule 4  If a program kills or stops its supervisor, it is found by its session and pipes and killed. A program that has
        left these too cannot be found. It has the same user and could kill agentrun as well.
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
from agentrun.tools import supervisor_client
from agentrun.tools.supervisor import LENGTH_BYTES

SUPERVISOR_COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py")))
SUPERVISOR_MARGIN = 1.2
"""Seconds after `grace` in which the supervisor must be done. After that agentrun kills the processes itself."""
MAX_KILLS = 10
SUPERVISOR_KILLED = "its supervisor was killed"
MAX_STDOUT_LINE = 1024 * 1024
STDERR_BYTES = 64 * 1024


class Process:
    def __init__(self, pipes: supervisor_client.ProcessPipes, grace: int) -> None:
        self.pid = 0
        """The process id of the program, which is also its process group."""
        self._pipes = pipes
        self._control = supervisor_client.SupervisorConnection()
        pipes.on_flood = self._control.stop
        self._keeper: asyncio.SubprocessTransport | None = None
        self._names: set[str] = set()
        self._grace = grace / 1000
        self.side = asyncio.StreamReader()
        """The output on descriptor 3, if the program was started with `side`."""
        self._stdin: asyncio.StreamWriter | None = None
        self._more: list[asyncio.BaseTransport] = []

    @property
    def stdin(self) -> asyncio.StreamWriter:
        assert self._stdin is not None, "the program was started without stdin"
        return self._stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Standard output. The program blocks if it is not read."""
        assert self._pipes.stdout is not None
        return self._pipes.stdout

    def stderr_tail(self) -> bytes:
        return self._pipes.outputs[2].end

    async def wait(self) -> supervisor_client.ProcessExit:
        """Wait until the program and its descendants have ended. A `BoundedOutput` is complete then."""
        await asyncio.wait([self._control.closed])
        if not self._control.is_clean:
            return await self.stop()
        await asyncio.wait(self._pipes.closed.values(), timeout=1)  # the last output may still arrive
        return self._control.exit

    async def stop(self) -> supervisor_client.ProcessExit:
        """Kill the program and all its descendants. A cancellation is raised after that."""
        if self._keeper is None:
            return supervisor_client.ProcessExit()
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
        """Kill the processes in place of the supervisor. Returns how many there were."""
        assert self._keeper is not None
        found = supervisor_client.kill_orphans(self._keeper.get_pid(), self.pid, self._names)
        with suppress(ProcessLookupError):
            self._keeper.kill()
        return found

    def _close(self) -> None:
        for transport in (self._keeper, *self._more, self._control.transport):
            if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
                transport.abort()  # nothing will read the rest
            elif transport is not None:
                transport.close()

    async def _start(self, order: bytes, folder: int, *, stdin: bool, side: bool) -> None:
        """Start a supervisor and send the order. If this raises, `_close` closes what was opened."""
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
                start_new_session=True,  # so that Ctrl-C in the terminal reaches only agentrun
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
        """Open the pipe for descriptor 3 and return the end for the program."""
        read, write = os.pipe()
        its.callback(os.close, write)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.side), FileIO(read, "rb")
        )
        self._more.append(transport)
        return write

    async def _write_to_stdin(self, its: ExitStack) -> int:
        """Open the pipe for stdin and return the end for the program. asyncio would use a socket, which does not work
        as /dev/stdin."""
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
    stdout: supervisor_client.BoundedOutput | None = None,
    stderr: supervisor_client.BoundedOutput | None = None,
    limit: int = MAX_STDOUT_LINE,
) -> AsyncIterator[Process]:
    """Run a program for the duration of the block.

    `program`: its file; `argv`: its command line; `folder`: a descriptor of its working directory; `grace`: the
    milliseconds between SIGTERM and SIGKILL; `side`: whether it gets a descriptor 3 for output. A `BoundedOutput`
    collects output, and the program is stopped if it exceeds the limit. Without one, the block reads standard output
    in lines of at most `limit` bytes, and the end of standard error is kept. Raises `OSError` if the program cannot be
    started, and `ValueError` for a text with a NUL.
    """
    order = _encode_order(program, argv, env, grace)
    outputs = {2: stderr if stderr is not None else supervisor_client.BoundedOutput(head=0, tail=STDERR_BYTES)}
    if stdout is not None:
        outputs[1] = stdout
    process = Process(supervisor_client.ProcessPipes(limit, outputs), grace)
    try:
        await process._start(order, folder, stdin=stdin, side=side)  # noqa: SLF001  # only this function starts it
        yield process
    finally:
        try:
            await process.stop()
        finally:
            process._close()  # noqa: SLF001  # and closes it


async def _wait_all(futures: Iterable[asyncio.Future[None]], seconds: float) -> asyncio.CancelledError | None:
    """Wait for all futures, with a time limit. A cancellation does not end the wait but is returned."""
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


class FolderNotFound(OSError):
    """The project has no such folder, or its path contains a symbolic link."""


@contextmanager
def open_folder(root: Path, path: str = ".") -> Iterator[int]:
    """Open a folder of the project. Raises `FolderNotFound`."""
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
        return open_directory(root, parts)  # the path of the root itself may contain links
    except OSError as error:
        raise FolderNotFound(error.errno, error.strerror) from None
