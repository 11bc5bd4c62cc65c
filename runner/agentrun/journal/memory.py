"""A journal that lives as long as its run: replays and tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentrun.core.facts import Record
from agentrun.journal.lines import Chain


class MemoryJournal:
    """A journal of its own, or one that goes on, as the next owner, from records that are there already."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._chain = Chain()
        self._records: list[Record] = []
        self._lines: list[bytes] = []
        for record in records:
            self.append(record)
        self.epoch = self._records[-1].epoch + 1 if self._records else 1

    @property
    def head(self) -> str:
        return self._chain.head

    def append(self, record: Record) -> None:
        self._lines.append(self._chain.add(record))
        self._records.append(record)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def lines_after(self, seq: int) -> Iterator[bytes]:
        yield from self._lines[seq:]

    def text(self) -> bytes:
        """The file that this journal would be."""
        return b"".join(line + b"\n" for line in self._lines)
