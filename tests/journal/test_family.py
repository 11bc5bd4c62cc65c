"""Reading the journals of a run and of its sub-agents."""

import tracemalloc
from pathlib import Path

import pytest

from agentrun.core.facts import ToolFinished
from agentrun.core.messages import Text
from agentrun.journal import storage
from agentrun.journal.family import read_family

from .journals import GOLDEN, JOURNAL, journal, run_started

MIB = 1024 * 1024


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("v2/*.jsonl")), ids=lambda path: path.stem)
def test_journals_without_all_records_say_the_same(path: Path) -> None:
    whole, brief = read_family(path), read_family(path, keep_all=False)
    for one, two in zip(whole.journals, brief.journals, strict=True):
        assert (one.run, one.length, one.is_finished) == (two.run, two.length, two.is_finished)
        assert (one.child_runs, one.fingerprints, one.error) == (two.child_runs, two.fingerprints, two.error)
        assert one.length == len(one.records)


def test_damaged_journal_has_the_records_before_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = JOURNAL.text().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[5]]))
    for keep_all in (True, False):
        read = read_family(path, keep_all=keep_all).root
        assert read.error is not None
        assert (read.error.code, read.length, read.records[-1].seq) == ("journal.damaged", 4, 4)


def peak(path: Path, *, keep_all: bool) -> int:
    tracemalloc.start()
    try:
        assert read_family(path, keep_all=keep_all).root.error is None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_for_a_check_is_the_size_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "run.jsonl", (Text("word " * 100),)
    path.write_bytes(journal(run_started(), *(ToolFinished("c1.0", text) for _ in range(4000))).text())
    size = path.stat().st_size
    assert size > 2 * MIB
    monkeypatch.setattr(storage, "MAX_JOURNAL_BYTES", size)  # a read allocates as much as is allowed
    assert peak(path, keep_all=False) < 1.3 * size
    assert peak(path, keep_all=True) > 1.8 * size, "this is what the check must not take"
