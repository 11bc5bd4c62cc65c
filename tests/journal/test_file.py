from pathlib import Path

import pytest

from agentrun.errors import StorageError
from agentrun.journal import file as module
from agentrun.journal.file import FileJournal, read_file

from ..packages import package
from ..worlds import Scripted, completion, live

JOURNAL = live(package(), Scripted([completion("Hello")]))


def write(path: Path) -> FileJournal:
    with FileJournal(path) as journal:
        for record in JOURNAL.records():
            assert journal.head == record.prev
            journal.append(record)
    return journal


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = write(path)
    assert path.read_bytes() == JOURNAL.text()
    assert journal.records() == JOURNAL.records() == tuple(read_file(path))
    assert journal.head == JOURNAL.head


def test_each_record_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        journal.append(JOURNAL.records()[0])
        assert tuple(read_file(path)) == JOURNAL.records()[:1]


def test_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"precious")
    with pytest.raises(StorageError) as caught:
        FileJournal(path)
    assert (caught.value.code, caught.value.exit_code) == ("storage.failed", 7)
    assert caught.value.fields["path"] == "journal"
    assert path.read_bytes() == b"precious"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="storage.failed"):
        list(read_file(tmp_path / "nothing"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_write_fails(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal.jsonl")
    journal._file.close()
    journal._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115  # closed by the journal
    with journal, pytest.raises(StorageError) as caught:
        journal.append(JOURNAL.records()[0])
    assert caught.value.fields["errno"] == 28


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(JOURNAL.text().replace(b"Hello", b"Howdy"))
    with pytest.raises(StorageError) as caught:
        list(read_file(path))
    assert (caught.value.code, caught.value.fields["seq"]) == ("journal.damaged", 4)


def test_torn_last_line(tmp_path: Path) -> None:
    """Every prefix of the last line is told from a whole journal."""
    path = tmp_path / "journal.jsonl"
    text = JOURNAL.text()
    start = text[:-1].rindex(b"\n") + 1
    for end in range(start + 1, len(text)):
        path.write_bytes(text[:end])
        with pytest.raises(StorageError) as caught:
            list(read_file(path, JOURNAL.head))
        assert (caught.value.code, caught.value.fields) == ("journal.truncated", {"seq": len(JOURNAL.records())})


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    size = path.stat().st_size
    monkeypatch.setattr(module, "MAX_BYTES", size)
    assert list(read_file(path))
    monkeypatch.setattr(module, "MAX_BYTES", size - 1)
    with pytest.raises(StorageError, match="more than"):
        list(read_file(path))
