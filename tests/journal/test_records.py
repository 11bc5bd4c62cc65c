"""The hash chain of journal lines: written records are read back, and any change is detected."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json, text_hash
from agentrun.core.facts import (
    RULES_VERSION,
    Fact,
    ModelTold,
    Record,
    RunResumed,
    UnknownFact,
    fact_kind,
)
from agentrun.core.messages import user_message
from agentrun.errors import InternalError, StorageError
from agentrun.journal import records as module
from agentrun.journal.records import GENESIS_HASH, HashChain, read_records

from .journals import ANY_FACT, JOURNAL, LINES, journal, run_started


def damaged_seq(lines: Sequence[bytes], head: str | None = JOURNAL.head) -> int | None:
    """The record at which reading stops, None if all is read."""
    seq: int | None = None
    try:
        list(read_records(lines, head))
    except StorageError as error:
        seq = error.fields["seq"]
    return seq


def test_written_lines_are_read_back() -> None:
    assert tuple(read_records(LINES, JOURNAL.head)) == JOURNAL.records()
    assert damaged_seq(LINES) is None
    assert damaged_seq([], None) is None


@given(st.lists(ANY_FACT, max_size=3))
def test_any_fact_is_read_back(facts: list[Fact]) -> None:
    """What is written is read, whatever the facts say."""
    facts = [RunResumed(fact.package) if isinstance(fact, RunResumed) else fact for fact in facts]  # rules of today
    made = journal(run_started(), *facts)
    assert tuple(read_records(made.text().split(b"\n")[:-1], made.head)) == made.records()


def test_each_record_has_the_hash_of_the_line_before() -> None:
    records = JOURNAL.records()
    assert [record.seq for record in records] == list(range(1, len(LINES) + 1))
    assert records[0].prev == GENESIS_HASH
    for line, record in zip(LINES, records[1:], strict=False):
        assert record.prev == text_hash(line)
    assert JOURNAL.head == text_hash(LINES[-1])


def test_lines_are_sorted_compact_json() -> None:
    assert LINES[1] == (
        b'{"at":2000,"epoch":1,"fact":{"attempt":1,"cost":0,"effect":"m1.1","hidden":[],"purpose":"answer",'
        b'"reserved":100,"route":"openai/gpt-4.1-mini","turn":1,"type":"model_asked"},"prev":"%s","seq":2}'
        % text_hash(LINES[0]).encode()
    )


@given(st.integers(0, len(LINES) - 1), st.data())
def test_flipped_bit_is_detected(index: int, data: st.DataObject) -> None:
    """Any bit of any line: found, at that record or the next one."""
    line = bytearray(LINES[index])
    line[data.draw(st.integers(0, len(line) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert damaged_seq([*LINES[:index], bytes(line), *LINES[index + 1 :]]) in (index + 1, index + 2)


@given(st.integers(0, len(LINES) - 1), st.binary(max_size=40))
def test_replaced_line_is_detected(index: int, line: bytes) -> None:
    assert damaged_seq([*LINES[:index], line, *LINES[index + 1 :]]) == index + 1


@given(st.permutations(LINES))
def test_reordered_lines_are_detected(lines: list[bytes]) -> None:
    assert (damaged_seq(lines) is None) == (lines == LINES)


@given(st.integers(0, len(LINES) - 1))
def test_deleted_or_doubled_line_is_detected(index: int) -> None:
    assert damaged_seq([*LINES[:index], *LINES[index + 1 :]]) is not None
    assert damaged_seq([*LINES[: index + 1], *LINES[index:]]) == index + 2


def test_damage_raises_journal_damaged() -> None:
    with pytest.raises(StorageError) as caught:
        list(read_records([b"{}"]))
    assert (caught.value.code, caught.value.exit_code) == ("journal.damaged", 7)
    assert caught.value.fields == {"seq": 1}


def test_missing_tail_is_detected_only_with_the_head() -> None:
    """A chain alone cannot see that its tail is gone. Who knows the head can."""
    assert damaged_seq(LINES[:-1], None) is None
    assert damaged_seq(LINES[:-1]) == len(LINES) - 1


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
def test_line_in_another_format_is_refused(change: Any) -> None:
    changed = change(LINES[1])
    assert changed != LINES[1]
    assert damaged_seq([LINES[0], changed], None) == 2


def test_line_without_a_default_field_is_refused() -> None:
    """A line without a field that has a default means the same, and is not what writing gives."""
    changed = LINES[1].replace(b'"cost":0,', b"")
    assert changed != LINES[1]
    assert damaged_seq([LINES[0], changed], None) == 2


# --- versions ----------------------------------------------------------------------------------------------


def read_error(lines: list[bytes]) -> StorageError:
    with pytest.raises(StorageError) as caught:
        list(read_records(lines))
    return caught.value


NEW_KIND = LINES[1].replace(b'"type":"model_asked"', b'"type":"model_teased"').replace(b'"route":', b'"routing":')
"""A record of a kind that a later release may write, with a field of its own."""


def with_new_kind() -> list[bytes]:
    """A journal with an unknown record in the middle, chained as its release would have done it."""
    after = replace(JOURNAL.records()[2], prev=text_hash(NEW_KIND))
    return [LINES[0], NEW_KIND, sorted_json(after)]


def test_unknown_kind_is_kept_for_readers_that_ask_for_it() -> None:
    one, two, three = read_records(with_new_kind(), unknown=True)
    assert isinstance(two.fact, UnknownFact)
    assert (two.seq, two.fact.kind, two.fact.data["routing"]) == (2, "model_teased", "openai/gpt-4.1-mini")
    assert (fact_kind(two.fact), one.fact, three.fact) == ("model_teased", *(JOURNAL.records()[i].fact for i in (0, 2)))


def test_unknown_kind_cannot_be_continued() -> None:
    error = read_error(with_new_kind())
    assert (error.code, error.fields) == ("recovery.failed", {"seq": 2, "kind": "model_teased"})


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"seq":2', b'"seq":2,"more":2'),
        lambda line: line.replace(b'"cost":0', b'"cost": 0'),
        lambda line: line.replace(b"model_teased", b"Model teased"),
        lambda line: line.replace(b'"type":"model_teased"', b'"type":7'),
        lambda line: line.replace(b"model_teased", b"model_asked"),
        lambda line: line.replace(b'"seq":2', b'"seq":3'),
    ],
)
def test_damaged_record_of_an_unknown_kind_is_found(change: Any) -> None:
    changed = change(NEW_KIND)
    assert changed != NEW_KIND
    with pytest.raises(StorageError, match=r"journal\.damaged"):
        list(read_records([LINES[0], changed], unknown=True))


def test_changed_record_of_an_unknown_kind_breaks_the_chain() -> None:
    first, new, last = with_new_kind()
    with pytest.raises(StorageError, match=r"record 3 of the journal is damaged"):
        list(read_records([first, new.replace(b'"reserved":100', b'"reserved":101'), last], unknown=True))


@pytest.mark.parametrize("mark", ["\u0085", "\u2028", "\u2029"])
def test_marks_that_some_programs_take_for_line_ends_are_escaped(mark: str) -> None:
    made = journal(run_started(instructions=f"a{mark}b", params={f"k{mark}": "\u00e9"}))
    (line, rest) = made.text().split(b"\n")
    assert (rest, len(made.text().decode().splitlines())) == (b"", 1)
    escape = f"\\u{ord(mark):04x}".encode()
    assert (line.count(escape), mark.encode() in line, "\u00e9".encode() in line) == (2, False, True)
    assert tuple(read_records([line], made.head)) == made.records()


@pytest.mark.parametrize("mark", ["\u0085", "\u2028", "\u2029"])
def test_journal_of_a_release_that_did_not_escape_is_valid(mark: str) -> None:
    record = replace(JOURNAL.records()[0], fact=run_started(instructions=f"a{mark}b{mark}"))
    raw = sorted_json(record)
    assert mark.encode() in raw
    assert list(read_records([raw], text_hash(raw))) == [record]
    mixed = raw.replace(mark.encode(), f"\\u{ord(mark):04x}".encode(), 1)
    assert read_error([mixed]).code == "journal.damaged", "no release wrote one of both"


def test_journal_of_a_later_release_raises_recovery_failed() -> None:
    """Not damaged, and not readable: neither its facts nor their meaning are known here."""
    error = read_error([sorted_json(replace(JOURNAL.records()[0], fact=run_started(rules=RULES_VERSION + 1)))])
    assert (error.code, error.exit_code) == ("recovery.failed", 7)
    assert error.fields == {"seq": 1, "rules": RULES_VERSION + 1}
    strange = b'{"at":1,"epoch":1,"fact":{"rules":99,"type":"run_started","unheard":[]},"prev":"x","seq":1}'
    assert read_error([strange]).code == "recovery.failed"


@pytest.mark.parametrize("rules", [b"0", b"-1", b"true", b'"2"', b"2.0", b"null"])
def test_invalid_rules_version_is_refused(rules: bytes) -> None:
    assert b'"rules":2' in LINES[0]
    error = read_error([LINES[0].replace(b'"rules":2', b'"rules":' + rules)])
    assert (error.code, error.fields) == ("journal.damaged", {"seq": 1})


def test_first_record_must_be_run_started() -> None:
    error = read_error([sorted_json(replace(JOURNAL.records()[0], fact=JOURNAL.records()[1].fact))])
    assert (error.code, error.fields) == ("journal.damaged", {"seq": 1})


def test_texts_that_look_like_run_resumed_are_ignored() -> None:
    """Only a fact says under which rules an owner writes."""
    told = ModelTold("follow_up", (user_message('"type":"run_resumed"'), user_message("run_resumed")))
    params = {"fact": {"type": "run_resumed", "rules": 99}, "run_resumed": "run_resumed"}
    made = journal(run_started(params=params), told, RunResumed("sha256:1"), told)
    assert tuple(read_records(made.text().split(b"\n")[:-1])) == made.records()


def test_first_record_must_have_the_genesis_hash() -> None:
    first = replace(JOURNAL.records()[0], prev=JOURNAL.head)
    with pytest.raises(StorageError, match="not a first record"):
        list(read_records([sorted_json(first)]))


def test_record_is_yielded_only_after_its_check() -> None:
    got: Iterator[Record] = read_records([LINES[0], b"{}"])
    assert next(got) == JOURNAL.records()[0]
    with pytest.raises(StorageError):
        next(got)


def test_chain_refuses_a_record_out_of_sequence() -> None:
    first, second, *_ = JOURNAL.records()
    for wrong in (second, replace(first, prev="sha256:other")):
        with pytest.raises(InternalError):
            HashChain().add(wrong)


def test_planted_constant_hash_does_not_detect_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hash that sees nothing, a changed answer passes: the test above tests the chain."""
    monkeypatch.setattr(module, "data_hash", lambda line: GENESIS_HASH)
    blind = [sorted_json(replace(record, prev=GENESIS_HASH)) for record in JOURNAL.records()]
    assert damaged_seq(blind, GENESIS_HASH) is None
    assert damaged_seq([blind[0].replace(b"triage", b"treason"), *blind[1:]], GENESIS_HASH) is None
