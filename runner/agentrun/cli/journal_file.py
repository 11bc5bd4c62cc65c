"""`--journal FILE`: the journal of a run in a file, and its children's beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from agentrun.cli.plan import Plan
from agentrun.cli.write import refuse_other, write_output
from agentrun.core.facts import Record
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun
from agentrun.files import remove_user_file
from agentrun.journal.records import JOURNAL_PREFIX
from agentrun.journal.storage import child_journal_path, child_journal_paths


def writes_journal_as_it_goes(plan: Plan, request: Request) -> bool:
    """A pipe gets the whole at the end. Of a session's run the journal is in the session, and is copied."""
    path = plan.journal
    is_file = path is not None and str(path) != "-" and (path.is_file() or not path.exists())
    return is_file and plan.mode != "replay" and request.session is None


def clear_journal(path: Path) -> None:
    """Make room for new journals. Only other journals are removed."""
    files = [path, *child_journal_paths(path)]
    for file in files:
        refuse_other(file, JOURNAL_PREFIX)
    for file in files:
        remove_user_file(file)


def write_journal(path: Path, done: FinishedRun) -> None:
    """Write the journals of a run that is over. A pipe gets the one of the run that was started."""
    if path.is_file():
        clear_journal(path)
    write_output(path, _text(done.journal), replaces=JOURNAL_PREFIX)
    if path.is_file():
        for run, records in done.children.items():
            calls = run.removeprefix(f"{done.ended.run}.")
            write_output(child_journal_path(path, calls), _text(records), replaces=JOURNAL_PREFIX)


def _text(records: Iterable[Record]) -> bytes:
    from agentrun.cli.known import known
    from agentrun.engine.clean import cleaned
    from agentrun.journal.storage import MemoryJournal

    journal = MemoryJournal()
    for record in records:
        journal.append(replace(record, prev=journal.head, fact=cleaned(known(), record.fact)))
    return journal.text()
