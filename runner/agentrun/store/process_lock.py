"""Locks between processes.

Rule 1  The kernel releases a lock when its process ends, even after a crash. The lock file is never removed.
Rule 2  Child processes do not inherit a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from agentrun.errors import StorageError, storage_failed
from agentrun.spec.project import Project

MAX_LOCK_WAIT = 30.0
"""Seconds to wait for another process that changes project files. Each holds the lock for a moment only."""
LOCK_RETRY_PAUSE = 0.01


class LockBusy(StorageError):
    """Another process has the lock."""


@contextmanager
def hold_lock(project: Project, path: Path, busy: str, *, wait: float = 0) -> Iterator[None]:
    """Raises `LockBusy` with the message `busy` if another process still has the lock after `wait` seconds."""
    ignore = project.data_directory / ".gitignore"
    if not os.path.lexists(ignore):  # run data is not for version control
        project.data_tree.create(ignore, b"*\n")
    descriptor = project.data_tree.open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + wait
        while not _try_lock(descriptor, path):
            if time.monotonic() >= deadline:
                fields = {"path": "lock", "errno": errno.EWOULDBLOCK}
                raise LockBusy("storage.failed", busy, hint="wait until it is done and try again", fields=fields)
            time.sleep(LOCK_RETRY_PAUSE)
        yield
    finally:
        os.close(descriptor)


def lock_project_files(project: Project) -> AbstractContextManager[None]:
    """Hold the lock for reading and replacing cases files, lock files and snapshots."""
    busy = f"another process has been changing the files of this project for {MAX_LOCK_WAIT:.0f} seconds"
    return hold_lock(project, project.data_directory / "locks" / "files.lock", busy, wait=MAX_LOCK_WAIT)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise storage_failed("lock", f"{path} cannot be locked: {error.strerror}", error) from error
    return True
