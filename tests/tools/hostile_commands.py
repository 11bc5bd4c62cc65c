"""Commands that resist being ended, and functions that find their remaining processes."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4


def token() -> str:
    """A word that stands in the command line of a process and of all that come from it."""
    return f"t{uuid4().hex}"


PATIENCE = 60
"""Seconds that processes have to start or to go, on a busy machine. No script ends by itself in that time."""


def remaining_processes(word: str) -> list[str]:
    """The processes with that word that do not go."""
    return _wait(word, lambda found: not found)


def wait_for_processes(word: str, count: int) -> list[str]:
    """The processes with that word, when there are as many."""
    return _wait(word, lambda found: len(found) >= count)


def _wait(word: str, enough: Callable[[list[str]], bool]) -> list[str]:
    end = time.monotonic() + PATIENCE
    while not enough(found := processes_with(word)) and time.monotonic() < end:
        time.sleep(0.01)
    return found


Resources = tuple[int, int, list[str]]


def held_resources() -> Resources:
    """The descriptors, threads and children of this process."""
    children = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), [each for each in children if each]


def has_no_new_resources(before: Resources, after: Resources) -> bool:
    """Whether nothing was added. The thread that waited for the last supervisor may have ended meanwhile."""
    return (after[0], after[2]) == (before[0], before[2]) and after[1] <= before[1]


def processes_with(word: str) -> list[str]:
    """The processes with that word in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if word in line:
                found.append(line)
    return found


STAYS = "trap '' TERM INT HUP; while :; do sleep 5; done"
"""Ignores what it can."""

HOSTILE = {
    "ends by itself": "exit 0",
    "hears SIGTERM": "sleep 600",
    "ignores SIGTERM": STAYS,
    "has children": f'(exec sh -c "{STAYS}" WORD) & (exec sh -c "{STAYS}" WORD) & wait',
    "forks twice": f'(exec sh -c "{STAYS}" WORD &) ; exit 0',
    "takes a session": f'setsid sh -c "{STAYS}" WORD & exit 0',
    "takes a session and lets go of the pipes": f'setsid sh -c "{STAYS}" WORD </dev/null >/dev/null 2>&1 & exit 0',
    "forks twice, takes a session, stays": f'(setsid sh -c "{STAYS}" WORD &) ; {STAYS}',
    "is stopped": "kill -STOP $$",
    "goes on forking": "f() { sleep 0.01; (f &) ; }; trap '' TERM; f; f; f; sleep 600",
}
"""Scripts. WORD stands for the token."""


def script(name: str, word: str) -> list[str]:
    return ["sh", "-c", HOSTILE[name].replace("WORD", word), word]
