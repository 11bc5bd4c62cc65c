"""Notice that a process has changed the runs of a store: with inotify on Linux, elsewhere by looking again and again.

Rule 1  A watch only says when to look. What it does not notice, as on a network file system, is found by looking every
        half a second.
Rule 2  Watching is not reading: a directory that is watched now may have changed before, so it is read after that.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

PAUSE_SECONDS = 0.05
"""The pause between two looks without inotify."""
LOOK_SECONDS = 0.5
"""The longest pause, whatever inotify says."""
_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x80, 0x100, 0x200
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE | 0x0100_0000 | 0x0200_0000
"""The last two: only a directory, and no link. A closed file can be the lock of a process that has ended."""


class StoreWatch:
    def __init__(self, store: Path) -> None:
        self._store = store
        self._descriptor = _open_inotify()
        self._watched: dict[Path, int] = {}
        self._is_complete = False
        """Whether inotify reports every change."""

    def fileno(self) -> int:
        """The file that becomes readable with a change, or -1."""
        return self._descriptor

    @property
    def pause(self) -> float:
        """How many seconds to wait at most before looking again."""
        return LOOK_SECONDS if self._is_complete else PAUSE_SECONDS

    def follow(self, runs: Iterable[str]) -> bool:
        """Watch these runs, and no others. Return whether a watch is new: then the runs are to be read again."""
        if self._descriptor < 0:
            return False
        wanted = {self._store, self._store / "runs", *(self._store / "runs" / run for run in runs)}
        for path in self._watched.keys() - wanted:
            _libc().inotify_rm_watch(self._descriptor, self._watched.pop(path))  # it may be removed already
        added = [path for path in wanted - self._watched.keys() if self._add(path)]
        self._is_complete = len(self._watched) == len(wanted)
        return bool(added)

    def _add(self, path: Path) -> bool:
        number: int = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), _MASK)
        if number >= 0:
            self._watched[path] = number
        return number >= 0

    def wait(self) -> None:
        """Wait for a change, or for a while."""
        if self._descriptor < 0:
            time.sleep(self.pause)
        else:
            select.select([self._descriptor], [], [], self.pause)
            self.clear()

    def clear(self) -> None:
        """Forget the changes that were reported."""
        if self._descriptor >= 0:
            with suppress(BlockingIOError):
                while os.read(self._descriptor, 65536):
                    pass

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_inotify() -> int:
    """-1: there is none, or too many are in use."""
    try:
        return int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return -1


@cache
def _libc() -> Any:
    return ctypes.CDLL(None)
