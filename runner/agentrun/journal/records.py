"""Journal lines: one record each, chained by hashes.

Rule 1  A line is compact JSON with sorted keys. A line that differs from the encoding of its record is damaged, even
        if only a space, the case of a hash digit or a duplicate key is different.
Rule 2  `prev` is the hash of the previous line, or GENESIS_HASH in the first line. The hash of the last line is the
        head. Without the head it is not possible to notice that the last lines were changed or cut off.
Rule 3  A line contains no character that some programs take for a line end: U+0085, U+2028 and U+2029 are escaped.
        Earlier releases did not escape them, and their lines are still valid.
Rule 4  A record is written only if it can be read back.
Rule 5  Hashes and encoding are checked before a record of an earlier release is converted (`upcast.py`). A journal of
        a later release is not damaged but cannot be read: `recovery.failed`. A kind of fact that this release does
        not know is kept for readers that only show the journal; for all others it is `recovery.failed` too.
Rule 6  The fact of a large record can be in a blob. Then its line has `{"blob": …, "size": …, "type": …}` in place of
        the fact, and everything else is as if the fact were there. The hash of the line covers that of the blob.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core.fact_blob import FactBlob
from agentrun.core.facts import FACT_KINDS, RULES_VERSION, Record, RunStopped, UnknownFact, fact_kind
from agentrun.errors import InternalError, StorageError
from agentrun.journal.upcast import upcast

JOURNAL_PREFIX = b'{"at":'
GENESIS_HASH = "sha256:" + "0" * 64
_KIND = re.compile(r"[a-z][a-z_]{0,63}")
_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_BLOB_REFERENCE = re.compile(
    rb'(\{"at":-?[0-9]+,"epoch":[0-9]+,"fact":)'
    rb'\{"blob":"(sha256:[0-9a-f]{64})","size":([0-9]{1,9}),"type":"([a-z_]+)"\}'
    rb'(,"prev":"sha256:[0-9a-f]{64}","seq":[0-9]+\})'
)
_decoder = msgspec.json.Decoder(Record)

FactBlobReader: TypeAlias = Callable[[str], bytes]
"""Returns a blob by its hash. Raises KeyError if it is missing or was changed."""


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
_kind_decoder = msgspec.json.Decoder(_OwnerFact)


class HashChain(Struct):
    head: str = GENESIS_HASH
    seq: int = 0
    rules: int = 0
    """The rules version of the records that were read last."""

    def line(self, record: Record) -> bytes:
        """The line of the next record. Any other record is a bug in agentrun. Raises UnicodeEncodeError if a text
        contains half of a surrogate pair."""
        if record.seq != self.seq + 1 or record.prev != self.head:
            raise InternalError("internal", f"record {record.seq} does not continue record {self.seq}")
        return _escape_line_ends(sorted_json(record))

    def add(self, record: Record) -> bytes:
        line = self.line(record)
        self.grow(line)
        return line

    def grow(self, line: bytes) -> None:
        self.head = data_hash(line)
        self.seq += 1


def refuse_unreadable(record: Record, line: bytes) -> None:
    """A record that could not be read back is a bug in agentrun. Nothing of it is written."""
    try:
        again = _decoder.decode(line)
        is_readable = again == record or _escape_line_ends(sorted_json(again)) == line
    except (msgspec.DecodeError, RecursionError):
        is_readable = False
    if not is_readable:
        raise InternalError("internal", f"record {record.seq} ({fact_kind(record.fact)}) could not be read back")


def _escape_line_ends(line: bytes) -> bytes:
    if not line.isascii():
        for end, escaped in _LINE_ENDS:
            line = line.replace(end, escaped)
    return line


def move_fact_to_blob(line: bytes, kind: str, put_blob: Callable[[bytes], str]) -> tuple[bytes, int]:
    """Store the fact of a line as a blob. Return the line that refers to it, and the size of the blob."""
    start, end = line.index(b'"fact":') + len(b'"fact":'), line.rindex(b',"prev":')
    reference = FactBlob(put_blob(line[start:end]), end - start, kind)
    return line[:start] + sorted_json(reference) + line[end:], reference.size


def fact_blob(line: bytes) -> FactBlob | None:
    """None: the fact is in the line."""
    found = _BLOB_REFERENCE.fullmatch(line)
    return None if found is None else FactBlob(found[2].decode(), int(found[3]), found[4].decode())


def inline_fact(line: bytes, read_blob: FactBlobReader) -> bytes:
    """The line with its fact. Raises ValueError if the blob of the fact is missing or was changed."""
    if (found := _BLOB_REFERENCE.fullmatch(line)) is None:
        return line
    try:
        fact = read_blob(found[2].decode())
    except KeyError:
        raise ValueError("its blob is missing or was changed") from None
    if len(fact) != int(found[3]) or _kind_decoder.decode(fact).type != found[4].decode():
        raise ValueError("its blob has another size or kind")
    return found[1] + fact + found[5]


def no_blobs(blob: str) -> bytes:
    raise KeyError(blob)


def read_records(
    lines: Iterable[bytes], head: str | None = None, *, unknown: bool = False, read_blob: FactBlobReader = no_blobs
) -> Iterator[Record]:
    """Read lines (without line ends) and check each one before its record is returned. `unknown`: return facts of kinds
    that this release does not know as `UnknownFact`, instead of raising `recovery.failed`."""
    chain = HashChain()
    yield from follow_chain(chain, lines, unknown=unknown, read_blob=read_blob)
    if head is not None and head != chain.head:
        raise damaged_record_error(chain.seq, "it is not the last record that was written")


def follow_chain(
    chain: HashChain, lines: Iterable[bytes], *, unknown: bool = False, read_blob: FactBlobReader = no_blobs
) -> Iterator[Record]:
    """Read the lines that continue a chain. It can be called again with later lines."""
    for stored in lines:
        seq = chain.seq + 1
        try:
            line = inline_fact(stored, read_blob)
        except (msgspec.DecodeError, ValueError) as error:
            raise damaged_record_error(seq, str(error)) from None
        try:
            rules = chain.rules = _rules_version(line, chain.rules)
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
        chain.grow(stored)
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
