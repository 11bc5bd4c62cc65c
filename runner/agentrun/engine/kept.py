"""Journals in memory, and the one of the run that a user started also in a file, as it goes."""

from __future__ import annotations

from pathlib import Path

from agentrun.core.facts import Record
from agentrun.engine.memory import MemoryJournals
from agentrun.journal.file import FileJournal


class KeptJournals(MemoryJournals):
    """A record counts when it is in the file. What cannot be written there has not happened."""

    def __init__(self, run: str, path: Path) -> None:
        super().__init__()
        self._run = run
        self._file = FileJournal(path)

    def append(self, run: str, record: Record) -> None:
        if run == self._run:
            self._file.append(record)
        super().append(run, record)

    def close(self) -> None:
        self._file.__exit__(None, None, None)
