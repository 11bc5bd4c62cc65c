"""Journal lines: one record each, chained by hashes.

Rule 1  A line is compact JSON with sorted keys. Reading checks that a line is exactly what writing its record
        gives, so a changed space, an upper-case digit of a hash or a second key is damage too.
Rule 2  `prev` is the hash of the line before; the first line's is GENESIS. The hash of the last line is the
        head: only who knows the head can tell that the last lines were changed or cut off.
Rule 3  Damage is reported with its sequence number and never repaired here.
Rule 4  Hashes and form are checked on a line as it stands. Only then is a record of an earlier release made into
        today's (`upcast.py`). A journal of a later release is not damaged, but cannot be read: `recovery.failed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.canon import compact, data_hash
from agentrun.core.facts import RULES, Record
from agentrun.errors import InternalError, StorageError
from agentrun.journal.upcast import upcast

JOURNAL_BEGINS = b'{"at":'
"""The first bytes of every journal."""
GENESIS = "sha256:" + "0" * 64


class _Old(Struct, forbid_unknown_fields=True):
    """A record of any release."""

    seq: int
    at: int
    epoch: int
    prev: str
    fact: dict[str, Any]


class _Begun(Struct):
    """What an owner's first fact says of the rules."""

    type: str
    rules: int = 2
    """Version 2 did not write it with `run_resumed`."""


class _Owner(Struct):
    fact: _Begun


_decoder = msgspec.json.Decoder(Record)
_old = msgspec.json.Decoder(_Old)
_owner = msgspec.json.Decoder(_Owner)


class Chain:
    """The end of a journal: what the next record must say, and the hash to continue from."""

    __slots__ = ("head", "seq")

    def __init__(self) -> None:
        self.head = GENESIS
        self.seq = 0

    def add(self, record: Record) -> bytes:
        """The line of the next record. A record that is not the next one is our own bug."""
        if record.seq != self.seq + 1 or record.prev != self.head:
            raise InternalError("internal", f"record {record.seq} does not continue record {self.seq}")
        line = compact(record)
        self.grow(line)
        return line

    def grow(self, line: bytes) -> None:
        """Go on from a line."""
        self.head = data_hash(line)
        self.seq += 1


def read(lines: Iterable[bytes], head: str | None = None) -> Iterator[Record]:
    """The records of lines without their line ends; each is checked before it is given out."""
    chain = Chain()
    yield from follow(chain, lines)
    if head is not None and head != chain.head:
        raise damaged(chain.seq, "it is not the record that the journal ended with")


def follow(chain: Chain, lines: Iterable[bytes]) -> Iterator[Record]:
    """The records of lines from the first on. After each, the chain stands at its line."""
    rules = 0
    for line in lines:
        seq = chain.seq + 1
        try:
            rules = _rules(line, rules)
            if rules > RULES:
                raise _unreadable(seq, rules)
            record, written = _record(line, rules)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise damaged(seq, "it cannot be read") from error
        if record.seq != seq:
            raise damaged(seq, f"its number is {record.seq}")
        if record.prev != chain.head:
            raise damaged(seq, "it does not continue the one before" if seq > 1 else "it is not a first record")
        if written != line:
            raise damaged(seq, "it is not written as journals are")
        chain.grow(line)
        yield record


def _rules(line: bytes, before: int) -> int:
    """The version of the rules that a line was written under."""
    if before and b'"run_resumed"' not in line:
        return before
    begun = _owner.decode(line).fact
    if before and begun.type != "run_resumed":  # some text only speaks of it
        return before
    if not before and begun.type != "run_started":
        raise ValueError("the run does not start")
    if begun.rules < 1:
        raise ValueError("there never was such a version")
    return begun.rules


def _record(line: bytes, rules: int) -> tuple[Record, bytes]:
    """A record of a line, and the line that it would be written as."""
    if rules == RULES:
        record = _decoder.decode(line)
        return record, compact(record)
    old = _old.decode(line)
    today = {"seq": old.seq, "at": old.at, "epoch": old.epoch, "prev": old.prev, "fact": upcast(old.fact, rules)}
    return msgspec.convert(today, Record), compact(old)


def damaged(seq: int, why: str) -> StorageError:
    """The error of a journal that is not as it was written."""
    return StorageError(
        "journal.damaged",
        f"record {seq} of the journal is damaged: {why}",
        hint="nothing was changed; restore the file, or run the agent again",
        fields={"seq": seq},
    )


def _unreadable(seq: int, rules: int) -> StorageError:
    return StorageError(
        "recovery.failed",
        f"record {seq} of the journal was written under version {rules} of the rules; this release knows {RULES}",
        hint="read it with a later release of agentrun",
        fields={"seq": seq, "rules": rules},
    )
