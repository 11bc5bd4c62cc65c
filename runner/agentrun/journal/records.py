"""Journal lines: one record each, chained by hashes.

Rule 1  A line is compact JSON with sorted keys. A line that differs from the encoding of its record is damaged, also
        if only a space, the case of a hash digit or a duplicate key is different.
Rule 2  `prev` is the hash of the previous line, or GENESIS_HASH in the first line. The hash of the last line is the
        head. Without the head it is not possible to notice that the last lines were changed or cut off.
Rule 3  A line contains no character that some programs take for a line end: U+0085, U+2028 and U+2029 are escaped.
        Earlier releases did not escape them, and their lines are still valid.
Rule 4  A record is written only if it can be read back.
Rule 5  Hashes and encoding are checked before a record of an earlier release is converted (`upcast.py`). A journal of
        a later release is not damaged but cannot be read: `recovery.failed`. A kind of fact that this release does
        not know is kept for readers that only show the journal; for all others it is `recovery.failed` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core.facts import FACT_KINDS, RULES_VERSION, Record, RunStopped, UnknownFact, fact_kind
from agentrun.errors import InternalError, StorageError
from agentrun.journal.upcast import upcast

JOURNAL_PREFIX = b'{"at":'
GENESIS_HASH = "sha256:" + "0" * 64
_KIND = re.compile(r"[a-z][a-z_]{0,63}")
_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_decoder = msgspec.json.Decoder(Record)


class _AnyRecord(Struct, forbid_unknown_fields=True):
    seq: int
    at: int
    epoch: int
    prev: str
    fact: dict[str, Any]


class _OwnerFact(Struct):
    type: str
    rules: int = 2
    """Version 2 did not write this field in `run_resumed`."""


class _OwnerRecord(Struct):
    fact: _OwnerFact


_any_decoder = msgspec.json.Decoder(_AnyRecord)
_owner_decoder = msgspec.json.Decoder(_OwnerRecord)


class HashChain(Struct):
    head: str = GENESIS_HASH
    seq: int = 0

    def line(self, record: Record) -> bytes:
        """The line of the next record. Any other record, or one that could not be read back, is a bug in agentrun.
        Raises UnicodeEncodeError if a text contains half of a surrogate pair."""
        if record.seq != self.seq + 1 or record.prev != self.head:
            raise InternalError("internal", f"record {record.seq} does not continue record {self.seq}")
        line = sorted_json(record)
        if not _is_readable(line):
            raise InternalError("internal", f"record {record.seq} ({fact_kind(record.fact)}) could not be read back")
        return _escape_line_ends(line)

    def add(self, record: Record) -> bytes:
        line = self.line(record)
        self.grow(line)
        return line

    def grow(self, line: bytes) -> None:
        self.head = data_hash(line)
        self.seq += 1


def _is_readable(line: bytes) -> bool:
    try:
        return sorted_json(_decoder.decode(line)) == line
    except (msgspec.DecodeError, RecursionError):
        return False


def _escape_line_ends(line: bytes) -> bytes:
    if not line.isascii():
        for end, escaped in _LINE_ENDS:
            line = line.replace(end, escaped)
    return line


def read_records(lines: Iterable[bytes], head: str | None = None, *, unknown: bool = False) -> Iterator[Record]:
    """Read lines (without line ends) and check each one before its record is returned. `unknown`: return facts of kinds
    that this release does not know as `UnknownFact`, instead of raising `recovery.failed`."""
    chain = HashChain()
    yield from follow_chain(chain, lines, unknown=unknown)
    if head is not None and head != chain.head:
        raise damaged_record_error(chain.seq, "it is not the last record that was written")


def follow_chain(chain: HashChain, lines: Iterable[bytes], *, unknown: bool = False) -> Iterator[Record]:
    rules = 0
    for line in lines:
        seq = chain.seq + 1
        try:
            rules = _rules_version(line, rules)
            if rules > RULES_VERSION:
                message = f"record {seq} of the journal was written by a later release of agentrun "
                message += f"(rules version {rules}; this release reads up to {RULES_VERSION})"
                hint, fields = "install a later release of agentrun to read it", {"seq": seq, "rules": rules}
                raise StorageError("recovery.failed", message, hint=hint, fields=fields)
            record, written = _decode_record(line, rules)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise damaged_record_error(seq, "it cannot be read") from error
        if record.seq != seq:
            raise damaged_record_error(seq, f"its number is {record.seq}")
        if record.prev != chain.head:
            why = "its hash does not match the previous record" if seq > 1 else "it is not a first record"
            raise damaged_record_error(seq, why)
        if line not in (written, _escape_line_ends(written)):
            raise damaged_record_error(seq, "its encoding was changed")
        chain.grow(line)
        if isinstance(record.fact, UnknownFact) and not unknown:
            raise _unknown_kind_error(seq, record.fact.kind)
        yield record


def _rules_version(line: bytes, before: int) -> int:
    if before and b'"run_resumed"' not in line:
        return before
    fact = _owner_decoder.decode(line).fact
    if before and fact.type != "run_resumed":  # only a text in the line contains the word
        return before
    if not before and fact.type != "run_started":
        raise ValueError("the first fact is not run_started")
    if fact.rules < 1:
        raise ValueError("this rules version does not exist")
    return fact.rules


def is_terminal_line(line: bytes) -> bool:
    """Whether a line, which is not checked, is the last record of a finished run."""
    try:
        return _owner_decoder.decode(line).fact.type == RunStopped.__struct_config__.tag
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False


def _decode_record(line: bytes, rules: int) -> tuple[Record, bytes]:
    if rules == RULES_VERSION:
        try:
            record = _decoder.decode(line)
        except msgspec.ValidationError:
            return _decode_unknown_kind(line)
        return record, sorted_json(record)
    old = _any_decoder.decode(line)
    today = {"seq": old.seq, "at": old.at, "epoch": old.epoch, "prev": old.prev, "fact": upcast(old.fact, rules)}
    return msgspec.convert(today, Record), sorted_json(old)


def _decode_unknown_kind(line: bytes) -> tuple[Record, bytes]:
    """Raises ValueError if the kind is known, so that its content is wrong."""
    new = _any_decoder.decode(line)
    kind = new.fact.get("type")
    if not isinstance(kind, str) or kind in FACT_KINDS or not _KIND.fullmatch(kind):
        raise ValueError("not a fact")
    fact: Any = UnknownFact(kind, {key: value for key, value in new.fact.items() if key != "type"})
    return Record(new.seq, new.at, new.epoch, new.prev, fact), sorted_json(new)


def _unknown_kind_error(seq: int, kind: str) -> StorageError:
    message = f"record {seq} of the journal is of a kind that this release of agentrun does not know: {kind}"
    hint = "install the release of agentrun that wrote it to continue the run"
    return StorageError("recovery.failed", message, hint=hint, fields={"seq": seq, "kind": kind})


def damaged_record_error(seq: int, why: str) -> StorageError:
    message = f"record {seq} of the journal is damaged: {why}"
    hint = "restore the file from a backup, or run the agent again"
    return StorageError("journal.damaged", message, hint=hint, fields={"seq": seq})
