"""Sessions: the earlier runs of a conversation, read from their journals.

A session has one run at a time, across processes. The next run starts when the last one is finished.
"""

from __future__ import annotations

from agentrun.core.evolve import fold
from agentrun.core.facts import Record, RunStopped, ToolStarted
from agentrun.core.state import pending_effects
from agentrun.errors import RequestError, StorageError
from agentrun.store.files import FileStore


def read_session(store: FileStore, name: str) -> tuple[tuple[Record, ...], ...]:
    """Lock a session until the store is closed or the next run of the session ends, and read the journals of its runs.
    Raises `session.busy`, and the errors of a damaged journal."""
    store.lock_session(name)
    runs = []
    for entry in store.session_runs(name):
        if entry.removed:
            continue
        if not store.run_directory(entry.run).is_dir():
            message = f"the run {entry.run} of the session {name} is not in the store any more"
            hint = "restore it from a backup, or use another session name"
            raise StorageError("recovery.failed", message, hint=hint, fields={"session": name, "run": entry.run})
        if entry.run in store:  # otherwise its process ended before the first record
            runs.append(store.records(entry.run))
    if runs and not isinstance(runs[-1][-1].fact, RunStopped):
        raise _unfinished_error(name, runs[-1])
    return tuple(runs)


def _unfinished_error(name: str, records: tuple[Record, ...]) -> RequestError:
    state = fold(records)
    run, pending = state.started.run, pending_effects(state)
    tools = {record.fact.call: record.fact.tool for record in records if isinstance(record.fact, ToolStarted)}
    calls = [call for call in pending if call in tools]
    message = f"the run {run} of the session {name} is not finished"
    if calls:
        names = " and ".join(f"{tools[call]} ({call})" for call in calls)
        message += f": {names} was started, and it is not known whether it took effect"
    hint = f"continue it with: agentrun resume {run}"
    return RequestError("session.busy", message, hint=hint, fields={"session": name, "run": run, "calls": calls})
