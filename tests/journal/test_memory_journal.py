import pytest

from agentrun.core.facts import Record, RunResumed
from agentrun.errors import InternalError
from agentrun.journal.storage import MemoryJournal

from .journals import JOURNAL


def test_new_journal_is_empty_at_epoch_1() -> None:
    journal = MemoryJournal()
    assert (journal.epoch, journal.records(), journal.text()) == (1, (), b"")


@pytest.mark.parametrize("count", range(len(JOURNAL.records()) + 1))
def test_journal_continues_from_given_records(count: int) -> None:
    journal = MemoryJournal(JOURNAL.records()[:count])
    assert journal.epoch == (2 if count else 1)
    assert journal.records() == JOURNAL.records()[:count]
    for record in JOURNAL.records()[count:]:
        journal.append(record)
    assert (journal.text(), journal.head) == (JOURNAL.text(), JOURNAL.head)


def test_every_continuation_has_the_next_epoch() -> None:
    journal = MemoryJournal(JOURNAL.records()[:3])
    for epoch in (2, 3):
        journal.append(Record(epoch + 2, 0, journal.epoch, journal.head, RunResumed("sha256:1")))
        journal = MemoryJournal(journal.records())
        assert journal.epoch == epoch + 1


def test_continued_journal_does_not_change_the_original() -> None:
    first = MemoryJournal(JOURNAL.records()[:3])
    MemoryJournal(first.records()).append(JOURNAL.records()[3])
    assert first.records() == JOURNAL.records()[:3]


@pytest.mark.parametrize("seq", range(len(JOURNAL.records()) + 2))
def test_lines_after_gives_the_remaining_lines(seq: int) -> None:
    lines = JOURNAL.text().splitlines()
    assert list(MemoryJournal(JOURNAL.records()).lines_after(seq)) == lines[seq:]
    assert list(MemoryJournal(JOURNAL.records()[:seq]).lines_after(seq)) == []


def test_records_must_start_at_the_first() -> None:
    with pytest.raises(InternalError):
        MemoryJournal(JOURNAL.records()[1:])
