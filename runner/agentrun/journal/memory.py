"""A journal that lives as long as its run: replays and tests."""

from __future__ import annotations

from agentrun.core.facts import Record
from agentrun.journal.lines import Chain


class MemoryJournal:
    epoch = 1

    def __init__(self) -> None:
        self._chain = Chain()
        self._records: list[Record] = []
        self._lines: list[bytes] = []

    @property
    def head(self) -> str:
        return self._chain.head

    def append(self, record: Record) -> None:
        self._lines.append(self._chain.add(record))
        self._records.append(record)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def text(self) -> bytes:
        """The file that this journal would be."""
        return b"".join(line + b"\n" for line in self._lines)
