import os
import subprocess
import sys
from collections.abc import Callable
from errno import EFBIG, ENOSPC
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentrun.canonical_json import data_hash
from agentrun.core.facts import Record, RunResumed
from agentrun.errors import StorageError
from agentrun.journal import storage as module
from agentrun.journal.storage import FileJournal, read_journal_file

from .journals import GOLDEN, JOURNAL, RUN_STOPPED, model_asked


def write(path: Path) -> FileJournal:
    with FileJournal(path) as journal:
        for record in JOURNAL.records():
            assert journal.head == record.prev
            journal.append(record)
    return journal


def test_written_records_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = write(path)
    assert path.read_bytes() == JOURNAL.text()
    assert journal.records() == JOURNAL.records() == tuple(read_journal_file(path))
    assert journal.head == JOURNAL.head


def test_each_record_is_written_immediately(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        journal.append(JOURNAL.records()[0])
        assert tuple(read_journal_file(path)) == JOURNAL.records()[:1]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("seq", range(len(JOURNAL.records()) + 2))
def test_lines_after_gives_the_remaining_lines(tmp_path: Path, seq: int, resume: bool) -> None:
    path = tmp_path / "journal.jsonl"
    journal = write(path)
    if resume:
        journal = FileJournal(path, resume=True)
    with journal:
        assert list(journal.lines_after(seq)) == JOURNAL.text().splitlines()[seq:]


def test_lines_after_includes_records_of_a_later_owner(tmp_path: Path) -> None:
    """Who has read up to n reads what came since; lines that were read before need not be there any more."""
    path = tmp_path / "journal.jsonl"
    lines, records = JOURNAL.text().splitlines(), JOURNAL.records()
    with FileJournal(path) as journal:
        for record in records[:3]:
            journal.append(record)
    with FileJournal(path, resume=True) as journal:
        assert list(journal.lines_after(0)) == lines[:3]
        following = [replace(record, epoch=2) for record in records[3:4]]
        journal.append(replace(following[0], prev=journal.head))
        path.write_bytes(b"x" * len(b"\n".join(lines[:3])) + path.read_bytes()[len(b"\n".join(lines[:3])) :])
        (line,) = journal.lines_after(3)
        assert data_hash(line) == journal.head


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        (lambda data: data[:-2], "journal.damaged", "it is not the line that was written"),
        (lambda data: data[:-2] + b"x\n", "journal.damaged", "it is not the last record that was written"),
    ],
)
def test_lines_after_detects_a_changed_file(
    tmp_path: Path, change: Callable[[bytes], bytes], code: str, why: str
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = write(path)
    path.write_bytes(change(path.read_bytes()))
    seq = len(JOURNAL.records())
    with pytest.raises(StorageError, match=why) as caught:
        list(journal.lines_after(seq - 1))
    assert (caught.value.code, caught.value.fields) == (code, {"seq": seq})
    path.unlink()
    with pytest.raises(StorageError, match=r"storage\.failed"):
        list(journal.lines_after(0))


def test_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"precious")
    with pytest.raises(StorageError) as caught:
        FileJournal(path)
    assert (caught.value.code, caught.value.exit_code) == ("storage.failed", 7)
    assert caught.value.fields["path"] == "journal"
    assert path.read_bytes() == b"precious"


def test_missing_file_raises_storage_failed(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"storage\.failed"):
        list(read_journal_file(tmp_path / "nothing"))


def append_error(journal: FileJournal, seq: int) -> StorageError:
    with pytest.raises(StorageError) as caught:
        journal.append(JOURNAL.records()[seq - 1])
    return caught.value


# --- going on with a file -----------------------------------------------------------------------------------


def half_written_journal(tmp_path: Path) -> Path:
    """A file that an owner left in the middle."""
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        for record in JOURNAL.records()[:4]:
            journal.append(record)
    return path


def test_resume_appends_to_the_journal(tmp_path: Path) -> None:
    path = half_written_journal(tmp_path)
    before = path.read_bytes()
    with FileJournal(path, resume=True) as second:
        assert second.epoch == 2
        assert second.records() == JOURNAL.records()[:4]
        assert second.head == JOURNAL.records()[4].prev
        for record in JOURNAL.records()[4:]:
            second.append(record)
    assert path.read_bytes() == JOURNAL.text()
    assert path.read_bytes().startswith(before)


def test_every_resume_has_the_next_epoch(tmp_path: Path) -> None:
    path = half_written_journal(tmp_path)
    for epoch in (2, 3, 4):
        with FileJournal(path, resume=True) as journal:
            assert journal.epoch == epoch
            seq = len(journal.records()) + 1
            journal.append(Record(seq, 0, journal.epoch, journal.head, RunResumed("sha256:1")))
    assert [record.epoch for record in read_journal_file(path)] == [1, 1, 1, 1, 2, 3, 4]


def test_resume_without_a_record_does_not_advance_the_epoch(tmp_path: Path) -> None:
    path = half_written_journal(tmp_path)
    for _ in range(2):
        with FileJournal(path, resume=True) as journal:
            assert journal.epoch == 2


def test_resume_of_an_empty_journal_starts_at_epoch_1(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    FileJournal(path).__exit__(None, None, None)
    with FileJournal(path, resume=True) as journal:
        assert (journal.epoch, journal.records()) == (1, ())
        journal.append(JOURNAL.records()[0])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (JOURNAL.text().replace(b"Hello", b"Howdy"), "journal.damaged"),
        (JOURNAL.text()[:-1], "journal.truncated"),
        (JOURNAL.text().replace(b'"rules":2', b'"rules":3'), "recovery.failed"),
    ],
)
def test_damaged_journal_cannot_be_resumed(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(data)
    with pytest.raises(StorageError) as caught:
        FileJournal(path, resume=True)
    assert caught.value.code == code
    assert path.read_bytes() == data


def test_missing_journal_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with pytest.raises(StorageError, match=r"storage\.failed"):
        FileJournal(path, resume=True)
    assert not path.exists()


def test_journal_of_an_earlier_release_can_be_resumed(tmp_path: Path) -> None:
    """The old lines stay as they are; what follows is written under today's rules."""
    path = tmp_path / "journal.jsonl"
    old = (GOLDEN / "v1" / "repaired.jsonl").read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(old[:4]))
    with FileJournal(path, resume=True) as journal:
        for fact in (RunResumed("sha256:1"), model_asked(2), RUN_STOPPED):
            seq = len(journal.records()) + 1
            journal.append(Record(seq, 0, journal.epoch, journal.head, fact))
    assert path.read_bytes().startswith(b"".join(old[:4]))
    records = tuple(read_journal_file(path))
    assert [record.fact for record in records[4:]] == [RunResumed("sha256:1"), model_asked(2), RUN_STOPPED]
    assert [record.epoch for record in records] == [1, 1, 1, 1, 2, 2, 2]
    with FileJournal(path, resume=True) as journal:
        assert journal.records() == records


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_full_disk_raises_storage_failed_and_poisons_the_journal(tmp_path: Path) -> None:
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        os.close(journal._file)
        journal._file = os.open("/dev/full", os.O_WRONLY)
        error = append_error(journal, 1)
        assert (error.code, error.fields) == ("storage.failed", {"path": "journal", "errno": ENOSPC})
        assert (append_error(journal, 2).code, error.exit_code) == ("journal.poisoned", 7)


def test_short_write_raises_storage_failed(tmp_path: Path) -> None:
    """A file that may not grow beyond a size takes a part of the line first."""
    code = """if True:
        import resource, sys
        from pathlib import Path
        from agentrun.errors import StorageError
        from agentrun.journal.storage import FileJournal, read_journal_file
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        (record,) = list(read_journal_file(Path(sys.argv[1])))
        try:
            FileJournal(Path(sys.argv[2])).append(record)
        except StorageError as error:
            print(error.code, error.fields["errno"])
    """
    first = tmp_path / "first.jsonl"
    with FileJournal(first) as journal:
        journal.append(JOURNAL.records()[0])
    done = subprocess.run(
        [sys.executable, "-c", code, str(first), str(tmp_path / "second.jsonl")],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["storage.failed", str(EFBIG)]
    assert (tmp_path / "second.jsonl").read_bytes() == b"", "the part that was written is cut off"


def test_changed_record_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(JOURNAL.text().replace(b"Hello", b"Howdy"))
    with pytest.raises(StorageError) as caught:
        list(read_journal_file(path))
    assert (caught.value.code, caught.value.fields["seq"]) == ("journal.damaged", 13)


def test_torn_last_line_is_reported_as_truncated(tmp_path: Path) -> None:
    """Every prefix of the last line is told from a whole journal."""
    path = tmp_path / "journal.jsonl"
    text = JOURNAL.text()
    start = text[:-1].rindex(b"\n") + 1
    for end in range(start + 1, len(text)):
        path.write_bytes(text[:end])
        with pytest.raises(StorageError) as caught:
            list(read_journal_file(path, JOURNAL.head))
        assert (caught.value.code, caught.value.fields) == ("journal.truncated", {"seq": len(JOURNAL.records())})


def test_journal_above_the_size_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    size = path.stat().st_size
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", 100)
    monkeypatch.setattr(module, "MAX_JOURNAL_BYTES", size - 100)
    assert list(read_journal_file(path))
    monkeypatch.setattr(module, "MAX_JOURNAL_BYTES", size - 101)
    with pytest.raises(StorageError, match="is larger than"):
        list(read_journal_file(path))
