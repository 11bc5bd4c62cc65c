"""Journal files in a store: what is synced when, limits, and failures of the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from errno import EFBIG, EINVAL
from pathlib import Path

import pytest

from agentrun import files
from agentrun.core.facts import (
    CallRefused,
    CancelRequested,
    Fact,
    ModelAsked,
    Record,
    RunResumed,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.messages import Text
from agentrun.errors import InternalError, RecordRefused, StorageError
from agentrun.files import ProjectTree
from agentrun.journal import storage as module
from agentrun.journal.storage import FileJournal, JournalHead, SyncMode, read_contents

from .journals import JOURNAL, RUN_STOPPED, WITH_TOOLS, model_asked, replied, run_started

REFUSED = CallRefused("c1.0", "tool.unknown", "no")
"""A decision that starts no effect."""


class Directory:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path / "journal.jsonl"
        self.tree = ProjectTree(path, "store", private=True)

    def open(self, *, resume: bool = False, sync: SyncMode = "effects", said: list[str] | None = None) -> FileJournal:
        warn = (said if said is not None else []).append
        return FileJournal(self.path, resume=resume, tree=self.tree, sync=sync, warn=warn)

    def head(self) -> JournalHead | None:
        return read_contents(self.path, self.tree).head


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def append(journal: FileJournal, *facts: Fact) -> None:
    for fact in facts:
        journal.append(Record(journal.seq + 1, 1000, journal.epoch, journal.head, fact))


def append_error(journal: FileJournal, fact: Fact) -> StorageError:
    with pytest.raises(StorageError) as caught:
        append(journal, fact)
    return caught.value


# --- syncs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the journal at each sync."""
    sizes: list[int] = []
    sync = files.sync_data

    def counted(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(module, "sync_data", counted)
    return sizes


STEPS: tuple[tuple[Fact, bool], ...] = (
    (run_started(), True),
    (model_asked(), True),
    (replied("", "search"), True),
    (REFUSED, False),
    (ToolStarted("c1.1", "search", "k"), True),
    (ToolFinished("c1.1", (Text("x"),)), True),
    (CancelRequested("caller"), True),
    (RUN_STOPPED, True),
)
"""Facts, and whether mode `effects` syncs them at once."""


@pytest.mark.parametrize("mode", ["process", "effects", "full"])
def test_journal_is_synced_as_the_mode_says(directory: Directory, synced: list[int], mode: SyncMode) -> None:
    with directory.open(sync=mode) as journal:
        for seq, (fact, is_synced) in enumerate(STEPS, 1):
            before = len(synced)
            append(journal, fact)
            expected = {"process": False, "effects": is_synced, "full": True}[mode]
            assert (len(synced) - before, synced[-1:] == [directory.path.stat().st_size]) == (int(expected), expected)
            head = directory.head()
            assert head is not None
            assert (head.seq == seq) == (expected or seq == 1 or fact is RUN_STOPPED), "the head names what is synced"


@pytest.mark.parametrize(("mode", "syncs"), [("process", 0), ("effects", 1), ("full", 0)])
def test_close_syncs_what_is_left_and_writes_the_head(
    directory: Directory, synced: list[int], mode: SyncMode, syncs: int
) -> None:
    journal = directory.open(sync=mode)
    append(journal, run_started(), REFUSED)
    synced.clear()
    journal.close()
    head = directory.head()
    assert (len(synced), head and head.seq) == (syncs, 2)
    journal.close()


def test_resumed_journal_is_synced_before_it_grows(directory: Directory, synced: list[int]) -> None:
    with directory.open(sync="process") as journal:
        append(journal, run_started())
    synced.clear()
    with directory.open(resume=True):
        assert synced == [directory.path.stat().st_size]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_sync_reaches_the_kernel_before_the_effect(directory: Directory) -> None:
    code = """if True:
        import os, sys
        from pathlib import Path
        from tests.journal.test_stored_journal import Directory, append
        from tests.journal.journals import model_asked, run_started
        journal = Directory(Path(sys.argv[1])).open()
        append(journal, run_started(), model_asked())
        os.write(2, b"the effect")
    """
    command = ["strace", "-f", "-e", "trace=write,fdatasync,pwrite64", "-o", str(directory.path.parent / "trace")]
    here = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, sys.executable, "-c", code, str(directory.path.parent)], cwd=here, capture_output=True, check=False
    )
    if b"ptrace" in done.stderr.lower():
        pytest.skip("ptrace is not allowed here")
    assert done.returncode == 0, done.stderr
    calls = [line.split(None, 1)[1] for line in (directory.path.parent / "trace").read_text().splitlines()]
    ours = ('{\\"at\\"', "fdatasync", "sha256", "the effect")
    order = [call.partition("(")[0] for call in calls if any(mark in call for mark in ours)]
    assert order == ["write", "fdatasync", "pwrite64", "write", "fdatasync", "pwrite64", "write"]


def test_failed_sync_poisons_the_journal_and_is_not_repeated(directory: Directory, synced: list[int]) -> None:
    """The null device takes the bytes and cannot be synced."""
    journal = directory.open()
    os.close(journal._file)
    journal._file = os.open(os.devnull, os.O_WRONLY)
    error = append_error(journal, run_started())
    assert (error.code, error.fields["errno"]) == ("storage.failed", EINVAL)
    assert append_error(journal, RUN_STOPPED).code == "journal.poisoned"
    journal.close()
    assert len(synced) == 1
    assert directory.head() is None, "the head never names a record that is not synced"


# --- full disks ------------------------------------------------------------------------------------------------


def test_file_that_cannot_grow_keeps_whole_records_at_any_size(directory: Directory) -> None:
    """A limit within each record: what fitted of it is cut off, and with more room the journal goes on."""
    code = """if True:
        import resource, sys
        from pathlib import Path
        from agentrun.errors import StorageError
        from tests.journal.test_stored_journal import Directory
        from tests.journal.journals import JOURNAL
        for limit in map(int, sys.argv[2:]):
            directory = Path(sys.argv[1]) / str(limit)
            directory.mkdir()
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            journal = Directory(directory).open(sync="process")
            try:
                for record in JOURNAL.records():
                    journal.append(record)
            except StorageError as error:
                print(limit, error.code, error.fields["errno"], journal.seq)
            journal.close()
    """
    ends = [0]
    for line in JOURNAL.text().splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    limits = sorted({end + more for end in ends[:-1] for more in (1, 50, 150)} | {end - 1 for end in ends[2:]})
    limits = [limit for limit in limits if module.HEAD_SIZE < limit < ends[-1]]
    here = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(directory.path.parent), *map(str, limits)]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(limits)
    for said in lines:
        limit, failure, number, seq = said.split()
        assert (failure, int(number)) == ("storage.failed", EFBIG)
        stopped = Directory(directory.path.parent / limit)
        assert len(list(read_contents(stopped.path, stopped.tree).records())) == int(seq)
        assert stopped.path.stat().st_size == max(end for end in ends if end <= int(limit))
        if not int(seq):
            continue
        with stopped.open(resume=True) as journal:
            assert journal.torn == 0
            append(journal, RunResumed("sha256:1"))


# --- limits ----------------------------------------------------------------------------------------------------


def padded(size: int, journal: FileJournal) -> Fact:
    """A fact whose line has this size."""
    empty = Record(journal.seq + 1, 1000, 1, journal.head, ToolFinished("c1.0", (Text(""),)))
    return ToolFinished("c1.0", (Text("x" * (size - len(journal._chain.line(empty)) - 1)),))


def test_full_journal_takes_only_the_end_of_the_run(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOURNAL_RECORDS", 3)
    with directory.open() as journal:
        append(journal, run_started(), model_asked(), replied("Hi"))
        assert isinstance(append_error(journal, REFUSED), RecordRefused)
        append(journal, RUN_STOPPED)
    assert len(list(read_contents(directory.path, directory.tree).records())) == 4


def test_journal_of_the_maximum_size_takes_only_the_end_of_the_run(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directory.open() as journal:
        append(journal, run_started())
        before = directory.path.stat().st_size
        monkeypatch.setattr(module, "MAX_JOURNAL_BYTES", before + 500)
        error = append_error(journal, padded(501, journal))
        assert isinstance(error, RecordRefused)
        assert (error.code, error.fields) == ("storage.failed", {"path": "journal", "errno": EFBIG})
        assert directory.path.stat().st_size == before
        append(journal, padded(500, journal))
        assert directory.path.stat().st_size == before + 500, "a refusal does not poison"
        assert isinstance(append_error(journal, REFUSED), RecordRefused)
        append(journal, RUN_STOPPED)
    assert len(list(read_contents(directory.path, directory.tree).records())) == 3


def test_large_journal_warns_once_at_a_fifth(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOURNAL_RECORDS", 10)
    said: list[str] = []
    with directory.open(said=said) as journal:
        append(journal, run_started(), model_asked())
        assert said == []
        append(journal, replied("Hi"), REFUSED)
    assert said == ["the journal has 3 records and 0 MB; the run ends at 10 records or 50 MB"]


def test_record_that_could_not_be_read_back_is_not_written(directory: Directory) -> None:
    """The check is that of the reader, so it finds whatever a reader would refuse."""
    wrong: list[Fact] = [CancelRequested(42), RunResumed("sha256:1", "2"), model_asked(True)]  # type: ignore[arg-type]  # on purpose
    with directory.open() as journal:
        append(journal, run_started())
        before = directory.path.read_bytes()
        for fact in wrong:
            with pytest.raises(InternalError, match="could not be read back"):
                append(journal, fact)
        assert directory.path.read_bytes() == before
        append(journal, CancelRequested("42"))
        assert len(journal.records()) == 2


# --- torn lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [1, 2, len(WITH_TOOLS)])
def test_every_part_of_a_record_is_kept_aside_and_cut(tmp_path: Path, seq: int) -> None:
    lines = JOURNAL.text().splitlines(keepends=True)
    whole, last = b"".join(lines[: seq - 1]), lines[seq - 1]
    for size in {1, 2, len(last) // 2, len(last) - 2, len(last) - 1}:
        (tmp_path / str(size)).mkdir()
        directory = Directory(tmp_path / str(size))
        directory.path.write_bytes(whole + last[:size])
        with directory.open(resume=True) as journal:
            assert (journal.seq, journal.torn) == (seq - 1, size)
            assert directory.path.read_bytes() == whole
            assert (directory.path.parent / f"torn-{seq}").read_bytes() == last[:size]
            append(journal, run_started() if seq == 1 else RunResumed("sha256:1", torn=journal.torn))
        with directory.open(resume=True) as journal:
            assert (journal.seq, journal.torn) == (seq, 0)


def test_damage_before_the_end_stops(directory: Directory) -> None:
    """A torn line is at the end. Anything else is damage, and nothing is cut off."""
    text = JOURNAL.text()
    data = text.replace(b"model_asked", b"model_axked", 1)[:-5]
    directory.path.write_bytes(data)
    with pytest.raises(StorageError) as caught:
        directory.open(resume=True)
    assert (caught.value.code, caught.value.fields["seq"]) == ("recovery.failed", 2)
    directory.path.write_bytes(text.replace(b'"reserved":100', b'"reserved":101', 1)[:-5])
    with pytest.raises(StorageError, match=r"journal\.damaged"):
        directory.open(resume=True)
    assert not list(directory.path.parent.glob("torn-*"))


@pytest.mark.parametrize("data", [b"", b"\0" * 81])
def test_head_that_a_crash_of_the_machine_left_empty_says_nothing(directory: Directory, data: bytes) -> None:
    with directory.open() as journal:
        append(journal, run_started(), ModelAsked("m1.1", 1, 1, "r", 0))
    (directory.path.parent / "head").write_bytes(data)
    with directory.open(resume=True) as journal:
        assert journal.seq == 2
        append(journal, RunResumed("sha256:1"))
    head = directory.head()
    assert head is not None
    assert head.seq == 3
