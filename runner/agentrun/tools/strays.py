"""What is left of a program whose keeper was killed or stopped: looked for in /proc.

Rule 1  Only processes that are surely the program's: below its keeper, in its session, or holding the end of its pipes
        that only it was given.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress

from agentrun.tools.keeper import descendants, processes


def kill_strays(keeper: int, group: int, pipes: Collection[str]) -> int:
    """Kill what is left of a keeper's program: how many there were. It does not wait for their end."""
    if not os.path.isdir("/proc/self/fd"):
        if group > 0:  # 0 would be our own
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        return 0
    found = {pid for pid, _, session in processes() if session == keeper} | _writers(pipes)
    found |= {below for pid in (keeper, *found) for below in descendants(pid)}
    found -= {keeper, os.getpid()}
    for pid in found:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def pipe_name(descriptor: int) -> str:
    """What /proc calls the pipe."""
    return f"pipe:[{os.fstat(descriptor).st_ino}]"


def _writers(pipes: Collection[str]) -> set[int]:
    """Who could write into one of these pipes. A process that forked from ours can only read from them."""
    found = set()
    for pid, _, _ in processes():
        with suppress(OSError):
            folder = f"/proc/{pid}/fd"
            for path in [f"{folder}/{name}" for name in os.listdir(folder)]:
                if os.readlink(path) in pipes and os.lstat(path).st_mode & 0o200:
                    found.add(pid)
                    break
    return found
