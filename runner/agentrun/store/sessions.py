"""Sessions on disk: a folder for each, with the journals of its runs in the order of their start.

    .agentrun/sessions/<name>/0001.jsonl, 0001.c1.0.jsonl, 0002.jsonl, …, lock      (the second is of a sub-agent)

A session has one run at a time, across processes. If a run crashed, its last line is ignored if it is incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from agentrun.core.facts import Record
from agentrun.errors import RequestError, storage_failed
from agentrun.journal.records import read_records
from agentrun.journal.storage import is_child_journal
from agentrun.spec.project import Project
from agentrun.store.process_lock import LockBusy, hold_lock


class StoredSession(Struct, frozen=True):
    name: str
    runs: tuple[tuple[Record, ...], ...]
    next: Path


@contextmanager
def open_session(project: Project, name: str) -> Iterator[StoredSession]:
    home = project.data_directory / "sessions" / name
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(project, home / "lock", ""))
        except LockBusy:
            message = f"another run of the session {name} is not finished"
            hint = "wait until it ends, or use another session name"
            raise RequestError("session.busy", message, hint=hint, fields={"session": name}) from None
        files = sorted(path for path in home.glob("[0-9]*.jsonl") if not is_child_journal(path))
        runs = tuple(records for path in files if (records := _read_records(path)))
        last = int(files[-1].stem) if files else 0
        yield StoredSession(name, runs, home / f"{last + 1:04}.jsonl")


def _read_records(path: Path) -> tuple[Record, ...]:
    try:
        whole = path.read_bytes().rpartition(b"\n")[0]
    except OSError as error:
        raise storage_failed("session", f"{path} cannot be read: {error.strerror}", error) from error
    return tuple(read_records(whole.split(b"\n"))) if whole else ()
