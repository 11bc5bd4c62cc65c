"""A journal as a file of JSON lines. What survives a crash is a later matter.

Rule 1  A new journal never takes an existing file. To go on with one, all of it is read and checked first.
Rule 2  Who goes on is the next owner: its records carry the next epoch.
Rule 3  After a record that could not be written there is no next one.
Rule 4  The last line ends like the others. One without its end was cut while it was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from errno import ENOSPC
from itertools import pairwise
from os import strerror
from pathlib import Path
from types import TracebackType
from typing import Self

from agentrun.canonical_json import data_hash
from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.core.facts import Record
from agentrun.errors import StorageError
from agentrun.files import ProjectTree, open_user_file
from agentrun.journal.records import HashChain, damaged_record_error, follow_chain, read_records

MAX_JOURNAL_BYTES = 50 * 1000 * 1000


class FileJournal:
    """The journal of a new run, or with `resume` one that is there already."""

    def __init__(self, path: Path, *, resume: bool = False, tree: ProjectTree | None = None) -> None:
        """`tree`: the project tree that the file is in. None: the operator named the path, and it is used as given."""
        self.epoch = 1
        self._chain = HashChain()
        self._path = path
        self._poisoned = False
        self._ends = [0]
        """Where each line ends in the file, from before the first one on."""
        if resume:
            for record in follow_chain(self._chain, self._measure(_read_lines(path))):
                self.epoch = record.epoch + 1
        flags = os.O_WRONLY | os.O_APPEND | (0 if resume else os.O_CREAT | os.O_EXCL)
        descriptor = open_user_file(path, flags, "journal") if tree is None else tree.open_file(path, flags)
        self._file = os.fdopen(descriptor, "ab", buffering=0)

    @property
    def head(self) -> str:
        return self._chain.head

    def append(self, record: Record) -> None:
        if self._poisoned:
            fields = {"seq": record.seq}
            raise StorageError("journal.poisoned", "an earlier record could not be written", fields=fields)
        line = self._chain.add(record) + b"\n"
        self._poisoned = True
        try:
            written = self._file.write(line)
        except OSError as error:
            raise _storage_error(error) from error
        if written != len(line):  # the first sign of a full disk is a short write, not an error
            raise _storage_error(OSError(ENOSPC, strerror(ENOSPC)))
        self._ends.append(self._ends[-1] + len(line))
        self._poisoned = False

    def records(self) -> tuple[Record, ...]:
        return tuple(read_journal_file(self._path, self.head))

    def lines_after(self, seq: int) -> Iterator[bytes]:
        """Only these lines are read from the file."""
        ends = self._ends[seq:]
        try:
            with self._path.open("rb") as file:
                file.seek(ends[0] if ends else 0)
                for number, (start, end) in enumerate(pairwise(ends), seq + 1):
                    line = file.read(end - start)
                    if line[-1:] != b"\n" or len(line) != end - start:
                        raise damaged_record_error(number, "it is not the line that was written")
                    if number == self._chain.seq and data_hash(line[:-1]) != self.head:
                        raise damaged_record_error(number, "it is not the record that the journal ended with")
                    yield line[:-1]
        except OSError as error:
            raise _storage_error(error) from error

    def _measure(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Give the lines on, and remember where each ends."""
        for line in lines:
            self._ends.append(self._ends[-1] + len(line) + 1)
            yield line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def read_journal_file(path: Path, head: str | None = None) -> Iterator[Record]:
    """The records of a journal file, checked. With `head`, its last line is checked too."""
    yield from read_records(_read_lines(path), head)


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JOURNAL_BYTES + 1)
    except OSError as error:
        raise _storage_error(error) from error
    if len(data) > MAX_JOURNAL_BYTES:
        raise StorageError(
            "storage.failed", f"the journal has more than {MAX_JOURNAL_BYTES} bytes", fields={"path": "journal"}
        )
    *lines, rest = data.split(b"\n")
    yield from lines
    if rest:
        raise StorageError(
            "journal.truncated",
            f"record {len(lines) + 1} of the journal was cut off while it was written",
            fields={"seq": len(lines) + 1},
        )


def _storage_error(error: OSError) -> StorageError:
    return StorageError(
        "storage.failed",
        f"the journal cannot be used: {error.strerror}",
        fields={"path": "journal", "errno": error.errno},
    )


# --- a journal that lives as long as its run: replays and tests -----------------------------------------------


class MemoryJournal:
    """A journal of its own, or one that goes on, as the next owner, from records that are there already."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._chain = HashChain()
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


# --- where the journals of a run's children stand: beside its own ---------------------------------------------


_CALL_SUFFIXES = re.compile(rf"(\.{CALL_PATTERN})+")


def child_journal_path(path: Path, calls: str) -> Path:
    """The journal of a child, given its parent's and the calls that lead to it, such as `c1.0`."""
    return path.with_name(f"{path.stem}.{calls}{path.suffix}")


def child_journal_paths(path: Path) -> list[Path]:
    """The journals of children that stand beside a journal."""
    return sorted(
        each for each in path.parent.glob("*") if each.suffix == path.suffix and is_child_journal_of(path, each)
    )


def is_child_journal_of(path: Path, other: Path) -> bool:
    rest = other.stem.removeprefix(path.stem)
    return other.stem.startswith(path.stem) and _CALL_SUFFIXES.fullmatch(rest) is not None


def is_child_journal(path: Path) -> bool:
    """Whether a file is named as the journal of somebody's child."""
    return re.search(rf"\.{CALL_PATTERN}$", path.stem) is not None
