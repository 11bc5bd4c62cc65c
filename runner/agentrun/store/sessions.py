"""Sessions: the earlier runs of a conversation, read from their journals.

Rule 1  A session has one run at a time, across processes. The next run starts when the last one is finished.
Rule 2  The list of a session has all its runs: each run names its predecessor, which is the run before it in the list,
        or one that was removed since.
Rule 3  The journals of all its runs must be intact. A run that was removed by command is no damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET

from agentrun.core.facts import Record, RunStarted
from agentrun.errors import RequestError, StorageError, session_duplicate_error
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.store.files import FileStore
from agentrun.store.owner import refuse_untrusted
from agentrun.store.session_lists import SessionEntry

SessionStart: TypeAlias = Literal["continue", "new", "create"]
"""continue: the session must exist. new: it must not exist. create: it begins if it does not exist."""


def open_session(store: FileStore, name: str, start: SessionStart = "create") -> tuple[tuple[Record, ...], ...]:
    """Lock a session until the store is closed or the next run of the session ends, and read the journals of its runs.
    Raises `session.not_found`, `session.duplicate`, `session.busy`, `storage.untrusted`, and the errors of a damaged
    journal."""
    _check_start(store, name, start)
    store.lock_session(name)
    _check_start(store, name, start)  # another process may have been faster
    entries = store.sessions.runs(name)
    if entries:
        refuse_untrusted(store.project)
    return read_runs(store, name, entries)


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


def read_runs(store: FileStore, name: str, entries: Sequence[SessionEntry]) -> tuple[tuple[Record, ...], ...]:
    """The journals of these runs of a session, without those that were removed or never began. Raises the errors of a
    damaged journal."""
    runs: list[tuple[Record, ...]] = []
    last: set[str] = set()
    """The last run, and those after it that were removed."""
    for entry in entries:
        if entry.removed:
            last.add(entry.run)
            continue
        if not store.run_directory(entry.run).is_dir():
            raise _missing_run_error(name, entry.run)
        if entry.run in store:  # otherwise its process ended before the first record
            runs.append(_read_run(store, name, entry.run))
            started = runs[-1][0].fact
            assert isinstance(started, RunStarted), "a journal begins with run_started"
            if started.predecessor is not UNSET and started.predecessor not in last:
                raise _missing_run_error(name, started.predecessor)
            last = {entry.run}
    return tuple(runs)


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
