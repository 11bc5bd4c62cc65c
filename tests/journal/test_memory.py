import pytest

from agentrun.core.facts import Record, RunResumed
from agentrun.errors import InternalError
from agentrun.journal.storage import MemoryJournal

from .journals import JOURNAL


def test_its_own() -> None:
    journal = MemoryJournal()
    assert (journal.epoch, journal.records(), journal.text()) == (1, (), b"")


@pytest.mark.parametrize("count", range(len(JOURNAL.records()) + 1))
def test_goes_on(count: int) -> None:
    journal = MemoryJournal(JOURNAL.records()[:count])
    assert journal.epoch == (2 if count else 1)
    assert journal.records() == JOURNAL.records()[:count]
    for record in JOURNAL.records()[count:]:
        journal.append(record)
    assert (journal.text(), journal.head) == (JOURNAL.text(), JOURNAL.head)


def test_every_owner_has_its_epoch() -> None:
    journal = MemoryJournal(JOURNAL.records()[:3])
    for epoch in (2, 3):
        journal.append(Record(epoch + 2, 0, journal.epoch, journal.head, RunResumed("sha256:1")))
        journal = MemoryJournal(journal.records())
        assert journal.epoch == epoch + 1


def test_the_one_it_goes_on_from_stays() -> None:
    first = MemoryJournal(JOURNAL.records()[:3])
    MemoryJournal(first.records()).append(JOURNAL.records()[3])
    assert first.records() == JOURNAL.records()[:3]


@pytest.mark.parametrize("seq", range(len(JOURNAL.records()) + 2))
def test_lines_after(seq: int) -> None:
    lines = JOURNAL.text().splitlines()
    assert list(MemoryJournal(JOURNAL.records()).lines_after(seq)) == lines[seq:]
    assert list(MemoryJournal(JOURNAL.records()[:seq]).lines_after(seq)) == []


def test_only_from_a_beginning() -> None:
    with pytest.raises(InternalError):
        MemoryJournal(JOURNAL.records()[1:])
