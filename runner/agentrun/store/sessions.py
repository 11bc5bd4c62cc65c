"""Sessions on disk: a folder for each, with the journals of its runs in the order in which they began.

    .agentrun/sessions/<name>/0001.jsonl, 0001.c1.0.jsonl, 0002.jsonl, …, lock      (the second is a child's)

Rule 1  One run at a time, across processes: a session that is in use is busy, and that is said at once.
Rule 2  There is nothing beside the journals. What a run that crashed had not written to its end did not happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from agentrun.core.facts import Record
from agentrun.errors import RequestError, StorageError
from agentrun.journal.records import read_records
from agentrun.journal.storage import is_child_journal
from agentrun.spec.project import Project
from agentrun.store.lock import hold_lock


class StoredSession(Struct, frozen=True):
    """A session that is ours as long as it is open."""

    name: str
    runs: tuple[tuple[Record, ...], ...]
    """The journals of the runs so far."""
    next: Path
    """Where the journal of the next run goes."""


@contextmanager
def open_session(project: Project, name: str) -> Iterator[StoredSession]:
    """A session, new or not. Raises `session.busy`, and what its journals raise."""
    home = project.data_directory / "sessions" / name
    with _lock_session(project, home, name):
        files = sorted(path for path in home.glob("[0-9]*.jsonl") if not is_child_journal(path))
        runs = tuple(records for path in files if (records := _read_records(path)))
        last = int(files[-1].stem) if files else 0
        yield StoredSession(name, runs, home / f"{last + 1:04}.jsonl")


@contextmanager
def _lock_session(project: Project, home: Path, name: str) -> Iterator[None]:
    busy = f"a run of the session {name} is not over"
    lock = hold_lock(project, home / "lock", busy)
    try:
        lock.__enter__()
    except StorageError as error:
        if error.message != busy:
            raise
        raise RequestError("session.busy", busy, fields={"session": name}) from None
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _read_records(path: Path) -> tuple[Record, ...]:
    """What a journal holds, without a last line that was cut off while it was written."""
    try:
        whole = path.read_bytes().rpartition(b"\n")[0]
    except OSError as error:
        fields = {"path": "session", "errno": error.errno}
        raise StorageError("storage.failed", f"{path.name} cannot be read: {error.strerror}", fields=fields) from error
    return tuple(read_records(whole.split(b"\n"))) if whole else ()
