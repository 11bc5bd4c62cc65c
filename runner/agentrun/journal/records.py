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

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core.facts import RULES_VERSION, Record
from agentrun.errors import InternalError, StorageError
from agentrun.journal.upcast import upcast

JOURNAL_PREFIX = b'{"at":'
"""The first bytes of every journal."""
GENESIS_HASH = "sha256:" + "0" * 64


class _AnyRecord(Struct, forbid_unknown_fields=True):
    """A record of any release."""

    seq: int
    at: int
    epoch: int
    prev: str
    fact: dict[str, Any]


class _OwnerFact(Struct):
    """What an owner's first fact says of the rules."""

    type: str
    rules: int = 2
    """Version 2 did not write it with `run_resumed`."""


class _OwnerRecord(Struct):
    fact: _OwnerFact


_decoder = msgspec.json.Decoder(Record)
_any_decoder = msgspec.json.Decoder(_AnyRecord)
_owner_decoder = msgspec.json.Decoder(_OwnerRecord)


class HashChain:
    """The end of a journal: what the next record must say, and the hash to continue from."""

    __slots__ = ("head", "seq")

    def __init__(self) -> None:
        self.head = GENESIS_HASH
        self.seq = 0

    def add(self, record: Record) -> bytes:
        """The line of the next record. A record that is not the next one is our own bug."""
        if record.seq != self.seq + 1 or record.prev != self.head:
            raise InternalError("internal", f"record {record.seq} does not continue record {self.seq}")
        line = sorted_json(record)
        self.grow(line)
        return line

    def grow(self, line: bytes) -> None:
        """Go on from a line."""
        self.head = data_hash(line)
        self.seq += 1


def read_records(lines: Iterable[bytes], head: str | None = None) -> Iterator[Record]:
    """The records of lines without their line ends; each is checked before it is given out."""
    chain = HashChain()
    yield from follow_chain(chain, lines)
    if head is not None and head != chain.head:
        raise damaged_record_error(chain.seq, "it is not the record that the journal ended with")


def follow_chain(chain: HashChain, lines: Iterable[bytes]) -> Iterator[Record]:
    """The records of lines from the first on. After each, the chain stands at its line."""
    rules = 0
    for line in lines:
        seq = chain.seq + 1
        try:
            rules = _rules_version(line, rules)
            if rules > RULES_VERSION:
                raise _too_new_error(seq, rules)
            record, written = _decode_record(line, rules)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise damaged_record_error(seq, "it cannot be read") from error
        if record.seq != seq:
            raise damaged_record_error(seq, f"its number is {record.seq}")
        if record.prev != chain.head:
            raise damaged_record_error(
                seq, "it does not continue the one before" if seq > 1 else "it is not a first record"
            )
        if written != line:
            raise damaged_record_error(seq, "it is not written as journals are")
        chain.grow(line)
        yield record


def _rules_version(line: bytes, before: int) -> int:
    """The version of the rules that a line was written under."""
    if before and b'"run_resumed"' not in line:
        return before
    begun = _owner_decoder.decode(line).fact
    if before and begun.type != "run_resumed":  # some text only speaks of it
        return before
    if not before and begun.type != "run_started":
        raise ValueError("the run does not start")
    if begun.rules < 1:
        raise ValueError("there never was such a version")
    return begun.rules


def _decode_record(line: bytes, rules: int) -> tuple[Record, bytes]:
    """A record of a line, and the line that it would be written as."""
    if rules == RULES_VERSION:
        record = _decoder.decode(line)
        return record, sorted_json(record)
    old = _any_decoder.decode(line)
    today = {"seq": old.seq, "at": old.at, "epoch": old.epoch, "prev": old.prev, "fact": upcast(old.fact, rules)}
    return msgspec.convert(today, Record), sorted_json(old)


def damaged_record_error(seq: int, why: str) -> StorageError:
    """The error of a journal that is not as it was written."""
    return StorageError(
        "journal.damaged",
        f"record {seq} of the journal is damaged: {why}",
        hint="nothing was changed; restore the file, or run the agent again",
        fields={"seq": seq},
    )


def _too_new_error(seq: int, rules: int) -> StorageError:
    return StorageError(
        "recovery.failed",
        f"record {seq} of the journal was written under version {rules} of the rules; "
        f"this release knows {RULES_VERSION}",
        hint="read it with a later release of agentrun",
        fields={"seq": seq, "rules": rules},
    )
