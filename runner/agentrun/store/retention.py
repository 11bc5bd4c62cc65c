"""How long runs are kept.

Rule 1  A finished run outside a session is removed after RUN_DAYS, or if there are MAX_FINISHED_RUNS newer ones.
Rule 2  A session is kept or removed as a whole, SESSION_DAYS after its last run, or after it was forked. Runs that a
        fork has in common with it are removed with the last session that has them.
Rule 3  A run that is not finished is never removed, nor is its session. A directory without a first record is removed
        after a day: its process ended before the run began.
Rule 4  One call removes at most MAX_REMOVALS runs that have no session, and at most one session, so that a command does
        not wait long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentrun.errors import RequestError, StorageError
from agentrun.store.files import MAX_FINISHED_RUNS, RUN_DAYS, SESSION_DAYS, FileStore
from agentrun.store.run_ids import root_run
from agentrun.store.session_lists import SessionEntry

MAX_REMOVALS = 50
_DAY_MS = 24 * 60 * 60 * 1000


def prune_store(store: FileStore, now: int) -> None:
    """Remove what is too old. `now`: in milliseconds since 1970. What cannot be removed is left."""
    sessions = store.sessions.lists()
    in_session = {entry.run for entries in sessions.values() for entry in entries}
    names = store.runs()
    loose = [run for run in names if run not in in_session and root_run(run) == run]
    sub_agents = [run for run in names if root_run(run) != run]
    for count, run in enumerate(_old_runs(store, loose, now)):
        if count == MAX_REMOVALS:
            return
        with suppress(StorageError, RequestError):
            if store.session_of(run) is None:
                store.remove_loose(run, sub_agents)
    for name, entries in sessions.items():
        if _is_old_session(store, name, entries, now):
            with suppress(StorageError, RequestError):
                store.remove_session(name)
            return  # the next run removes the next session


def _old_runs(store: FileStore, runs: list[str], now: int) -> Iterator[str]:
    finished: list[tuple[int, str]] = []
    for run, last in store.last_records(runs):
        if last is not None and last.is_terminal:
            finished.append((last.at, run))
        elif last is None and _is_old(store.run_directory(run), now):
            yield run
    finished.sort()
    for newer, (at, run) in zip(range(len(finished) - 1, -1, -1), finished, strict=True):
        if newer < MAX_FINISHED_RUNS and at >= now - RUN_DAYS * _DAY_MS:
            return
        yield run


def _is_old_session(store: FileStore, name: str, entries: tuple[SessionEntry, ...], now: int) -> bool:
    """Whether all runs of a session are finished or removed, the last one long ago. A session whose list is lost is
    kept."""
    runs = [entry.run for entry in entries if not entry.removed]
    ends = [last for _, last in store.last_records(runs) if last is not None]
    oldest = now - SESSION_DAYS * _DAY_MS
    if not entries or any(not last.is_terminal or last.at >= oldest for last in ends):
        return False
    has_own_run = bool(runs) and store.sessions.directory(store.session_of(runs[-1]) or "").name == name
    return has_own_run or store.sessions.changed_at(name) * 1000 < oldest


def _is_old(directory: Path, now: int) -> bool:
    with suppress(OSError):
        return os.stat(directory).st_mtime * 1000 < now - _DAY_MS
    return False
