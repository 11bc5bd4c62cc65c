"""The chain of lines: what is written is read, and nothing else is."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.canon import compact, text_hash
from agentrun.core.facts import Record
from agentrun.errors import InternalError, StorageError
from agentrun.journal import lines as module
from agentrun.journal.lines import GENESIS, Chain, read
from agentrun.journal.memory import MemoryJournal

from ..packages import typed
from ..worlds import BAD, GOOD, Scripted, completion, live


def journal() -> MemoryJournal:
    return live(typed(), Scripted([completion(BAD), completion(GOOD)]))


JOURNAL = journal()
LINES = JOURNAL.text().split(b"\n")[:-1]


def damage(lines: list[bytes], head: str | None = JOURNAL.head) -> int | None:
    """The record at which reading stops, None if all is read."""
    seq: int | None = None
    try:
        list(read(lines, head))
    except StorageError as error:
        seq = error.fields["seq"]
    return seq


def test_round_trip() -> None:
    assert tuple(read(LINES, JOURNAL.head)) == JOURNAL.records()
    assert damage(LINES) is None
    assert damage([], None) is None


def test_chain() -> None:
    records = JOURNAL.records()
    assert [record.seq for record in records] == list(range(1, len(LINES) + 1))
    assert records[0].prev == GENESIS
    for line, record in zip(LINES, records[1:], strict=False):
        assert record.prev == text_hash(line)
    assert JOURNAL.head == text_hash(LINES[-1])


def test_lines_are_plain_json() -> None:
    assert LINES[1] == (
        b'{"at":0,"epoch":1,"fact":{"attempt":1,"effect":"m1.1","reserved":100,"route":"openai/gpt-4.1-mini","turn":1,'
        b'"type":"model_asked"},"prev":"%s","seq":2}' % text_hash(LINES[0]).encode()
    )


@given(st.integers(0, len(LINES) - 1), st.data())
def test_flipped_bit(index: int, data: st.DataObject) -> None:
    """Any bit of any line: found, at that record or the next one."""
    line = bytearray(LINES[index])
    line[data.draw(st.integers(0, len(line) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert damage([*LINES[:index], bytes(line), *LINES[index + 1 :]]) in (index + 1, index + 2)


@given(st.integers(0, len(LINES) - 1), st.binary(max_size=40))
def test_replaced_line(index: int, line: bytes) -> None:
    assert damage([*LINES[:index], line, *LINES[index + 1 :]]) == index + 1


@given(st.permutations(LINES))
def test_reordered(lines: list[bytes]) -> None:
    assert (damage(lines) is None) == (lines == LINES)


@given(st.integers(0, len(LINES) - 1))
def test_deleted_and_doubled(index: int) -> None:
    assert damage([*LINES[:index], *LINES[index + 1 :]]) is not None
    assert damage([*LINES[: index + 1], *LINES[index:]]) == index + 2


def test_code() -> None:
    with pytest.raises(StorageError) as caught:
        list(read([b"{}"]))
    assert (caught.value.code, caught.value.exit_code) == ("journal.damaged", 7)
    assert caught.value.fields == {"seq": 1}


def test_tail() -> None:
    """A chain alone cannot see that its tail is gone. Who knows the head can."""
    assert damage(LINES[:-1], None) is None
    assert damage(LINES[:-1]) == len(LINES) - 1


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"epoch":1', b'"epoch": 1'),
        lambda line: line.replace(b'"sha256:', b'"SHA256:'),
        lambda line: line.replace(b'"seq":2', b'"seq":2,"seq":2'),
        lambda line: line.replace(b'"seq":2', b'"seq":2,"more":2'),
        lambda line: line.replace(b"model_asked", b"model_teased"),
        lambda line: line + b" ",
        lambda line: b"[" * 100_000,
        lambda line: b"\xff" + line,
        lambda line: b'"\xff"',
    ],
)
def test_written_otherwise(change: Any) -> None:
    changed = change(LINES[1])
    assert changed != LINES[1]
    assert damage([LINES[0], changed], None) == 2


def test_wrong_beginning() -> None:
    first = replace(JOURNAL.records()[0], prev=JOURNAL.head)
    with pytest.raises(StorageError, match="not a first record"):
        list(read([compact(first)]))


def test_given_out_only_after_its_check() -> None:
    got: Iterator[Record] = read([LINES[0], b"{}"])
    assert next(got) == JOURNAL.records()[0]
    with pytest.raises(StorageError):
        next(got)


def test_chain_takes_only_the_next_record() -> None:
    first, second, *_ = JOURNAL.records()
    for wrong in (second, replace(first, prev="sha256:other")):
        with pytest.raises(InternalError):
            Chain().add(wrong)


def test_flipped_bit_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hash that sees nothing, a changed answer passes: the test above tests the chain."""
    monkeypatch.setattr(module, "text_hash", lambda line: GENESIS)
    blind = [compact(replace(record, prev=GENESIS)) for record in JOURNAL.records()]
    assert damage(blind, GENESIS) is None
    assert damage([blind[0].replace(b"triage", b"treason"), *blind[1:]], GENESIS) is None
