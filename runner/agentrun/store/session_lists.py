"""The sessions of a store: `.agentrun/sessions/<session>/runs`, a run id in each line, and the lock of the session.

Rule 1  A run is added before its first record is written, so no run is missing. A run that was removed stays in the
        list, with the word `removed` after its id.
Rule 2  A fork begins with runs of another session, so a run can be in several lists. The first record of a run names
        the session that it was started in.
Rule 3  A list that is lost is made again from the first records of the runs, each of which names its predecessor.
Rule 4  A session has one run at a time, across processes: the process of the run holds the lock of the session. A list
        is changed only with the lock of all lists.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import text_hash
from agentrun.core.facts import Record, RunStarted
from agentrun.errors import RequestError, StorageError, session_duplicate_error
from agentrun.spec.project import Project
from agentrun.store.process_lock import MAX_LOCK_WAIT, LockBusy, ProcessLock, hold_lock
from agentrun.store.run_ids import is_run_id

MAX_LIST_BYTES = 16 * 1024 * 1024
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LINE = re.compile(r"(\S+)( removed)?")


class SessionEntry(Struct, frozen=True):
    run: str
    removed: bool = False


class SessionLists:
    """A session is named by its name, or by the name of its directory."""

    def __init__(
        self, project: Project, root_runs: Callable[[], list[str]], first_record: Callable[[str], Record | None]
    ) -> None:
        self._project = project
        self._tree = project.store_tree
        self._sessions = project.store_directory / "sessions"
        self._root_runs = root_runs
        self._first_record = first_record
        self._locks: dict[str, ProcessLock] = {}
        self._held: dict[str, str] = {}
        """The session of each run that this process works on."""

    # --- reading ---------------------------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        return self._sessions / (name if _PLAIN.fullmatch(name) else text_hash(name)[7:])

    def names(self) -> list[str]:
        """The sessions that exist, by the names of their directories."""
        return [name for name in self._tree.names(self._sessions) if self.runs(name)]

    def __contains__(self, name: str) -> bool:
        return bool(self.runs(name))

    def lists(self) -> dict[str, tuple[SessionEntry, ...]]:
        """All lists that are not lost, by the names of their directories."""
        return {name: self._read(name) or () for name in self._tree.names(self._sessions)}

    def runs(self, name: str) -> tuple[SessionEntry, ...]:
        """The runs of a session in their order. A run that is not removed may lack its first record. Empty: there is no
        such session."""
        entries = self._read(name)
        return tuple(map(SessionEntry, self._find_runs(name))) if entries is None else entries

    def all_runs(self, name: str) -> list[str]:
        """The runs of a session that are not removed, even if someone removed them from its list."""
        listed = (entry.run for entry in self.runs(name) if not entry.removed)
        return list(dict.fromkeys((*listed, *self._find_runs(name))))

    def runs_of_others(self, name: str) -> set[str]:
        """The runs that are in the lists of other sessions."""
        own = self.directory(name).name
        return {each.run for other, entries in self.lists().items() if other != own for each in entries}

    def changed_at(self, name: str) -> float:
        """When the list of a session was last changed, in seconds since 1970. Now, if there is none."""
        try:
            return os.stat(self.directory(name) / "runs", follow_symlinks=False).st_mtime
        except OSError:
            return time.time()

    def _read(self, name: str) -> tuple[SessionEntry, ...] | None:
        """None: there is no list."""
        data = self._tree.read(self.directory(name) / "runs", MAX_LIST_BYTES)
        if data is None:
            return None
        found = (_LINE.fullmatch(line) for line in data.decode(errors="replace").split("\n"))
        return tuple(SessionEntry(line[1], line[2] is not None) for line in found if line and is_run_id(line[1]))

    def _find_runs(self, name: str) -> list[str]:
        """The runs that were started in a session, and before them those that it was forked from."""
        if not self._tree.names(self.directory(name)):  # for a name that is new, not all runs are read
            return []
        others = self.runs_of_others(name)
        records = (record for run in self._root_runs() if run not in others and (record := self._first_record(run)))
        mine = sorted(
            (record.fact.earlier.runs, record.at, record.fact.run, _predecessor(record))
            for record in records
            if isinstance(record.fact, RunStarted) and session_name(record) == name
        )
        runs = [run for _, _, run, _ in mine]
        before = mine[0][3] if mine else None
        while before is not None and before not in runs:
            runs.insert(0, before)
            before = _predecessor(self._first_record(before))
        return runs

    # --- locks -----------------------------------------------------------------------------------------------------

    def lock(self, name: str, run: str | None = None) -> None:
        """Lock a session until the store is closed, or the run ends. Raises `session.busy`."""
        if run is not None:
            self._held[run] = name
        if name in self._locks:
            return
        lock = ProcessLock(self._tree, self.directory(name) / "lock")
        try:
            lock.acquire("")
        except LockBusy:
            raise self._busy_error(name) from None
        self._locks[name] = lock

    def _busy_error(self, name: str) -> RequestError:
        entries = self._read(name)
        fields = {"session": name, "run": entries[-1].run if entries else None}
        message = f"another process is working on a run of the session {name}"
        return RequestError("session.busy", message, hint="wait until it ends and try again", fields=fields)

    def release(self, run: str) -> None:
        """A run ends, or cannot be opened."""
        if (name := self._held.pop(run, None)) and name not in self._held.values():
            self.unlock(name)

    def unlock_idle(self, name: str) -> None:
        """Unlock a session unless this process works on one of its runs."""
        if name not in self._held.values():
            self.unlock(name)

    def release_all(self) -> None:
        for name in list(self._locks):
            self.unlock(name)
        self._held.clear()

    def unlock(self, name: str) -> None:
        """A session without a run leaves nothing behind: its first run was refused."""
        if (lock := self._locks.pop(name, None)) is None:
            return
        with suppress(StorageError):
            if self._tree.names(self.directory(name)) == ["lock"] and not self._find_runs(name):
                self._tree.remove_directory(self.directory(name))
        lock.release()

    # --- writing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Hold the lock of all lists."""
        busy = f"another process has been changing the sessions of this project for {MAX_LOCK_WAIT:.0f} seconds"
        path = self._project.store_directory / "locks" / "sessions.lock"
        with hold_lock(self._project, path, busy, wait=MAX_LOCK_WAIT):
            yield

    def add(self, name: str, run: str, *, sync: bool) -> None:
        """The session is locked."""
        with self.changes():
            entries = self.runs(name)
            if not any(entry.run == run for entry in entries):
                self._write(name, (*entries, SessionEntry(run)), sync=sync)

    def forget(self, name: str, run: str) -> None:
        """Remove a run that never began from the list of its session."""
        with self.changes():
            if entries := [entry for entry in self.runs(name) if entry.run != run]:
                self._write(name, entries)
            elif self._read(name) is not None:
                self._tree.remove(self.directory(name) / "runs")

    def fork(self, name: str, run: str, new: str) -> tuple[SessionEntry, ...]:
        """Begin a session with the runs of another one up to a run, which it has. Raises `session.duplicate`,
        `session.busy`."""
        self.lock(new)
        with self.changes():
            if new in self:
                raise session_duplicate_error(new)
            entries = self.runs(name)
            kept = entries[: [entry.run for entry in entries].index(run) + 1]
            self._write(new, kept)
        return kept

    def mark_removed(self, run: str, names: Iterable[str] | None = None) -> None:
        """Record in the lists of these sessions, or of all, that a run is removed. The caller holds the lock of all
        lists."""
        for name in self._tree.names(self._sessions) if names is None else names:
            entries = self.runs(name)
            if SessionEntry(run) in entries:
                self._write(name, (replace(each, removed=True) if each.run == run else each for each in entries))

    def remove(self, name: str) -> None:
        """The caller holds the lock of the session and the lock of all lists."""
        self._tree.remove_directory(self.directory(name))

    def _write(self, name: str, entries: Iterable[SessionEntry], *, sync: bool = True) -> None:
        text = "".join(f"{entry.run}{' removed' * entry.removed}\n" for entry in entries)
        self._tree.write(self.directory(name) / "runs", text.encode(), sync=sync)


def session_name(first: Record) -> str | None:
    """The session that a run was started in, from its first record."""
    session = first.fact.session if isinstance(first.fact, RunStarted) else UNSET
    return None if session is UNSET else session


def _predecessor(first: Record | None) -> str | None:
    predecessor = first.fact.predecessor if first is not None and isinstance(first.fact, RunStarted) else UNSET
    return None if predecessor is UNSET else predecessor
