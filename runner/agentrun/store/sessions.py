"""Sessions: the earlier runs of a conversation, read from their journals.

Rule 1  A session has one run at a time, across processes. The next run starts when the last one is finished.
Rule 2  The list of a session has all its runs: each run names its predecessor, which is the run before it in the list,
        or one that was removed since.
Rule 3  The journals of all its runs must be intact. A run that was removed by command is no damage.
Rule 4  A finished run is read once. What a later run needs of it is in `.agentrun/sessions/<session>/checked`, with the
        state of its journal; if that has changed, or the file is lost, the run is read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from agentrun.core.facts import Record, RunStarted, RunStopped
from agentrun.core.messages import message_hash, text_of
from agentrun.errors import RequestError, StorageError, session_duplicate_error
from agentrun.journal.storage import JOURNAL_NAME
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.store.files import FileStore
from agentrun.store.owner import refuse_untrusted
from agentrun.store.session_lists import SessionEntry, session_name

MAX_CHECKED_BYTES = 64 * 1024 * 1024
CLOCK_TICK_NS = 50_000_000
"""File systems give files the time of the last tick of the clock, which is shorter than this."""

FileState: TypeAlias = tuple[int, ...]
SessionStart: TypeAlias = Literal["continue", "new", "create"]
"""continue: the session must exist. new: it must not exist. create: it begins if it does not exist."""


def open_session(store: FileStore, name: str, start: SessionStart = "create") -> tuple[SessionRun, ...]:
    """Lock a session until the store is closed or the next run of the session ends, and check the journals of its runs.
    Raises `session.not_found`, `session.duplicate`, `session.busy`, `storage.untrusted`, and the errors of a damaged
    journal."""
    _check_start(store, name, start)
    store.lock_session(name)
    _check_start(store, name, start)  # another process may have been faster
    entries = store.sessions.runs(name)
    if entries:
        refuse_untrusted(store.project)
    return check_runs(store, name, entries)


def _check_start(store: FileStore, name: str, start: SessionStart) -> None:
    if start == "create":
        return
    if start == "new" and name in store.sessions:
        error = session_duplicate_error(name)
        error.hint = f"continue it with --session {name}"
        raise error
    if start == "continue" and name not in store.sessions:
        raise not_found_error(store, name, f"begin a session with --new-session {name}")


def not_found_error(store: FileStore, name: str, otherwise: str) -> RequestError:
    """`otherwise`: what to do if the name was not misspelt."""
    near = did_you_mean(name, store.sessions.names())
    hint = f"{near} Otherwise {otherwise}" if near else otherwise
    message = f"there is no session {quote_text(name)}"
    return RequestError("session.not_found", message, hint=hint, fields={"session": name})


class SessionRun(Struct, frozen=True, array_like=True):
    """A run of a session whose journal is intact."""

    run: str
    agent: str
    session: str | None
    """The session that it was started in. If that is another one, this one is a fork of it."""
    predecessor: str | None
    message: str | None
    """The hash of its input. None: it has none."""
    is_finished: bool
    file: FileState
    """The state of its journal when it was checked."""


def check_runs(store: FileStore, name: str, entries: Sequence[SessionEntry]) -> tuple[SessionRun, ...]:
    """These runs of a session, without those that were removed or never began. Raises the errors of a damaged
    journal."""
    known, runs = _read_checked(store, name), []
    last: set[str] = set()
    """The last run, and those after it that were removed."""
    for entry, file in zip(entries, _file_states(store, [entry.run for entry in entries]), strict=True):
        if entry.removed:
            last.add(entry.run)
            continue
        each = known.get(entry.run)
        if each is None or each.file != file:
            if not store.run_directory(entry.run).is_dir():
                raise _missing_run_error(name, entry.run)
            if entry.run not in store:
                continue  # its process ended before the first record
            each = _check_run(store, name, entry.run, file)
        if each.predecessor is not None and each.predecessor not in last:
            raise _missing_run_error(name, each.predecessor)
        last = {entry.run}
        runs.append(each)
    _write_checked(store, name, known, runs)
    return tuple(runs)


def _check_run(store: FileStore, name: str, run: str, file: FileState) -> SessionRun:
    records = _read_run(store, name, run)
    started = records[0].fact
    assert isinstance(started, RunStarted), "a journal begins with run_started"
    return SessionRun(
        run=run,
        agent=started.agent,
        session=session_name(records[0]),
        predecessor=None if started.predecessor is UNSET else started.predecessor,
        message=None if started.input is None else message_hash(text_of(started.input.parts)),
        is_finished=isinstance(records[-1].fact, RunStopped),
        file=file,
    )


def _file_states(store: FileStore, runs: Iterable[str]) -> Iterator[FileState]:
    """Of the journal of each run: numbers that differ if the file has changed. Empty if there is none."""
    with store.project.store_tree.directory(store.project.store_directory / "runs") as directory:
        for run in runs:
            state: FileState = ()
            with suppress(OSError):
                if directory is not None:
                    status = os.stat(f"{run}/{JOURNAL_NAME}", dir_fd=directory, follow_symlinks=False)
                    state = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            yield state


def _checked_path(store: FileStore, name: str) -> Path:
    return store.sessions.directory(name) / "checked"


def _read_checked(store: FileStore, name: str) -> dict[str, SessionRun]:
    data = store.project.store_tree.read(_checked_path(store, name), MAX_CHECKED_BYTES) or b""
    with suppress(msgspec.MsgspecError):
        return {each.run: each for each in msgspec.json.decode(data, type=list[SessionRun])}
    return {}


def _write_checked(store: FileStore, name: str, known: dict[str, SessionRun], runs: Sequence[SessionRun]) -> None:
    """A file that was changed a moment ago may change again without getting another time."""
    latest = time.time_ns() - CLOCK_TICK_NS
    all_known = {**known, **{each.run: each for each in runs if each.is_finished and max(each.file) < latest}}
    if all_known != known:
        data = msgspec.json.encode(list(all_known.values()))
        with suppress(StorageError):  # the session can continue without it
            store.project.store_tree.write(_checked_path(store, name), data, sync=False)


def _read_run(store: FileStore, name: str, run: str) -> tuple[Record, ...]:
    try:
        return store.records(run)
    except StorageError as error:
        error.fields |= {"session": name, "run": run}
        error.hint = f"the run is {run} of the session {name}; {_WAY_OUT}"
        raise


def _missing_run_error(name: str, run: str) -> StorageError:
    message = f"the run {run} of the session {name} is missing"
    return StorageError("recovery.failed", message, hint=_WAY_OUT, fields={"session": name, "run": run})


_WAY_OUT = "restore it from a backup, or fork the session at an earlier run with `agentrun sessions fork`"
