"""Journals in files and in memory, and the paths of the journals of sub-agents.

Rule 1  A new journal never overwrites a file. To continue a journal, the whole file is read and checked first, and
        synced, because its last owner may not have done that.
Rule 2  A process that continues a journal is its next owner: its records have the next epoch.
Rule 3  After a record that could not be written or synced, no other record is written. A sync is not repeated: the
        second one can succeed although the data is lost.
Rule 4  Every line ends with a newline. A last line without one was cut off during the write. A journal of the store
        keeps such a line in `torn-<seq>`, cuts it off and continues.
Rule 5  A journal of the store has a file `head` beside it: number and hash of the last synced record. It is written in
        place and not synced, so it is never ahead of the journal, and it shows that later lines were cut off.
Rule 6  Before each record, the file must have the size that this owner gave it. Before the intent of an effect, the
        directory must still be there and writable, and for a sub-agent also that of its root. After each sync, and
        after the terminal record, the file must not have been removed.
Rule 7  In a journal of the store, the fact of a record over 256 KiB is a blob, which is written and synced before the
        line that refers to it. It counts for the size of the journal.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, TypeAlias, get_args

from msgspec import Struct

from agentrun.canonical_json import data_hash
from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.core.effects import Intent
from agentrun.core.facts import Fact, ModelReplied, Observation, Record, RunStarted, RunStopped, fact_kind
from agentrun.errors import RecordRefused, StorageError, poisoned_journal_error, storage_failed
from agentrun.files import ProjectTree, append_or_cut, cut_file, open_user_file, sync_data
from agentrun.journal.records import (
    FactBlobReader,
    HashChain,
    damaged_record_error,
    fact_blob,
    follow_chain,
    move_fact_to_blob,
    read_records,
    refuse_unreadable,
)

SyncMode: TypeAlias = Literal["process", "effects", "full"]
"""When a journal is synced: never (it survives the death of the process, not of the machine), before and after each
effect, or after each record."""

MAX_RECORD_BYTES = 256 * 1024
"""Of a line in a journal of the store. The fact of a larger record is in a blob."""
MAX_BLOB_BYTES = 256 * 1024 * 1024
MAX_JOURNAL_RECORDS = 51_200
MAX_JOURNAL_BYTES = 50 * 1000 * 1000
WARN_FRACTION = 5
"""A warning is given when a journal reaches a fifth of a limit."""
JOURNAL_NAME = "journal.jsonl"
"""The name of every journal in the store."""
HEAD_SIZE = 8 + 1 + 71 + 1
_HEAD = re.compile(rb"([0-9]{8}) (sha256:[0-9a-f]{64})\n")
_CALL_SUFFIXES = re.compile(rf"(\.{CALL_PATTERN})+")
_CALLS_AT_END = re.compile(rf"(\.{CALL_PATTERN})+$")
INTENTS: frozenset[type] = frozenset(get_args(Intent))
_EFFECTIVE_IDS = os.access in os.supports_effective_ids
_FACTS: frozenset[type] = frozenset(get_args(Fact))
_SYNCED_FACTS: Mapping[SyncMode, frozenset[type]] = {
    "process": frozenset(),
    "effects": INTENTS | {RunStopped} | {kind for kind in _FACTS if issubclass(kind, Observation)},
    "full": _FACTS,
}


class JournalHead(Struct, frozen=True):
    seq: int
    hash: str

    def line(self) -> bytes:
        return f"{self.seq:08} {self.hash}\n".encode()


class FileJournal:
    def __init__(
        self,
        path: Path,
        *,
        resume: bool = False,
        tree: ProjectTree | None = None,
        sync: SyncMode = "process",
        put_blob: Callable[[bytes], str] | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`tree`: the store that contains the file. None: the path is from the command line and used as it is, and
        there is no head. `put_blob`: stores a large fact. None: it is in the file, whatever its size. `warn` is called
        when the journal gets large."""
        self.epoch = 1
        self.torn = 0
        self.is_finished = False
        self._chain = HashChain()
        self._path = path
        self._path_names = str(path), str(path.parent)
        self._tree = tree
        self._synced_facts = _SYNCED_FACTS[sync]
        self._put_blob = put_blob
        self._blob_bytes = 0
        """The size of all facts that are in blobs."""
        self._warn: Callable[[str], None] | None = warn
        self._poisoned = False
        self._unsynced = False
        self._head_file: int | None = None
        self._ends = [0]
        """The offset of the end of each line in the file; the first entry is 0."""
        torn = self._read() if resume else b""
        flags = os.O_WRONLY | os.O_APPEND | (0 if resume else os.O_CREAT | os.O_EXCL)
        self._file = open_user_file(path, flags, "journal") if tree is None else tree.open_file(path, flags, sync=False)
        status = os.fstat(self._file)
        self._identity = (status.st_dev, status.st_ino)
        try:
            if torn:
                self._cut(torn)
            elif resume:
                sync_data(self._file)
        except OSError as error:
            self.close()
            raise _journal_failed(error, "written") from error

    @property
    def head(self) -> str:
        return self._chain.head

    @property
    def seq(self) -> int:
        return self._chain.seq

    def append(self, record: Record) -> None:
        if self._poisoned:
            raise poisoned_journal_error(record.seq)
        line = self._chain.line(record)
        refuse_unreadable(record, line)
        start, fact = self._ends[-1], record.fact
        total = start + self._blob_bytes + len(line) + 1
        if total * WARN_FRACTION > MAX_JOURNAL_BYTES or record.seq * WARN_FRACTION > MAX_JOURNAL_RECORDS:
            self._check_limits(record, len(line) + 1)
        if len(line) >= MAX_RECORD_BYTES and self._put_blob is not None:
            line, size = move_fact_to_blob(line, fact_kind(fact), self._put_blob)
            self._blob_bytes += size
        end = start + len(line) + 1
        self._poisoned = True
        try:
            if self._tree is not None:
                self._check_size(record, start)
            append_or_cut(self._file, line + b"\n", start)
            self._chain.grow(line)
            self._ends.append(end)
            self._unsynced = type(fact) not in self._synced_facts
            if not self._unsynced:
                sync_data(self._file)
            if not self._unsynced or record.seq == 1 or isinstance(fact, RunStopped):
                if os.fstat(self._file).st_nlink == 0:
                    raise FileNotFoundError(errno.ENOENT, "the file was removed")
                self._write_head()
        except OSError as error:
            raise _journal_failed(error, "written") from error
        self._poisoned = False

    def _check_limits(self, record: Record, size: int) -> None:
        end = self._ends[-1] + self._blob_bytes + size
        if isinstance(record.fact, RunStopped) and size <= MAX_RECORD_BYTES:  # a run must be able to end
            return
        if record.seq > MAX_JOURNAL_RECORDS:
            raise _refused(f"the journal has {MAX_JOURNAL_RECORDS} records, which is the limit", _SPLIT_WORK)
        if end > MAX_JOURNAL_BYTES:
            size_limit = f"{MAX_JOURNAL_BYTES // 1000**2} MB"
            hint = _SHORTEN.get(type(record.fact), _SPLIT_WORK) if size * 2 > MAX_JOURNAL_BYTES else _SPLIT_WORK
            raise _refused(f"the journal would be larger than {size_limit}, which is the limit", hint)
        if self._warn is not None:
            warn, self._warn = self._warn, None
            warn(
                f"the journal has {record.seq} records and {end // 1000**2} MB; the run ends at "
                f"{MAX_JOURNAL_RECORDS} records or {MAX_JOURNAL_BYTES // 1000**2} MB"
            )

    def _check_size(self, record: Record, size: int) -> None:
        # Not fstat, which takes eight times as long right after a write.
        is_intent = type(record.fact) in INTENTS
        found = self.check_directory() if is_intent else os.lseek(self._file, 0, os.SEEK_END)
        if found != size:
            message = "the journal was changed by another process"
            raise StorageError("journal.stale_owner", message, fields={"seq": record.seq, "epoch": record.epoch})

    def check_directory(self) -> int:
        """Return the size of the file. Raises `storage.failed` if its directory is not there or cannot be written."""
        path, directory = self._path_names
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError as error:
            raise _journal_failed(error, "found") from error
        if (status.st_dev, status.st_ino) != self._identity:
            raise _journal_failed(OSError(errno.ENOENT, "its directory was moved or replaced"), "found")
        if not os.access(directory, os.W_OK | os.X_OK, effective_ids=_EFFECTIVE_IDS):
            raise _journal_failed(OSError(errno.EACCES, "its directory is not writable"), "written")
        return status.st_size

    def _write_head(self) -> None:
        if self._tree is None:
            return
        if self._head_file is None:
            self._head_file = self._tree.open_file(head_path(self._path), os.O_WRONLY | os.O_CREAT, sync=False)
        os.pwrite(self._head_file, JournalHead(self._chain.seq, self._chain.head).line(), 0)

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

    def _read(self) -> bytes:
        """Read and check the file. Return its last line if that is incomplete."""
        contents = read_contents(self._path, self._tree)
        if self._tree is None:
            contents.refuse_torn()
        for record in follow_chain(self._chain, self._measure(contents.lines), read_blob=contents.read_blob):
            self.epoch = record.epoch + 1
            self.is_finished = isinstance(record.fact, RunStopped)
            contents.check_head(record.seq, self._chain.head)
        contents.refuse_missing_records(self.seq)
        return contents.torn

    def _cut(self, torn: bytes) -> None:
        assert self._tree is not None
        self._tree.write(self._path.with_name(f"torn-{self.seq + 1}"), torn)
        cut_file(self._file, self._ends[-1])
        self.torn = len(torn)

    def _measure(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._ends.append(self._ends[-1] + len(line) + 1)
            if (moved := fact_blob(line)) is not None:
                self._blob_bytes += moved.size
            yield line

    def close(self) -> None:
        """Close the files. What is not synced yet is synced first, as the mode says."""
        if self._file < 0:
            return
        try:
            if not self._poisoned and self.seq:
                if self._unsynced and self._synced_facts:
                    sync_data(self._file)
                self._write_head()
        except (OSError, StorageError):
            pass  # the records that had to be on the disk are there already
        finally:
            self._poisoned = True
            for descriptor in (self._file, self._head_file):
                if descriptor is not None:
                    os.close(descriptor)
            self._file, self._head_file = -1, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_SPLIT_WORK = "give the agent less work in one run, or lower its budgets"
_SHORTEN = {
    RunStarted: "pass a long text as a file, with --attach; in a session, set `session.max_runs` or `session.history`",
    ModelReplied: "set `model.max_output_tokens`",
}


def _refused(message: str, hint: str) -> RecordRefused:
    return RecordRefused("storage.failed", message, hint=hint, fields={"path": "journal", "errno": errno.EFBIG})


# --- reading -----------------------------------------------------------------------------------------------------


class JournalContents(Struct, frozen=True):
    """The bytes of a journal, before they are checked."""

    data: bytes
    head: JournalHead | None
    """None: there is no head file, or it is empty. A crash of the machine can cause that."""
    read_blob: FactBlobReader

    @property
    def lines(self) -> Iterator[bytes]:
        """The complete lines. They are not all in memory at once, because a journal can be large."""
        return (line[:-1] for line in BytesIO(self.data) if line.endswith(b"\n"))

    @property
    def torn(self) -> bytes:
        """The last line, if it is incomplete."""
        return self.data[self.data.rfind(b"\n") + 1 :]

    @property
    def last_line(self) -> bytes:
        return self.torn or self.data[self.data.rfind(b"\n", 0, -1) + 1 : -1]

    def records(self, *, unknown: bool = False) -> Iterator[Record]:
        """Check the lines and return their records. An incomplete last line is ignored."""
        chain = HashChain()
        for record in follow_chain(chain, self.lines, unknown=unknown, read_blob=self.read_blob):
            self.check_head(record.seq, chain.head)
            yield record
        self.refuse_missing_records(chain.seq)

    def check_head(self, seq: int, found: str) -> None:
        if self.head is not None and seq == self.head.seq and found != self.head.hash:
            raise damaged_record_error(seq, "it is not the record that the head file names")

    def refuse_missing_records(self, seq: int) -> None:
        if self.head is not None and seq < self.head.seq:
            message = f"the journal ends after record {seq}, but it had {self.head.seq} records"
            hint = "restore the file from a backup, or run the agent again"
            raise StorageError("journal.truncated", message, hint=hint, fields={"seq": seq, "head": self.head.seq})

    def refuse_torn(self) -> None:
        if self.torn:
            seq = self.data.count(b"\n") + 1
            message = f"record {seq} of the journal is incomplete: it was cut off during the write"
            raise StorageError("journal.truncated", message, fields={"seq": seq})


def head_path(journal: Path) -> Path:
    return journal.with_name("head")


def read_contents(path: Path, tree: ProjectTree | None = None, *, start: int = 0) -> JournalContents:
    """Read a journal, and its head if it has the name of a journal in the store. `start`: the offset of the first line
    to read, in a journal of the store. Raises `storage.failed`."""
    head = _read_head(path, tree) if path.name == JOURNAL_NAME else None  # first: a live owner writes it last
    limit = MAX_JOURNAL_BYTES + MAX_RECORD_BYTES  # the terminal record is written even if the journal is full
    data = _read_bytes(path, limit + 1) if tree is None else tree.read(path, limit + 1, start=start)
    if data is None:
        raise _journal_failed(OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
    if len(data) > limit:
        message = f"the journal {path.name} is larger than {MAX_JOURNAL_BYTES // 1000**2} MB, the limit for journals"
        raise StorageError("storage.failed", message, fields={"path": "journal"})
    return JournalContents(data, head, blob_reader(path, tree))


def _read_head(journal: Path, tree: ProjectTree | None) -> JournalHead | None:
    path = head_path(journal)
    if tree is not None:
        data = tree.read(path, HEAD_SIZE + 1) or b""
    else:
        data = _read_bytes(path, HEAD_SIZE + 1) if path.is_file() else b""
    if not data.strip(b"\0"):
        return None
    if (found := _HEAD.fullmatch(data)) is None:
        raise damaged_record_error(0, "its head file is damaged")
    return JournalHead(int(found[1]), found[2].decode())


def read_journal_file(path: Path, head: str | None = None) -> Iterator[Record]:
    contents = read_contents(path)
    yield from read_records(contents.lines, None if contents.torn else head, read_blob=contents.read_blob)
    contents.refuse_torn()


def blob_directory(journal: Path) -> Path:
    """The blobs of a run and of its sub-agents are with the run that a user started."""
    root = journal.parent.with_name(_CALLS_AT_END.sub("", journal.parent.name))
    return (root if root.is_dir() else journal.parent) / "blobs"


def blob_reader(journal: Path, tree: ProjectTree | None = None) -> FactBlobReader:
    """Reads the blobs that belong to a journal of the store."""

    def read_blob(blob: str) -> bytes:
        path = blob_directory(journal if tree is not None else journal.resolve()) / blob.removeprefix("sha256:")
        if tree is not None:
            data = tree.read(path, MAX_BLOB_BYTES + 1)
        else:
            data = _read_bytes(path, MAX_BLOB_BYTES + 1) if path.is_file() else None
        if data is None or data_hash(data) != blob:
            raise KeyError(blob)
        return data

    return read_blob


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise _journal_failed(error) from error


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
        self.torn = 0

    @property
    def head(self) -> str:
        return self._chain.head

    def append(self, record: Record) -> None:
        self._lines.append(self._chain.add(record))
        self._records.append(record)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def records_after(self, seq: int) -> Iterable[Record]:
        return self._records[seq:]

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
