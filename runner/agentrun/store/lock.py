"""Locks between processes.

Rule 1  A lock is of the kernel: it ends with its process, however that ends. The file is never removed.
Rule 2  Nobody waits: a lock that is held is refused at once.
Rule 3  No child inherits it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrun.canon import text_hash
from agentrun.errors import StorageError
from agentrun.spec.files import Project

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock. `busy` is what is said when somebody else has it."""
    try:
        data_folder(path.parent)
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise _failed(f"the lock {path.name} cannot be opened: {error.strerror}", error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
            raise _failed(busy if held else f"{path.name} cannot be locked: {error.strerror}", error) from error
        yield
    finally:
        os.close(descriptor)


def lock_of(project: Project, cassette: Path) -> Path:
    """The lock that whoever writes a recording holds."""
    return project.root / project.data / "locks" / f"{text_hash(cassette.as_posix())[7:23]}.lock"


def data_folder(folder: Path) -> None:
    """Make a folder for run data, kept out of version control by a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _failed(message: str, error: OSError) -> StorageError:
    return StorageError("storage.failed", message, fields={"path": "lock", "errno": error.errno})
