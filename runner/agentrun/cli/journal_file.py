"""`--journal FILE`: the journal of a run in a file, with the journals of its sub-agents next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from agentrun.cli.console import refuse_other_content, write_output
from agentrun.cli.plan import RunPlan
from agentrun.core.facts import Record
from agentrun.engine.memory import Journals
from agentrun.engine.ports import Journal
from agentrun.engine.run import FinishedRun
from agentrun.errors import RequestError, StorageError
from agentrun.files import check_user_file, remove_user_file
from agentrun.journal.records import JOURNAL_PREFIX, is_terminal_line
from agentrun.journal.storage import (
    FileJournal,
    JournalContents,
    child_journal_path,
    child_journal_paths,
    read_contents,
)
from agentrun.spec.safe_text import join_words


def streams_journal(plan: RunPlan) -> bool:
    """Whether the journal is written during the run. A pipe gets it at the end."""
    path = plan.journal
    is_file = path is not None and str(path) != "-" and (path.is_file() or not path.exists())
    return is_file and plan.mode != "replay"


def check_journal(path: Path) -> None:
    """Check that the journal can be written, before the run. Raises `storage.failed`, and click.UsageError for a file
    that is not a journal."""
    if str(path) != "-":
        check_user_file(path)
        _refuse_other_files([path, *child_journal_paths(path)])


def _remove_old_journals(path: Path) -> None:
    """Remove the journals that the new ones replace. Raises click.UsageError for any other kind of file."""
    files = [path, *child_journal_paths(path)]
    _refuse_other_files(files)
    for file in files:
        remove_user_file(file)


def _refuse_other_files(files: Iterable[Path]) -> None:
    for file in files:
        refuse_other_content(file, JOURNAL_PREFIX)
        _refuse_unfinished(file)


def _refuse_unfinished(file: Path) -> None:
    """The journal of a run that was interrupted or waits may be the only trace of a call that was started."""
    if not file.is_file():
        return
    contents = read_contents(file)
    if is_terminal_line(contents.last_line) or not contents.data:
        return
    run, open_text = _open_work(contents)
    message = f"{file} is the journal of {run}, which is not finished{open_text}, and is not overwritten"
    hint = f"{'' if run == 'a run' else f'agentrun resume {run}, or '}choose another file, or move this one away"
    raise RequestError("run.invalid_state", message, hint=hint, fields={"expected": "finished", "actual": "unfinished"})


def _open_work(contents: JournalContents) -> tuple[str, str]:
    from agentrun.core.evolve import fold  # late: only for the error
    from agentrun.report.run_story import open_calls

    try:
        state = fold(contents.records())
    except StorageError:
        return "a run", ""
    if state.seq == 0:
        return "a run", ""
    calls = open_calls(state)
    return (
        state.started.run,
        f" ({join_words(calls)} {'has' if len(calls) == 1 else 'have'} no result)" if calls else "",
    )


def write_journal(path: Path, done: FinishedRun) -> None:
    """Write the journals of a finished run. A pipe gets only the journal of the run itself."""
    if path.is_file():
        _remove_old_journals(path)
    write_output(path, _journal_bytes(done.journal), replaces=JOURNAL_PREFIX)
    if path.is_file():
        for run, records in done.children.items():
            calls = run.removeprefix(f"{done.ending.run}.")
            write_output(child_journal_path(path, calls), _journal_bytes(records), replaces=JOURNAL_PREFIX)


def _journal_bytes(records: Iterable[Record]) -> bytes:
    from agentrun.credentials import hidden_secrets
    from agentrun.journal.storage import MemoryJournal

    journal = MemoryJournal()
    for record in records:
        journal.append(replace(record, prev=journal.head, fact=hidden_secrets.redactor.redact_struct(record.fact)))
    return journal.text()


class CopiedJournals:
    """Journals that are also written to the file of `--journal`, and to files beside it for sub-agents.

    A run that is refused leaves the files as they were: each is created with its first record.
    """

    def __init__(self, journals: Journals, run: str, path: Path) -> None:
        self._journals = journals
        self._run = run
        self._path = path
        self._files: dict[str, FileJournal] = {}
        self.keep = journals.keep
        self.package = journals.package
        self.records = journals.records

    def __contains__(self, run: object) -> bool:
        return run in self._journals

    def open(self, run: str) -> Journal:
        return _CopiedJournal(self._journals.open(run), partial(self._copy, run))

    def _copy(self, run: str, record: Record) -> None:
        if run not in self._files:
            self._files[run] = self._create(run)
        file = self._files[run]
        file.append(replace(record, prev=file.head))  # in the store, the line of a large record has another hash

    def _create(self, run: str) -> FileJournal:
        if run != self._run:
            return FileJournal(child_journal_path(self._path, run.removeprefix(f"{self._run}.")))
        _remove_old_journals(self._path)
        return FileJournal(self._path)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class _CopiedJournal:
    def __init__(self, journal: Journal, copy: Callable[[Record], None]) -> None:
        self._journal = journal
        self._copy = copy
        self.epoch = journal.epoch
        self.torn = journal.torn
        self.records = journal.records
        self.lines_after = journal.lines_after

    @property
    def head(self) -> str:
        return self._journal.head

    def append(self, record: Record) -> None:
        self._journal.append(record)
        self._copy(record)
