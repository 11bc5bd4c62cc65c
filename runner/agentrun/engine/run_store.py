"""The store of a run that is about to start: opened, checked and cleaned up, and the session that the run continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from agentrun.engine.request import Request
from agentrun.engine.sessions import Session, refuse_continuation, stored_session
from agentrun.errors import StorageError
from agentrun.journal.storage import SyncMode
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.owner import is_claimed
from agentrun.store.retention import prune_store
from agentrun.store.sessions import SessionStart, open_session


@contextmanager
def open_run_store(
    project: Project, sync: SyncMode, notify: Callable[[str], None] = lambda text: None
) -> Iterator[FileStore]:
    """The store of a project for a new run. Raises `storage.failed` if it cannot be written."""
    with FileStore(project, sync=sync, notify=notify) as store:
        store.check_writable()
        if is_claimed(project):
            with suppress(StorageError):
                prune_store(store, round(time.time() * 1000))
        yield store


def lock_session(store: FileStore, request: Request, start: SessionStart) -> Session | None:
    """The session that a request continues, which is locked until its run ends. Raises `session.*`,
    `run.invalid_continuation`, and the errors of a damaged journal."""
    if request.session is None:
        return None
    runs = open_session(store, request.session, start)
    session = stored_session(store, request.session, runs)
    if runs:
        refuse_continuation(session, request, store.records(session.unfinished or session.runs[-1]))
    return session
