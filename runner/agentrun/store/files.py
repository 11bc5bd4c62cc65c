"""The store: a directory for each run, with all that is needed to continue, show and check it.

    .agentrun/runs/<run>/journal.jsonl, head, package.json, blobs/<sha256>, inbox/, lock, torn-<seq>, project,
                         recording.jsonl
    .agentrun/sessions/<session>/runs, checked, lock
    .agentrun/order

Rule 1  These files are the truth; everything else is derived from them.
Rule 2  A run is worked on by one process, which holds the lock of the run. The lock is released by the kernel when the
        process ends, and its file is removed only with the whole run. A sub-agent has its own directory; the lock and
        the blobs of the run that a user started are for all its sub-agents.
Rule 3  A run begins with its first record. A run that is refused before leaves no directory. The order of writing is:
        place in the order of runs, blobs, package, recording, record, head, index. A blob is written before the record
        that names it. The index gets a run when it ends, and when it is left: suspended, parked or after an error.
Rule 4  Only the user can read the store. Links in it are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from agentrun.compiler.package_file import MAX_PACKAGE_BYTES, PackageFile, package_bytes, parse_package
from agentrun.core.facts import Record, RunStopped
from agentrun.errors import RequestError, StorageError, run_duplicate_error, run_not_found_error
from agentrun.journal.records import GENESIS_HASH, is_terminal_line, read_records
from agentrun.journal.storage import (
    INTENTS,
    JOURNAL_NAME,
    MAX_RECORD_BYTES,
    FileJournal,
    JournalContents,
    SyncMode,
    blob_reader,
    read_contents,
)
from agentrun.journal.tail import JournalTail
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path
from agentrun.store.inbox import Inbox
from agentrun.store.owner import claim_store
from agentrun.store.process_lock import PROBE_WAIT, LockBusy, ProcessLock, ignore_store_in_git
from agentrun.store.run_blobs import RunBlobs
from agentrun.store.run_ids import is_run_id, root_run
from agentrun.store.run_order import RunOrder, RunPlace
from agentrun.store.run_recording import RECORDING_NAME, RunRecording
from agentrun.store.session_lists import SessionLists, session_name

if TYPE_CHECKING:
    from agentrun.store.watch import StoreWatch

MAX_PATH_BYTES = 8192
RUN_DAYS = 30
MAX_FINISHED_RUNS = 1000
SESSION_DAYS = 90
RETENTION_RULE = (
    f"finished ones for {RUN_DAYS} days ({MAX_FINISHED_RUNS:,} at most), sessions for {SESSION_DAYS} days, unfinished "
    "ones until you remove them"
)
_AT = re.compile(rb'\{"at":([0-9]{1,18}),')
_OTHER_PACKAGE = re.compile(r"package-[0-9a-f]{16}\.json")


class LastRecord(Struct, frozen=True):
    at: int
    """When it was written, in milliseconds since 1970."""
    is_terminal: bool


class FileStore:
    def __init__(
        self, project: Project, *, sync: SyncMode = "effects", notify: Callable[[str], None] = lambda text: None
    ) -> None:
        """`notify` is called with a sentence for the user: a journal gets large, or a store is new."""
        self.project = project
        self._tree = project.store_tree
        root = Path(os.path.realpath(project.root))
        is_inside = Path(os.path.realpath(project.store_directory)).is_relative_to(root)
        self._outside = None if is_inside else os.fsencode(f"{root}\n")
        """The project, if the store is not in it. Several projects can have such a store."""
        self._sync = sync
        self._notify = notify
        self._locks: dict[str, ProcessLock] = {}
        self.sessions = SessionLists(project, self.root_runs, self.first_record)
        self._journals: dict[str, StoredJournal] = {}
        self._packages: dict[str, PackageFile] = {}
        """Packages that are written with the next record of their run."""
        self._headers: dict[str, bytes] = {}
        """Recordings that begin with the first record of their run."""
        self._blobs: dict[str, RunBlobs] = {}
        self._order = RunOrder(self._tree, project.store_directory / "order", self._runs_by_start)

    # --- reading ---------------------------------------------------------------------------------------------------

    def runs(self) -> list[str]:
        """The ids of all runs, including sub-agents. A directory may lack its first record."""
        return [name for name in self._tree.names(self._runs) if is_run_id(name)]

    def root_runs(self) -> list[str]:
        """The ids of the runs that users started."""
        return [run for run in self.runs() if root_run(run) == run]

    def __contains__(self, run: object) -> bool:
        if not isinstance(run, str) or not is_run_id(run):
            return False
        journal = self._journals.get(run)
        if journal is not None and journal.seq:
            return True
        try:
            return next(self.contents(run).lines, None) is not None
        except RequestError:
            return False

    def contents(self, run: str) -> JournalContents:
        """The journal of a run before it is checked. Raises `run.not_found`, `storage.failed`."""
        path = self.journal_path(run)
        if not is_run_id(run) or not os.path.lexists(path):
            raise run_not_found_error(run)
        return read_contents(path, self._tree)

    def records(self, run: str) -> tuple[Record, ...]:
        """The checked records of a run. An incomplete last line is ignored. Raises `run.not_found`, `journal.damaged`,
        `journal.truncated`, `recovery.failed`."""
        records = tuple(self.contents(run).records())
        if not records:
            raise run_not_found_error(run)
        return records

    def last_records(self, runs: Iterable[str]) -> Iterator[tuple[str, LastRecord | None]]:
        """The ends of journals, which are not checked. None: there is no record."""
        with self._tree.directory(self._runs) as directory:
            for run in runs:
                line = b"" if directory is None else _last_line(directory, run)
                found = _AT.match(line)
                yield run, None if found is None else LastRecord(int(found[1]), is_terminal_line(line))

    def unfinished_runs(self) -> Iterator[str]:
        """The runs of this project that users started and that have no terminal record, the latest first."""
        runs = self.unfinished(self.root_runs())
        started = ((record.at, run) for run in runs if (record := self.first_record(run)) is not None)
        return (run for _, run in sorted(started, reverse=True) if not self.is_of_other_project(run))

    def tail(self, run: str) -> JournalTail:
        """Reads the journal of a run while it is written. Raises `run.not_found` if no run can have this id."""
        if not is_run_id(run):
            raise run_not_found_error(run)
        return JournalTail(self.run_directory(run), self._tree)

    def runs_after(self, place: RunPlace) -> list[RunPlace] | None:
        """The runs that users started, after a place in their order. None: this store does not have this place."""
        return self._order.after(place)

    def unfinished(self, runs: Iterable[str]) -> list[str]:
        """Those of the runs that have no terminal record yet. Their journals are not checked."""
        return [run for run, last in self.last_records(runs) if last is None or not last.is_terminal]

    def watch(self) -> StoreWatch:
        """Notices changes of the runs of this store by any process."""
        from agentrun.store.watch import StoreWatch  # late: a run does not need it

        return StoreWatch(self.project.store_directory)

    def package(self, run: str, fingerprint: str) -> PackageFile:
        if (kept := self._packages.get(run)) is not None and kept.fingerprint == fingerprint:
            return kept
        for file in self._package_files(run):
            if file.fingerprint == fingerprint:
                return file
        message = f"the package of the run {run} was not stored with it"
        hint = f"agentrun resume {run} --with-package SPEC"
        raise StorageError("recovery.failed", message, hint=hint, fields={"run": run, "package": fingerprint})

    def _package_files(self, run: str) -> Iterator[PackageFile]:
        directory = self.run_directory(run)
        for name in self._tree.names(directory) if is_run_id(run) else ():
            if name == "package.json" or _OTHER_PACKAGE.fullmatch(name):
                path = directory / name
                if (data := self._tree.read(path, MAX_PACKAGE_BYTES + 1)) is not None:
                    yield parse_package(data, path)

    def is_locked(self, run: str) -> bool:
        """Whether a process works on the run or on the run that it belongs to."""
        root = self._family(run)
        return root in self._locks or ProcessLock(self._tree, self.run_directory(root) / "lock").is_held()

    # --- writing ---------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raises `storage.failed` with a hint if a new run could not be stored."""
        self._prepare()
        self._tree.check_writable(self.project.store_directory / "run")

    def _prepare(self) -> None:
        ignore_store_in_git(self.project)
        claim_store(self.project)

    def keep(self, run: str, package: PackageFile) -> None:
        """Store a package with the run. It is written right before the next record."""
        self._packages[run] = package

    def open(self, run: str) -> StoredJournal:
        """Work on a run, a new one or one that exists. Raises `session.busy` if another process does that."""
        if not is_run_id(run):
            message = f"{run!r} cannot be the name of a directory, so it cannot be the id of a stored run"
            raise StorageError("storage.failed", message, fields={"path": "run", "errno": None})
        file = self._continue_file(run) if os.path.lexists(self.journal_path(run)) else None
        if (before := self._journals.get(run)) is not None:
            before.close()
        journal = self._journals[run] = StoredJournal(self, run, file)
        if file is not None and file.is_finished:
            self.end(run)
        return journal

    def is_of_other_project(self, run: str) -> bool:
        """Whether a run was started in another project. Its tools and files are there."""
        return self._tree.read(self.run_directory(self._family(run)) / "project", MAX_PATH_BYTES) != self._outside

    def refuse_other_project(self, run: str) -> None:
        """Raises `run.invalid_state` for a run of another project: it would run tools in the wrong folder."""
        if self.is_of_other_project(run):
            message, hint = f"the run {run} was started in another project", "continue it in the folder of that project"
            fields = {"run": run, "expected": "this project", "actual": "another project"}
            raise RequestError("run.invalid_state", message, hint=hint, fields=fields)

    def _continue_file(self, run: str) -> FileJournal:
        root = self._family(run)
        was_locked = root in self._locks
        self.lock(root)
        try:
            if session := self.session_of(run):
                self.lock_session(session, run)
            return self._open_file(run, resume=True)
        except BaseException:
            if not was_locked:
                self._release(root)
                self.sessions.release(run)
            raise

    def blobs(self, run: str) -> RunBlobs:
        """The blobs of a run and its sub-agents."""
        root = self._family(run)
        if root not in self._blobs:
            self._blobs[root] = RunBlobs(self._tree, self.run_directory(root) / "blobs", sync=self.syncs)
        return self._blobs[root]

    def record(self, run: str, header: bytes) -> RunRecording:
        """The recording of a new run. It begins with its header, right before the first record of the run."""
        self._headers[run] = header
        return self.recording(run)

    def recording(self, run: str) -> RunRecording:
        return RunRecording(self._tree, self.run_directory(run) / RECORDING_NAME, self.syncs)

    def inbox(self, run: str) -> Inbox:
        """The messages to the process that works on a run and its sub-agents."""
        root = self._family(run)
        return Inbox(self._tree, self.run_directory(root) / "inbox", root)

    def try_lock(self, run: str, wait: float = 0) -> bool:
        """Lock a run and its sub-agents, unless another process still works on them after `wait` seconds."""
        root = self._family(run)
        if root not in self._locks:
            lock = ProcessLock(self._tree, self.run_directory(root) / "lock")
            try:
                lock.acquire("", wait=wait)
            except LockBusy:
                return False
            self._locks[root] = lock
        return True

    def lock(self, run: str) -> None:
        """Lock a run and its sub-agents. Raises `session.busy`."""
        if not self.try_lock(run, PROBE_WAIT):
            raise self._busy_error(run)

    def unlock(self, run: str) -> None:
        self._release(self._family(run))

    def configure(self, sync: SyncMode, notify: Callable[[str], None]) -> None:
        """Change the options for journals that are opened from now on."""
        self._sync = sync
        self._notify = notify

    def remove(self, run: str, *, force: bool = False) -> None:
        """Remove a run with its sub-agents. Its sessions remember that it was removed. `force`: even if a process works
        on it, which then ends with an error. Raises `run.not_found`, `session.busy`."""
        if not is_run_id(run) or not self.run_directory(run).is_dir():
            raise run_not_found_error(run)
        self._lock_to_remove(run, force)
        try:
            with self.sessions.changes():
                self.sessions.mark_removed(run)
            self._remove_directories(run, self.runs())
        finally:
            self._release(run)

    def remove_loose(self, run: str, sub_agents: Iterable[str]) -> None:
        """Remove a run that is in no session, with those of the sub-agents that are its own. Raises `session.busy`."""
        self.lock(run)
        try:
            self._remove_directories(run, sub_agents)
        finally:
            self._release(run)

    def remove_session(self, name: str, *, force: bool = False) -> list[str]:
        """Remove a session with its runs, and return them. Runs that another session has too are kept. `force`: as for
        one run. Raises `session.busy`."""
        removed = []
        with suppress(RequestError) if force else nullcontext():
            self.sessions.lock(name)
        try:
            with self.sessions.changes():
                shared = self.sessions.runs_of_others(name)
                for run in self.sessions.all_runs(name):
                    if run not in shared and self.run_directory(run).is_dir():
                        self._lock_to_remove(run, force)
                        self.sessions.mark_removed(run, [name])
                        self._remove_directories(run, self.runs())
                        self._release(run)
                        removed.append(run)
                self.sessions.remove(name)
        finally:
            self.sessions.unlock(name)
        return removed

    def _lock_to_remove(self, run: str, force: bool) -> None:
        try:
            self.lock(run)
        except RequestError:
            if not force:
                raise

    def _remove_directories(self, run: str, names: Iterable[str] = ()) -> None:
        """Remove a run and its sub-agents among the names. Its journal goes first: without it, what a killed process
        leaves is no run, and is removed later."""
        if os.path.lexists(self.journal_path(run)):
            self._tree.remove(self.journal_path(run))
        for other in names:
            if other.startswith(f"{run}.") and root_run(other) == run:
                self._tree.remove_directory(self.run_directory(other))
        self._tree.remove_directory(self.run_directory(run))

    def leave(self, run: str) -> None:
        """Stop to work on a run and its sub-agents: another process may continue them."""
        root = self._family(run)
        for each in [each for each in self._journals if self._family(each) == root]:
            self._close_journal(each)
            self.sessions.release(each)
        self._release(root)

    def _close_journal(self, run: str) -> None:
        journal = self._journals.pop(run)
        journal.close()
        if journal.seq:
            self.update_index(run)

    def close(self) -> None:
        """Close all journals and release all locks."""
        for run in list(self._journals):
            self._close_journal(run)
        for run in list(self._locks):
            self._release(run)
        self.sessions.release_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- sessions --------------------------------------------------------------------------------------------------

    def lock_session(self, name: str, run: str | None = None) -> None:
        """Lock a session until the store is closed, or the run ends. Raises `session.busy`."""
        self._prepare()
        self.sessions.lock(name, run)

    def session_of(self, run: str) -> str | None:
        """None: the run has no session, or its first record cannot be read."""
        record = self.first_record(run)
        return None if record is None else session_name(record)

    def first_record(self, run: str) -> Record | None:
        """None: it cannot be read."""
        if not is_run_id(run):
            return None
        try:
            path = self.journal_path(run)
            line, end, _ = (self._tree.read(path, MAX_RECORD_BYTES) or b"").partition(b"\n")
            return next(read_records([line], read_blob=blob_reader(path, self._tree))) if end else None
        except StorageError:
            return None

    def _runs_by_start(self) -> list[str]:
        started = ((self.first_record(run), run) for run in self.root_runs())
        return [run for _, run in sorted((record.at, run) for record, run in started if record)]

    # --- for the journals and blobs of this store ------------------------------------------------------------------

    def create_directory(self, run: str) -> bool:
        """Create and lock the directory of a new run. Return whether there was one already, of a process that ended
        before the first record. Raises `run.duplicate` or `session.busy` if another process has created the run in the
        meantime."""
        self._prepare()
        is_left = self.run_directory(run).is_dir()
        if not os.path.lexists(self._runs):
            self._notify(f"runs are stored in {display_path(self.project.store_directory)}: {RETENTION_RULE}")
        self._tree.make_directory(self.run_directory(run) / "inbox", sync=False)
        self.lock(self._family(run))
        if run in self:
            self._release(run)
            raise run_duplicate_error(run)
        return is_left

    def create_journal(self, run: str, first: Record, file: FileJournal | None, *, is_left: bool) -> FileJournal:
        """Write the blobs and the package of a new run, and an empty journal. `file`: the empty journal that a process
        left behind when it ended before the first record. `is_left`: whether it left a directory."""
        root = self._family(run)
        if name := session_name(first):
            self.lock_session(name, run)
            self.sessions.add(name, run, sync=self.syncs)
        if run == root:
            if self._outside is not None:
                self._tree.write(self.run_directory(run) / "project", self._outside, sync=self.syncs)
            self._order.add(run, is_left=is_left, sync=self.syncs)
            self.blobs(run).write_pending()
        self.write_package(run)
        if (header := self._headers.pop(run, None)) is not None:
            self.recording(run).rewrite(header + b"\n")
        return file or self._open_file(run)

    def write_package(self, run: str) -> None:
        package = self._packages.pop(run, None) if self._packages else None
        if package is None or any(file.fingerprint == package.fingerprint for file in self._package_files(run)):
            return
        path = self.run_directory(run) / "package.json"
        if os.path.lexists(path):
            path = path.with_name(f"package-{package.fingerprint[7:23]}.json")
        self._tree.write(path, package_bytes(package), sync=self.syncs)

    def finish_creation(self, run: str) -> None:
        if self.syncs:
            self._tree.sync_directory(self.run_directory(run))

    def undo_creation(self, run: str, first: Record) -> None:
        """Remove the directory of a run whose first record could not be written. It is locked."""
        if name := session_name(first):
            with suppress(StorageError):
                self.sessions.forget(name, run)
        with suppress(StorageError):
            self._remove_directories(run)
        self._blobs.pop(run, None)
        self._release(run)
        self.sessions.release(run)

    def check_directory(self, run: str) -> None:
        """Raises `storage.failed` if the directory of a run that this process works on is gone or read-only."""
        if (journal := self._journals.get(run)) is not None:
            journal.check_directory()

    def update_index(self, run: str) -> None:
        with suppress(ImportError):
            from agentrun.store.index import RunIndex  # late: some installations of Python lack sqlite3

            RunIndex(self.project).update(run)

    def end(self, run: str) -> None:
        """The run has its terminal record."""
        self._journals.pop(run).close()
        self._release(run)
        self.sessions.release(run)

    @property
    def syncs(self) -> bool:
        return self._sync != "process"

    @property
    def _runs(self) -> Path:
        return self.project.store_directory / "runs"

    def run_directory(self, run: str) -> Path:
        return self._runs / run

    def journal_path(self, run: str) -> Path:
        return self._runs / run / JOURNAL_NAME

    def _open_file(self, run: str, *, resume: bool = False) -> FileJournal:
        path = self.journal_path(run)
        put_blob = self.blobs(run).put
        return FileJournal(path, resume=resume, tree=self._tree, sync=self._sync, put_blob=put_blob, warn=self._notify)

    def _family(self, run: str) -> str:
        """The run whose lock and blobs a run uses. An id may look like that of a sub-agent without being one."""
        root = root_run(run)
        return root if root in self._locks or self.run_directory(root).is_dir() else run

    def _busy_error(self, run: str) -> RequestError:
        message = f"another process is working on the run {run}"
        hint = "wait until it ends and try again"
        return RequestError("session.busy", message, hint=hint, fields={"session": self.session_of(run), "run": run})

    def _release(self, run: str) -> None:
        if (lock := self._locks.pop(run, None)) is not None:
            lock.release()


def _last_line(runs: int, run: str) -> bytes:
    """The last complete line of a journal. Empty if there is none, or if it cannot be read."""
    try:
        descriptor = os.open(
            f"{run}/{JOURNAL_NAME}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=runs
        )
    except OSError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        for length in (4096, MAX_RECORD_BYTES + 1):
            before, end, _ = os.pread(descriptor, length, max(0, size - length)).rpartition(b"\n")
            if end and (b"\n" in before or size <= length):
                return before.rpartition(b"\n")[2]
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return b""


class StoredJournal:
    """The journal of a run that this process works on. The directory of a new run is created with its first record."""

    def __init__(self, store: FileStore, run: str, file: FileJournal | None) -> None:
        self.run = run
        self._root = root_run(run)
        self._store = store
        self._file = file
        self._is_closed = False

    @property
    def seq(self) -> int:
        return 0 if self._file is None else self._file.seq

    @property
    def epoch(self) -> int:
        return 1 if self._file is None else self._file.epoch

    @property
    def head(self) -> str:
        return GENESIS_HASH if self._file is None else self._file.head

    @property
    def torn(self) -> int:
        return 0 if self._file is None else self._file.torn

    def append(self, record: Record) -> None:
        if self._is_closed:
            message = f"another owner has taken over the run {self.run}"
            raise StorageError("journal.stale_owner", message, fields={"seq": record.seq, "epoch": record.epoch})
        if self._file is None or record.seq == 1:
            self._append_first(record)
        else:
            self._store.write_package(self.run)
            if self._root != self.run and type(record.fact) in INTENTS:
                self._store.check_directory(self._root)
            self._file.append(record)
        if isinstance(record.fact, RunStopped):
            self._store.update_index(self.run)
            self._store.end(self.run)

    def _append_first(self, record: Record) -> None:
        is_left = self._store.create_directory(self.run)
        try:
            self._file = self._store.create_journal(self.run, record, self._file, is_left=is_left)
            self._file.append(record)
            self._store.finish_creation(self.run)
        except BaseException:
            self.close()
            self._store.undo_creation(self.run, record)
            raise

    def check_directory(self) -> None:
        if self._file is not None:
            self._file.check_directory()

    def records(self) -> tuple[Record, ...]:
        return () if self._file is None else self._file.records()

    def lines_after(self, seq: int) -> Iterator[bytes]:
        return iter(()) if self._file is None else self._file.lines_after(seq)

    def close(self) -> None:
        self._is_closed = True
        if self._file is not None:
            self._file.close()
