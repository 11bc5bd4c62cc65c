"""`--journal FILE`: the journal of a run in a file, with the journals of its sub-agents next to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from agentrun.cli.console import refuse_other_content, write_output
from agentrun.cli.plan import RunPlan
from agentrun.core.facts import Record
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun
from agentrun.files import ProjectTree, check_user_file, remove_user_file
from agentrun.journal.records import JOURNAL_PREFIX
from agentrun.journal.storage import FileJournal, child_journal_path, child_journal_paths


def streams_journal(plan: RunPlan, request: Request) -> bool:
    """Whether the journal is written during the run. A pipe gets it at the end, and a session run copies its own."""
    path = plan.journal
    is_file = path is not None and str(path) != "-" and (path.is_file() or not path.exists())
    return is_file and plan.mode != "replay" and request.session is None


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
    from agentrun.cli.console import environment_redactor
    from agentrun.engine.fact_redaction import redact_struct
    from agentrun.journal.storage import MemoryJournal

    journal = MemoryJournal()
    for record in records:
        journal.append(replace(record, prev=journal.head, fact=redact_struct(environment_redactor(), record.fact)))
    return journal.text()


class FileJournals(MemoryJournals):
    """Journals in memory and in files. A record that cannot be written to its file is not committed.

    A run that is refused leaves the files as they were: each is created with its first record.
    """

    def __init__(self, run: str, path: Path, tree: ProjectTree | None) -> None:
        """`tree`: the project tree that contains `path`. None: the command line names the path, and an old journal
        there is replaced. Raises `storage.failed` if the file cannot be created."""
        super().__init__()
        self._run = run
        self._path = path
        self._tree = tree
        self._files: dict[str, FileJournal] = {}
        if tree is not None:
            tree.check_writable(path)

    def append(self, run: str, record: Record) -> None:
        if run not in self._files:
            self._files[run] = self._create(run)
        self._files[run].append(record)
        super().append(run, record)

    def _create(self, run: str) -> FileJournal:
        if run != self._run:
            path = child_journal_path(self._path, run.removeprefix(f"{self._run}."))
            return FileJournal(path, tree=self._tree)
        if self._tree is None:
            _remove_old_journals(self._path)
        return FileJournal(self._path, tree=self._tree)

    def close(self) -> None:
        for file in self._files.values():
            file.__exit__(None, None, None)
