"""New recordings that are not in place yet: `.agentrun/recorded/<agent>/<case>.yaml`.

A case that is recorded again is judged first. If it fails, its cassette stays as it was, and the new recording is kept
here until somebody accepts it or records again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrun.canonical_json import text_hash
from agentrun.errors import StorageError
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path
from agentrun.store.lock import hold_lock


def staged_path(project: Project, cassette: Path) -> Path:
    """Where the new recording of a cassette is kept."""
    return project.data_directory / "recorded" / cassette.relative_to(project.cassette_directory)


def accept_staged(project: Project, cassette: Path) -> None:
    """Put a new recording in place of its cassette. Raises `storage.failed`."""
    staged = staged_path(project, cassette)
    with lock_cassette(project, cassette):
        try:
            data = staged.read_bytes()
        except OSError as error:
            message = f"the recording {display_path(staged, project.root)} cannot be read: {error.strerror}"
            fields = {"path": "cassette", "errno": error.errno or errno.EIO}
            raise StorageError("storage.failed", message, fields=fields) from error
        project.cassette_tree.write(cassette, data)
        project.data_tree.remove(staged)


def cassette_lock_path(project: Project, cassette: Path) -> Path:
    """The lock that a process holds while it records a cassette."""
    return project.data_directory / "locks" / f"{text_hash(cassette.as_posix())[7:23]}.lock"


@contextmanager
def lock_cassette(project: Project, cassette: Path) -> Iterator[None]:
    """Hold the lock of a cassette. Raises `storage.failed` if another process records it."""
    with hold_lock(project, cassette_lock_path(project, cassette), f"another process is recording {cassette.name}"):
        yield
