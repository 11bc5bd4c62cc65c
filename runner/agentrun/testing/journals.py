"""Journals that fail, and hosts that die, at a record of one's choice."""

from __future__ import annotations

from typing import Literal

from agentrun.core.facts import Record
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import StorageError
from agentrun.journal.memory import MemoryJournal


class Crash(BaseException):
    """The host died here. Nothing of ours catches it."""


class FailingJournal(MemoryJournal):
    """One journal that cannot write its nth record, nor any after it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def append(self, record: Record) -> None:
        if record.seq >= self._at:
            raise _failed(record, first=record.seq == self._at)
        super().append(record)


class FailingJournals(MemoryJournals):
    """Journals that cannot write the nth record of all, nor any after it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self.appends = 0

    def append(self, run: str, record: Record) -> None:
        self.appends += 1
        if self.appends >= self._at:
            raise _failed(record, first=self.appends == self._at)
        super().append(run, record)


class CrashingJournals(MemoryJournals):
    """Journals whose host dies before or after it writes the nth record of all."""

    def __init__(self, at: int, when: Literal["before", "after"]) -> None:
        super().__init__()
        self._at = at
        self._when = when
        self.appends = 0
        self.is_dead = False

    def append(self, run: str, record: Record) -> None:
        self.appends += not self.is_dead
        due = self.appends == self._at
        if self.is_dead or (due and self._when == "before"):
            self.die()
        super().append(run, record)
        if due:
            self.die()

    def die(self) -> None:
        """From now on nothing is written."""
        self.is_dead = True
        raise Crash


def _failed(record: Record, *, first: bool) -> StorageError:
    if first:
        return StorageError("storage.failed", "no space left on the device", fields={"path": "journal", "errno": 28})
    return StorageError("journal.poisoned", "an earlier record could not be written", fields={"seq": record.seq})
