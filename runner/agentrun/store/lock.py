"""Locks between processes.

Rule 1  A lock is the kernel's: it ends with its process, however that ends. Its file is never removed.
Rule 2  A lock that is held is refused at once, or waited for as long as the caller says, never longer.
Rule 3  No child process inherits it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrun.errors import StorageError
from agentrun.spec.project import Project

MAX_LOCK_WAIT = 30.0
"""Seconds to wait for another process that changes the project's files: each holds the lock for a moment only."""
LOCK_RETRY_PAUSE = 0.01
"""Seconds between two tries."""


@contextmanager
def hold_lock(project: Project, path: Path, busy: str, *, wait: float = 0) -> Iterator[None]:
    """Hold a lock below the project's run data. `busy` is said when another process has it, after `wait` seconds."""
    _ignore_data_directory(project)
    descriptor = project.data_tree.open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + wait
        while not _try_lock(descriptor, path):
            if time.monotonic() >= deadline:
                raise _lock_error(busy, errno.EWOULDBLOCK)
            time.sleep(LOCK_RETRY_PAUSE)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_project_files(project: Project) -> Iterator[None]:
    """Hold the one lock under which cases files, lock files and snapshots are read again and replaced."""
    busy = f"another process has been changing the files of this project for {MAX_LOCK_WAIT:.0f} seconds"
    with hold_lock(project, project.data_directory / "locks" / "files.lock", busy, wait=MAX_LOCK_WAIT):
        yield


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise _lock_error(f"{path.name} cannot be locked: {error.strerror}", error.errno) from error
    return True


def _ignore_data_directory(project: Project) -> None:
    """Keep run data out of version control by a file of its own."""
    ignore = project.data_directory / ".gitignore"
    if not os.path.lexists(ignore):
        project.data_tree.create(ignore, b"*\n")


def _lock_error(message: str, number: int | None) -> StorageError:
    return StorageError("storage.failed", message, fields={"path": "lock", "errno": number})
