"""The index of the store, `.agentrun/index.sqlite`: a row for each run, so that runs are listed and found quickly.

Rule 1  The index is derived from the directories of the runs, and is updated after them. Before it is used, it is
        compared with them: new and removed runs are noticed by the time of the directory `runs`, changed ones by the
        size and time of their journals. The journal of a finished run does not change.
Rule 2  The file is the memory of a SQLite database and a checksum of it. It is read and replaced as a whole; SQLite
        never opens it. If a byte has changed, if the file is of another version, or if the machine was restarted since
        (nothing is synced here), the index is made again. It is made in memory in a store that cannot be written, or
        that the user did not make.
Rule 3  One process uses the file at a time, for a moment. A run that has to wait too long leaves its row as it is.
Rule 4  The index never stops a run.
Rule 5  Values of filters are parameters of SQL, never part of its text.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from agentrun.errors import StorageError
from agentrun.journal.storage import MAX_JOURNAL_BYTES, MAX_RECORD_BYTES, blob_reader, read_contents
from agentrun.spec.problems import is_utf8_text
from agentrun.spec.project import Project
from agentrun.store.owner import is_claimed
from agentrun.store.process_lock import hold_lock, is_lock_held
from agentrun.store.run_ids import is_run_id, root_run
from agentrun.store.run_summary import (
    RESUMABLE_STATUSES,
    UNFINISHED_STATUSES,
    RunSummary,
    StoredStatus,
    WaitReason,
    summarize,
)

INDEX_VERSION = 3
"""Another version is made again. To be changed with the meaning of a column."""
MAX_INDEX_BYTES = 1 << 30
CAN_SAVE = hasattr(sqlite3.Connection, "deserialize")
"""Before version 3.36 SQLite is often built without it."""
UPDATE_WAIT = 0.1
"""Seconds that a run waits for another process that uses the index."""
READ_WAIT = 10.0
CLOCK_STEP_NS = 2_000_000_000
"""A directory can change again without getting another time: some file systems count in steps of two seconds."""
_COLUMNS = RunSummary.__struct_fields__
_SCHEMA = (
    f"CREATE TABLE runs (run TEXT PRIMARY KEY, {', '.join(_COLUMNS[1:])}, size, modified)",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value)",
    "CREATE INDEX by_start ON runs (started, run)",
    "CREATE INDEX unfinished ON runs (started, run) WHERE ended IS NULL",
)
_WRITE_ROW = f"REPLACE INTO runs VALUES ({', '.join('?' * (len(_COLUMNS) + 2))})"  # noqa: S608  # only question marks
_NO_JOURNAL = (0, 0)
_Row: TypeAlias = tuple[Any, ...]
"""A summary, and the size and time of its journal."""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list. An empty filter lists all but sub-agents."""

    agent: tuple[str, ...] = ()
    status: tuple[StoredStatus, ...] = ()
    code: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    since: int | None = None
    """Milliseconds since 1970."""
    until: int | None = None
    limit: int | None = None
    sub_agents: bool = False


class RunIndex:
    def __init__(self, project: Project) -> None:
        self._project = project
        self._tree = project.store_tree
        self._path = project.store_directory / "index.sqlite"
        self._runs = project.store_directory / "runs"

    def select(self, wanted: RunFilter) -> list[RunSummary]:
        """The runs, the latest first. Raises `storage.failed` if the directory of the runs cannot be read."""
        with self._tree.directory(self._runs) as runs:
            if runs is None:
                return []
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._lock(READ_WAIT))
                    path = self._path
                except (StorageError, OSError):
                    path = None
                with self._database(path) as database:
                    self._refresh(database, runs)
                    return self._select(database, runs, wanted)

    def update(self, run: str) -> None:
        """Write the row of a run, after its journal. Does nothing if that is not possible now."""
        with (
            suppress(StorageError, OSError, sqlite3.Error),
            self._tree.directory(self._runs) as runs,
            self._lock(UPDATE_WAIT),
            self._database(self._path) as database,
        ):
            _write(database, [] if runs is None else [self._row(runs, run)])

    # --- the file --------------------------------------------------------------------------------------------------

    @contextmanager
    def _lock(self, wait: float) -> Iterator[None]:
        """Raises StorageError if the file is in use, or if another person may have made it."""
        if not CAN_SAVE:
            raise StorageError("storage.failed", "this SQLite cannot give the memory of a database")
        self._tree.refuse_shared_directory(self._path.parent)
        if not is_claimed(self._project):
            raise StorageError("storage.untrusted", "the store was not made by the user on this machine")
        with hold_lock(self._project, self._path.parent / "locks" / "index.lock", "the index is in use", wait=wait):
            yield

    @contextmanager
    def _database(self, path: Path | None) -> Iterator[sqlite3.Connection]:
        """The database of a file. It is written back if it was changed, and if that is possible. None: a new one."""
        data = None if path is None else self._read(path)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            if data is not None:
                database.deserialize(data)
            else:
                for statement in _SCHEMA:
                    database.execute(statement)
            before = database.total_changes
            yield database
            if path is not None and (data is None or database.total_changes != before):
                with suppress(StorageError):
                    content = database.serialize()
                    self._tree.write(path, content + _seal(content), sync=False)

    def _read(self, path: Path) -> memoryview | None:
        """None: there is no file, or it was damaged and is removed."""
        with suppress(StorageError):
            if (content := self._tree.read(path, MAX_INDEX_BYTES)) is None:
                return None
            end = max(0, len(content) - len(_seal(b"")))
            if content[end:] == _seal(data := memoryview(content)[:end]):
                return data
        with suppress(StorageError):
            self._tree.remove(path)
        return None

    # --- rows ------------------------------------------------------------------------------------------------------

    def _select(self, database: sqlite3.Connection, runs: int, wanted: RunFilter) -> list[RunSummary]:
        found = (_with_lock(runs, _with_sub_agents(database, summary)) for summary in _query(database, wanted))
        if wanted.status:
            found = (summary for summary in found if summary.status in wanted.status)
        return list(islice(found, wanted.limit))

    def _refresh(self, database: sqlite3.Connection, runs: int) -> None:
        """Read the runs that are new or have changed, and forget those that are removed."""
        changed, removed = set[str](), set[str]()
        modified = os.fstat(runs).st_mtime_ns
        scans = (modified,) != database.execute("SELECT value FROM state WHERE name = 'modified'").fetchone()
        if scans:
            known = {run for (run,) in database.execute("SELECT run FROM runs")}
            with os.scandir(runs) as entries:
                names = {each.name for each in entries if is_run_id(each.name) and each.is_dir(follow_symlinks=False)}
            changed, removed = names - known, known - names
        for run, *stamp in database.execute("SELECT run, size, modified FROM runs WHERE ended IS NULL"):
            if run not in removed and tuple(stamp) != _stamp(runs, run):
                changed.add(run)
        settled = modified if scans and time.time_ns() - modified > CLOCK_STEP_NS else None
        if changed or removed or settled:
            _write(database, [self._row(runs, run) for run in changed], removed, settled)

    def _row(self, runs: int, run: str) -> _Row:
        """A run without a record gets a row too, so that its first record is noticed. The row is not listed."""
        path = self._runs / run / "journal.jsonl"
        stamp, summary = _NO_JOURNAL, RunSummary(run, "", "interrupted", 0, 0)
        try:
            data, stamp = _read_journal(runs, run)
            checked = lambda: read_contents(path, self._tree).records()  # noqa: E731  # used once
            summary = summarize(run, data, checked, blob_reader(path, self._tree)) or summary
        except FileNotFoundError:
            pass
        except OSError:
            summary = replace(summary, status="damaged", code="storage.failed", seq=1)
        waits = msgspec.json.encode(summary.waits_for).decode() if summary.waits_for else None
        return (*astuple(summary)[:-1], waits, *stamp)


def _write(
    database: sqlite3.Connection, rows: list[_Row], removed: Iterable[str] = (), modified: int | None = None
) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.executemany(_WRITE_ROW, rows)
    database.executemany("DELETE FROM runs WHERE run = ?", [(run,) for run in removed])
    if modified is not None:
        database.execute("REPLACE INTO state VALUES ('modified', ?)", (modified,))
    database.execute("COMMIT")


def _seal(data: bytes | memoryview) -> bytes:
    """The end of the file. SQLite itself does not notice most changed bytes."""
    origin = f"{INDEX_VERSION} {_boot_id():36}".encode()
    return origin + crc32(origin, crc32(data)).to_bytes(4)


@cache
def _boot_id() -> str:
    """It changes when the machine starts. Elsewhere than on Linux it is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _query(database: sqlite3.Connection, wanted: RunFilter) -> list[RunSummary]:
    conditions: list[str] = []
    values: list[str | int] = []

    def add(condition: str, *given: str | int) -> None:
        known = [each for each in given if not isinstance(each, str) or is_utf8_text(each)]  # no run has other texts
        conditions.append(condition.replace("(?)", f"({', '.join('?' * len(known))})"))
        values.extend(known)

    add("seq > 0")
    if not wanted.sub_agents:
        add("parent IS NULL")
    if wanted.agent:
        add("agent IN (?)", *wanted.agent)
    if wanted.code:
        add("code IN (?)", *wanted.code)
    if wanted.session:
        add("session IN (?)", *wanted.session)
    if wanted.since is not None:
        add("started >= ?", wanted.since)
    if wanted.until is not None:
        add("started < ?", wanted.until)
    finished = tuple(status for status in wanted.status if status not in UNFINISHED_STATUSES)
    is_open = len(finished) < len(wanted.status)
    if is_open:
        add("(status IN (?) OR ended IS NULL)" if finished else "ended IS NULL", *finished)
    elif finished:
        add("status IN (?)", *finished)
    # Whether a run is running is not in the index, so that runs are counted later.
    limit = "" if is_open or wanted.limit is None else f" LIMIT {wanted.limit:d}"
    text = f"SELECT * FROM runs WHERE {' AND '.join(conditions)} ORDER BY started DESC, run DESC{limit}"  # noqa: S608  # the values are parameters
    return _read_rows(database, text, values)


def _read_rows(database: sqlite3.Connection, text: str, values: list[str | int]) -> list[RunSummary]:
    rows = database.execute(text, values).fetchall()
    last = len(_COLUMNS) - 1
    whole = [row[:last] if row[last] is None else (*row[:last], msgspec.json.decode(row[last])) for row in rows]
    return msgspec.convert(whole, list[RunSummary])


def _with_sub_agents(database: sqlite3.Connection, summary: RunSummary) -> RunSummary:
    """A run does not wait for a sub-agent that can continue. Its own journal does not say that."""
    waits = [wait for wait in summary.waits_for if wait.kind != "sub-agent" or _waits(database, summary.run, wait)]
    if len(waits) == len(summary.waits_for):
        return summary
    return replace(summary, waits_for=tuple(waits), status="waiting" if waits else "interrupted")


def _waits(database: sqlite3.Connection, run: str, wait: WaitReason) -> bool:
    (child,) = _read_rows(database, "SELECT * FROM runs WHERE run = ?", [f"{run}.{wait.subject}"]) or (None,)
    return child is not None and _with_sub_agents(database, child).status == "waiting"


def _with_lock(runs: int, summary: RunSummary) -> RunSummary:
    if summary.status not in RESUMABLE_STATUSES:
        return summary
    family = summary.run if summary.parent is None else root_run(summary.run)
    return replace(summary, status="running") if is_lock_held(f"{family}/lock", runs) else summary


def _stamp(runs: int, run: str) -> tuple[int, int]:
    try:
        status = os.stat(f"{run}/journal.jsonl", dir_fd=runs, follow_symlinks=False)
    except OSError:
        return _NO_JOURNAL
    return status.st_size, status.st_mtime_ns


def _read_journal(runs: int, run: str) -> tuple[bytes, tuple[int, int]]:
    directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=runs)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open("journal.jsonl", flags, dir_fd=directory)
    finally:
        os.close(directory)
    with open(file, "rb", buffering=0) as journal:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_JOURNAL_BYTES + MAX_RECORD_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return journal.read(), (status.st_size, status.st_mtime_ns)
