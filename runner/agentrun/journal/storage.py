"""Journals in files and in memory, and the paths of the journals of sub-agents.

Rule 1  A new journal never overwrites a file. To continue a journal, the whole file is read and checked first.
Rule 2  A process that continues a journal is its next owner: its records have the next epoch.
Rule 3  After a record that could not be written, no other record is written.
Rule 4  Every line ends with a newline. A last line without one was cut off during the write.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Self

from agentrun.canonical_json import data_hash
from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.core.facts import Record
from agentrun.errors import StorageError, poisoned_journal_error, storage_failed
from agentrun.files import ProjectTree, open_user_file
from agentrun.journal.records import HashChain, damaged_record_error, follow_chain, read_records

MAX_JOURNAL_BYTES = 50 * 1000 * 1000
_CALL_SUFFIXES = re.compile(rf"(\.{CALL_PATTERN})+")


class FileJournal:
    def __init__(self, path: Path, *, resume: bool = False, tree: ProjectTree | None = None) -> None:
        """`tree`: the project tree of the file. None: the path is from the command line and used as it is."""
        self.epoch = 1
        self._chain = HashChain()
        self._path = path
        self._poisoned = False
        self._ends = [0]
        """The offset of the end of each line in the file; the first entry is 0."""
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
            raise poisoned_journal_error(record.seq)
        line = self._chain.add(record) + b"\n"
        self._poisoned = True
        try:
            written = self._file.write(line)
        except OSError as error:
            raise _journal_failed(error, "written") from error
        if written != len(line):  # the first sign of a full disk is a short write, not an error
            raise _journal_failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "written")
        self._ends.append(self._ends[-1] + len(line))
        self._poisoned = False

    def records(self) -> tuple[Record, ...]:
        return tuple(read_journal_file(self._path, self.head))

    def lines_after(self, seq: int) -> Iterator[bytes]:
        ends = self._ends[seq:]
        try:
            with self._path.open("rb") as file:
                file.seek(ends[0] if ends else 0)
                for number, (start, end) in enumerate(pairwise(ends), seq + 1):
                    line = file.read(end - start)
                    if line[-1:] != b"\n" or len(line) != end - start:
                        raise damaged_record_error(number, "it is not the line that was written")
                    if number == self._chain.seq and data_hash(line[:-1]) != self.head:
                        raise damaged_record_error(number, "it is not the last record that was written")
                    yield line[:-1]
        except OSError as error:
            raise _journal_failed(error) from error

    def _measure(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._ends.append(self._ends[-1] + len(line) + 1)
            yield line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_journal_file(path: Path, head: str | None = None) -> Iterator[Record]:
    yield from read_records(_read_lines(path), head)


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JOURNAL_BYTES + 1)
    except OSError as error:
        raise _journal_failed(error) from error
    if len(data) > MAX_JOURNAL_BYTES:
        message = f"the journal {path.name} is larger than {MAX_JOURNAL_BYTES // 1000**2} MB, the limit for journals"
        raise StorageError("storage.failed", message, fields={"path": "journal"})
    *lines, rest = data.split(b"\n")
    yield from lines
    if rest:
        seq = len(lines) + 1
        message = f"record {seq} of the journal is incomplete: it was cut off during the write"
        raise StorageError("journal.truncated", message, fields={"seq": seq})


def _journal_failed(error: OSError, verb: str = "read") -> StorageError:
    return storage_failed("journal", f"the journal cannot be {verb}: {error.strerror}", error)


class MemoryJournal:
    """A new journal in memory, or the continuation of the given records."""

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
        return b"".join(line + b"\n" for line in self._lines)


def child_journal_path(path: Path, calls: str) -> Path:
    """The journal of a sub-agent, from its parent's journal and the ids of the calls that started it (`c1.0`)."""
    return path.with_name(f"{path.stem}.{calls}{path.suffix}")


def child_journal_paths(path: Path) -> list[Path]:
    files = (each for each in path.parent.glob("*") if each.suffix == path.suffix)
    return sorted(each for each in files if is_child_journal_of(path, each))


def is_child_journal_of(path: Path, other: Path) -> bool:
    return other.stem.startswith(path.stem) and bool(_CALL_SUFFIXES.fullmatch(other.stem.removeprefix(path.stem)))


def is_child_journal(path: Path) -> bool:
    return re.search(rf"\.{CALL_PATTERN}$", path.stem) is not None
