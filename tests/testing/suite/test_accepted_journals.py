"""The accepted journals of a case: names of files, the nearest one, and at most five."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrun.errors import RequestError
from agentrun.testing.suite.snapshots import (
    MAX_ACCEPTED_JOURNALS,
    AcceptedJournal,
    journal_to_write,
    named_path,
    nearest_journal,
    read_accepted,
    replace_journal,
    split_name,
)

YEARS_AGO = 1_000_000_000


def write_files(folder: Path, **texts: str) -> Path:
    """Files of the case `a`, by their names; `_` is the one without a name."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        named_path(folder / "a.journal", None if name == "_" else name).write_text(text, encoding="utf-8")
    return folder / "a.journal"


def names(accepted: tuple[AcceptedJournal, ...]) -> list[str]:
    return [each.path.name for each in accepted]


@pytest.mark.parametrize(
    ("file", "owner", "name"),
    [
        ("a.journal", "a.journal", None),
        ("a.b.journal", "a.journal", "b"),
        ("a.b.c.journal", "a.b.journal", "c"),
        ("a.big-refund_2.journal", "a.journal", "big-refund_2"),
        ("a.B.journal", "a.B.journal", None),
        ("a.1.journal", "a.1.journal", None),
        ("a.1.b.journal", "a.1.journal", "b"),
        ("a..journal", "a..journal", None),
        ("test_x[1.5].journal", "test_x[1.5].journal", None),
        ("test_x[a.b].journal", "test_x[a.b].journal", None),
        ("test_x[a.b].c.journal", "test_x[a.b].journal", "c"),
    ],
)
def test_name_of_a_file_says_what_it_belongs_to(file: str, owner: str, name: str | None) -> None:
    assert split_name(file) == (owner, name)
    assert named_path(Path(owner), name) == Path(file)


def test_journals_of_a_case_are_found_and_no_others(tmp_path: Path) -> None:
    path = write_files(tmp_path / "x", _="1", b="2", late="3")
    for other in ("ab.journal", "a-b.journal", "a.b.c.journal", "a.B.journal", "b.journal", "a.txt", "a.b.txt"):
        (path.parent / other).write_text("other", encoding="utf-8")
    assert [(each.path.name, each.text) for each in read_accepted(path)] == [
        ("a.journal", "1"),
        ("a.b.journal", "2"),
        ("a.late.journal", "3"),
    ]
    path.unlink()
    assert names(read_accepted(path)) == ["a.b.journal", "a.late.journal"]
    assert read_accepted(tmp_path / "absent" / "a.journal") == ()


def test_new_and_removed_journals_are_seen_in_a_folder_that_was_listed(tmp_path: Path) -> None:
    path = write_files(tmp_path / "x", _="1")
    for when, name in enumerate(("b", "c"), YEARS_AGO):
        os.utime(path.parent, (when, when))
        listed = names(read_accepted(path))
        write_files(path.parent, **{name: "2"})
        assert names(read_accepted(path)) == [*listed, f"a.{name}.journal"]
    os.utime(path.parent, (YEARS_AGO, YEARS_AGO + 9))
    assert len(read_accepted(path)) == 3
    named_path(path, "b").unlink()
    assert names(read_accepted(path)) == ["a.journal", "a.c.journal"]


def test_nearest_journal_has_the_fewest_changed_lines(tmp_path: Path) -> None:
    path = write_files(tmp_path / "x", _="a\nb\nc\nd\n", far="x\ny\n", near="a\nb\nc\nx\n")
    accepted = read_accepted(path)
    assert nearest_journal(accepted, "a\nb\nc\ny\n").path.name == "a.journal", "as near as another: the first"
    assert nearest_journal(accepted, "a\nb\nx\n").path.name == "a.near.journal"
    assert nearest_journal(accepted, "x\n").path.name == "a.far.journal"
    assert nearest_journal(accepted, "x\ny\n").path.name == "a.far.journal"


def test_journal_is_written_instead_of_the_nearest_or_under_a_new_name(tmp_path: Path) -> None:
    path = tmp_path / "x" / "a.journal"
    assert journal_to_write(path, (), "1\n") == AcceptedJournal(path, "1\n")
    assert journal_to_write(path, (), "1\n", "b") == AcceptedJournal(named_path(path, "b"), "1\n")
    accepted = read_accepted(write_files(tmp_path / "x", _="1\n2\n", b="3\n4\n"))
    assert journal_to_write(path, accepted, "3\n4\n") is None
    assert journal_to_write(path, accepted, "3\n4\n", "c") is None, "it is already accepted"
    assert journal_to_write(path, accepted, "3\n5\n") == AcceptedJournal(named_path(path, "b"), "3\n5\n")
    assert journal_to_write(path, accepted, "3\n5\n", "c") == AcceptedJournal(named_path(path, "c"), "3\n5\n")
    assert journal_to_write(path, accepted, "9\n", "b") == AcceptedJournal(named_path(path, "b"), "9\n")


def test_five_journals_are_accepted_and_a_sixth_is_refused(tmp_path: Path) -> None:
    assert MAX_ACCEPTED_JOURNALS == 5
    path = write_files(tmp_path / "x", **dict.fromkeys("bcd", "x\n"), _="x\n")
    four = read_accepted(path)
    fifth = journal_to_write(path, four, "y\n", "e")
    assert fifth is not None
    fifth.path.write_text(fifth.text, encoding="utf-8")
    five = replace_journal(four, fifth)
    assert len(five) == 5
    assert journal_to_write(path, five, "z\n", "e") == AcceptedJournal(named_path(path, "e"), "z\n"), "not a new one"
    assert journal_to_write(path, five, "z\n") is not None
    with pytest.raises(RequestError) as refused:
        journal_to_write(path, five, "z\n", "f")
    assert refused.value.message == "a case can have at most 5 accepted journals, not 6"
    assert refused.value.hint == (
        "remove one of a.journal, a.b.journal, a.c.journal, a.d.journal and a.e.journal, or replace one by"
        " its name: agentrun test --update --add NAME"
    )
    write_files(path.parent, e="y\n")
    assert len(read_accepted(path)) == 5
    write_files(path.parent, f="z\n")
    with pytest.raises(RequestError, match="at most 5 accepted journals, not 6"):
        read_accepted(path)
