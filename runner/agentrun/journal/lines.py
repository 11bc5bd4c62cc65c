"""Journal lines: one record each, chained by hashes.

Rule 1  A line is compact JSON with sorted keys. Reading checks that a line is exactly what writing its record
        gives, so a changed space, an upper-case digit of a hash or a second key is damage too.
Rule 2  `prev` is the hash of the line before; the first line's is GENESIS. The hash of the last line is the
        head: only who knows the head can tell that the last lines were changed or cut off.
Rule 3  Damage is reported with its sequence number and never repaired here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from agentrun.canon import compact, text_hash
from agentrun.core.facts import Record
from agentrun.errors import InternalError, StorageError

GENESIS = "sha256:" + "0" * 64

_decoder = msgspec.json.Decoder(Record)


class Chain:
    """The end of a journal: what the next record must say, and the hash to continue from."""

    __slots__ = ("head", "seq")

    def __init__(self) -> None:
        self.head = GENESIS
        self.seq = 0

    def add(self, record: Record) -> bytes:
        """The line of the next record. A record that is not the next one is our own bug."""
        if (record.seq, record.prev) != (self.seq + 1, self.head):
            raise InternalError("internal", f"record {record.seq} does not continue record {self.seq}")
        line = compact(record)
        self.head, self.seq = text_hash(line), record.seq
        return line


def read(lines: Iterable[bytes], head: str | None = None) -> Iterator[Record]:
    """The records of lines without their line ends; each is checked before it is given out."""
    chain = Chain()
    for line in lines:
        yield _next(chain, line)
    if head is not None and head != chain.head:
        raise _damaged(chain.seq, "it is not the record that the journal ended with")


def _next(chain: Chain, line: bytes) -> Record:
    seq = chain.seq + 1
    try:
        record = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(seq, "it cannot be read") from error
    if record.seq != seq:
        raise _damaged(seq, f"its number is {record.seq}")
    if record.prev != chain.head:
        raise _damaged(seq, "it does not continue the one before" if seq > 1 else "it is not a first record")
    if chain.add(record) != line:
        raise _damaged(seq, "it is not written as journals are")
    return record


def _damaged(seq: int, why: str) -> StorageError:
    return StorageError(
        "journal.damaged",
        f"record {seq} of the journal is damaged: {why}",
        hint="nothing was changed; restore the file, or run the agent again",
        fields={"seq": seq},
    )
