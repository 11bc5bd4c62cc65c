"""Journals in memory and in files, as they go: that of the run that a user started, and beside it its children's."""

from __future__ import annotations

from pathlib import Path

from agentrun.core.facts import Record
from agentrun.engine.memory import MemoryJournals
from agentrun.files import ProjectTree
from agentrun.journal.storage import FileJournal, child_journal_path


class KeptJournals(MemoryJournals):
    """A record counts when it is in its file. What cannot be written there has not happened."""

    def __init__(self, run: str, path: Path, tree: ProjectTree | None) -> None:
        """`tree`: the project tree that `path` is in. None: the operator named it."""
        super().__init__()
        self._run = run
        self._path = path
        self._tree = tree
        self._files = {run: FileJournal(path, tree=tree)}

    def append(self, run: str, record: Record) -> None:
        if run not in self._files and run.startswith(f"{self._run}."):
            self._files[run] = FileJournal(
                child_journal_path(self._path, run.removeprefix(f"{self._run}.")), tree=self._tree
            )
        if run in self._files:
            self._files[run].append(record)
        super().append(run, record)

    def close(self) -> None:
        for file in self._files.values():
            file.__exit__(None, None, None)
