"""The program of a process that runs an `agentrun` command and is killed at an operation of the store, or disturbed.

The copies of `forked_command.py` run it in place of the command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from agentrun.cli import main

from .store_operations import CrashPoint, StoreOperations

ROOT = Path(__file__).parents[2]
CALLS = ("write", "pwrite64", "fdatasync", "fsync", "renameat", "linkat", "unlinkat", "mkdirat", "openat")
NO_INJECTION = "none"
"""The process is only traced, with all its threads and children."""
WAIT_FOR_STRACE = """\
import ctypes, os, signal
PR_SET_PTRACER = 0x59616d61  # where a process may trace only its children, this one allows all others to trace it
ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def program(directories: list[Path], point: CrashPoint | None, listing: Path, planted: str = "") -> str:
    """Python that runs the command. A process that is not killed writes its operations to `listing`. `planted`: Python
    that puts a bug into the product."""
    arguments = [*map(str, directories)], None if point is None else tuple(point), str(listing)
    lines = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})",
        planted,
        "from tests.durability.dying_command import run",
        f"run{arguments!r}",
    )
    return "\n".join(lines)


def run(directories: list[str], point: tuple[int, str, int] | None, listing: str) -> None:
    death = None if point is None else CrashPoint(*point)  # type: ignore[arg-type]  # made by `program`
    with StoreOperations([*map(Path, directories)], death, _kill_this_process) as operations:
        try:
            main()
        finally:
            Path(listing).write_text(json.dumps(operations.seen), encoding="utf-8")


def failing_program(prelude: str, *, stops: bool) -> str:
    """Python that runs the command after a prelude. `stops`: it waits for strace first."""
    return f"{WAIT_FOR_STRACE if stops else ''}\n{prelude}\nfrom agentrun.cli import main; main()"


@contextmanager
def inject(process: int, fault: str, trace: Path) -> Iterator[None]:
    """Disturb the system calls of the main thread of a process that waits for it, and let it go on. `fault`: for
    `strace -e inject`. Raises AssertionError if strace cannot trace it."""
    _wait_until(lambda: _status(process)["State"].startswith("T"))
    command = ["strace", "-y", "-qq", "-p", str(process), "-e", f"trace={','.join(CALLS)}", "-o", str(trace)]
    command += ["-f"] if fault == NO_INJECTION else ["-e", f"inject={fault}"]
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=null) as strace:  # it ends with the process
        _wait_until(lambda: strace.poll() is not None or _status(process)["TracerPid"] != "0")
        os.kill(process, signal.SIGCONT)
        assert strace.poll() is None, "strace does not attach to the process"
        yield


def _status(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


def _kill_this_process() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")
