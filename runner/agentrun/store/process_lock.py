"""Locks between processes.

Rule 1  The kernel releases a lock when its process ends, even after a crash. The file of a lock is removed only
        together with what it protects, and then a lock on the removed file does not count.
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
from agentrun.files import ProjectTree
from agentrun.spec.project import Project

MAX_LOCK_WAIT = 30.0
"""Seconds to wait for another process that changes project files. Each holds the lock for a moment only."""
PROBE_WAIT = 0.05
"""Seconds to wait for a process that only looks whether a lock is held."""
LOCK_RETRY_PAUSE = 0.01


class LockBusy(StorageError):
    """Another process has the lock."""


class ProcessLock:
    def __init__(self, tree: ProjectTree, path: Path) -> None:
        self._tree = tree
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, busy: str, *, wait: float = PROBE_WAIT) -> None:
        """Raises `LockBusy` with the message `busy` if another process still has the lock after `wait` seconds."""
        deadline = time.monotonic() + wait
        while not self._try():
            if time.monotonic() >= deadline:
                fields = {"path": "lock", "errno": errno.EWOULDBLOCK}
                raise LockBusy("storage.failed", busy, hint="wait until it is done and try again", fields=fields)
            time.sleep(LOCK_RETRY_PAUSE)

    def is_held(self) -> bool:
        """Whether a process has the lock."""
        with self._tree.directory(self._path.parent) as directory:
            return directory is not None and is_lock_held(self._path.name, directory)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _try(self) -> bool:
        descriptor = self._tree.open_file(self._path, os.O_RDWR | os.O_CREAT, sync=False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_removed = os.fstat(descriptor).st_nlink == 0
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise storage_failed("lock", f"{self._path} cannot be locked: {error.strerror}", error) from error
        if is_removed:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True


def is_lock_held(path: str, directory: int) -> bool:
    """Whether a process has the lock of a file. The path is relative to an open directory. The lock is taken for a
    moment, together with others who look: see PROBE_WAIT."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(descriptor)
    return False


def ignore_store_in_git(project: Project) -> None:
    """The store is not for version control."""
    ignore = project.store_directory / ".gitignore"
    if not os.path.lexists(ignore):
        project.store_tree.create(ignore, b"*\n")


@contextmanager
def hold_lock(project: Project, path: Path, busy: str, *, wait: float = PROBE_WAIT) -> Iterator[None]:
    """Raises `LockBusy` with the message `busy` if another process still has the lock after `wait` seconds."""
    ignore_store_in_git(project)
    lock = ProcessLock(project.store_tree, path)
    lock.acquire(busy, wait=wait)
    try:
        yield
    finally:
        lock.release()


def lock_project_files(project: Project) -> AbstractContextManager[None]:
    """Hold the lock for reading and replacing cases files, lock files and snapshots."""
    busy = f"another process has been changing the files of this project for {MAX_LOCK_WAIT:.0f} seconds"
    return hold_lock(project, project.store_directory / "locks" / "files.lock", busy, wait=MAX_LOCK_WAIT)
