"""Journals in memory."""

from agentrun.engine.memory import MemoryJournals

from ..journal.journals import JOURNAL


def test_lines_after_gives_the_lines_after_a_record() -> None:
    journals = MemoryJournals()
    owned = journals.open("r1")
    assert list(owned.lines_after(0)) == []
    for record in JOURNAL.records():
        owned.append(record)
    assert list(owned.lines_after(2)) == JOURNAL.text().splitlines()[2:]
    assert list(journals.open("r1").lines_after(0)) == JOURNAL.text().splitlines(), "the next owner reads all of them"
