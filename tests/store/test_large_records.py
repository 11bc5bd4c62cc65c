"""Records that are too large for a line of the journal, and journals that are full."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.compiler.package_file import seal_package
from agentrun.core.effects import ModelRequest
from agentrun.core.facts import Fact, ModelReplied, Record, RunStarted
from agentrun.engine.clock import StepClock
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.errors import AgentrunError, StorageError
from agentrun.journal import storage as module
from agentrun.journal.family import read_family
from agentrun.journal.records import HashChain, fact_blob
from agentrun.journal.storage import MAX_RECORD_BYTES, FileJournal, read_journal_file
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.index import RunFilter, RunIndex
from agentrun.testing import calls, replies, text
from agentrun.testing.doubles import ScriptItem

from ..core.script import agent_tool
from ..durability.store_operations import StoreOperations
from ..journal.journals import RUN_STOPPED, model_asked, replied, run_started
from ..packages import package
from ..schemas import validator
from .stored_runs import append

RUN = "run-1"
LONG = "x\u2028" * 150_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(Project(tmp_path)) as store:
        yield store


def started_with_line_of(size: int) -> RunStarted:
    """A first record whose line, with its line end, has this size."""
    line = Record(1, 1000, 1, HashChain().head, run_started(instructions=""))
    return run_started(instructions="x" * (size - len(HashChain().line(line)) - 1))


def facts(store: FileStore, run: str = RUN) -> list[Fact]:
    return [record.fact for record in store.records(run)]


def lines(store: FileStore, run: str = RUN) -> list[bytes]:
    return store.journal_path(run).read_bytes().splitlines()


def blob_files(store: FileStore, run: str = RUN) -> list[Path]:
    directory = store.run_directory(run) / "blobs"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def test_record_is_in_its_line_up_to_the_limit(store: FileStore) -> None:
    fact = started_with_line_of(MAX_RECORD_BYTES)
    append(store.open(RUN), fact)
    assert store.journal_path(RUN).stat().st_size == MAX_RECORD_BYTES
    assert (blob_files(store), facts(store)) == ([], [fact])


def test_fact_above_the_limit_is_in_a_blob(store: FileStore) -> None:
    fact = started_with_line_of(MAX_RECORD_BYTES + 1)
    append(store.open(RUN), fact, model_asked())
    (blob,) = blob_files(store)
    (line, _), data = lines(store), blob.read_bytes()
    moved = fact_blob(line)
    assert moved is not None
    assert (moved.blob, moved.size, moved.type) == (f"sha256:{blob.name}", len(data), "run_started")
    assert len(line) < 400
    assert oct(blob.stat().st_mode & 0o777) == "0o600"
    assert facts(store) == [fact, model_asked()]
    assert [record.fact for record in read_journal_file(store.journal_path(RUN))] == [fact, model_asked()]
    validator("journal").validate(json.loads(line))


def test_journal_with_large_records_continues(store: FileStore, tmp_path: Path) -> None:
    long = replied(LONG)
    append(store.open(RUN), run_started(session="ada", instructions=LONG), model_asked(), long)
    store.close()
    with FileStore(Project(tmp_path)) as later:
        assert later.session_of(RUN) == "ada"
        journal = later.open(RUN)
        assert (journal.seq, journal.epoch) == (3, 2)
        append(journal, RUN_STOPPED)
        assert facts(later)[2:] == [long, RUN_STOPPED]


def test_blob_is_synced_before_the_line_that_refers_to_it(store: FileStore) -> None:
    append(journal := store.open(RUN), run_started(), model_asked())
    with StoreOperations([store.project.store_directory]) as operations:
        append(journal, replied(LONG))
    names = [f"{each.name} {Path(each.path).suffix or Path(each.path).name[:7]}" for each in operations.seen]
    (blob,) = blob_files(store)
    assert names == [
        "mkdir blobs",
        "open .new",
        "write .new",
        "fsync .new",
        f"replace {blob.name[:7]}",
        "fsync blobs",
        "write .jsonl",
        "fdatasync .jsonl",
        "pwrite head",
    ]


def remove(path: Path) -> None:
    path.unlink()


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"x", b"y", 1))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [remove, change, cut])
def test_missing_or_changed_blob_damages_its_record(store: FileStore, damage: object) -> None:
    append(store.open(RUN), run_started(), model_asked(), replied(LONG))
    store.close()
    damage(blob_files(store)[0])  # type: ignore[operator]  # one of the functions above
    for read in (
        lambda: store.records(RUN),
        lambda: store.open(RUN),
        lambda: list(read_journal_file(store.journal_path(RUN))),
    ):
        with pytest.raises(StorageError, match="its blob is missing or was changed") as caught:
            read()
        assert (caught.value.code, caught.value.fields) == ("journal.damaged", {"seq": 3})
    family = read_family(store.journal_path(RUN))
    assert (len(family.root.records), family.root.error) != (3, None)
    (store.project.store_directory / "index.sqlite").unlink()
    (summary,) = RunIndex(store.project).select(RunFilter())
    assert (summary.status, summary.code) == ("damaged", "journal.damaged")


@pytest.mark.parametrize(
    ("was", "now"), [(b'"size":', b'"size":1'), (b'"type":"model_replied"', b'"type":"run_stopped"')]
)
def test_changed_reference_damages_its_record(store: FileStore, was: bytes, now: bytes) -> None:
    """Even in the last line, which no other line has a hash of."""
    append(store.open(RUN), run_started(), model_asked(), replied(LONG))
    path = store.journal_path(RUN)
    path.write_bytes(path.read_bytes().replace(was, now))
    with pytest.raises(StorageError, match="record 3 of the journal is damaged: its blob has another size or kind"):
        list(read_journal_file(path))


def test_summary_counts_what_is_in_blobs(store: FileStore) -> None:
    append(store.open(RUN), run_started(session="ada", instructions=LONG), model_asked(), replied(LONG), RUN_STOPPED)
    append(store.open("run-2"), run_started(run="run-2", session="ben"), model_asked(), replied("x"), RUN_STOPPED)
    two, one = RunIndex(store.project).select(RunFilter())
    assert (one.agent, one.session, one.tokens) == (two.agent, "ada", two.tokens)


def test_reference_without_its_blobs_is_not_a_whole_journal(store: FileStore, tmp_path: Path) -> None:
    append(store.open(RUN), run_started(instructions=LONG))
    copy = tmp_path / "copy.jsonl"
    shutil.copy(store.journal_path(RUN), copy)
    with pytest.raises(StorageError, match="its blob is missing"):
        list(read_journal_file(copy))


def test_journal_without_a_store_has_large_records_in_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.append(Record(1, 1000, 1, journal.head, run_started(instructions=LONG)))
    assert path.stat().st_size > MAX_RECORD_BYTES
    assert [record.fact for record in read_journal_file(path)] == [run_started(instructions=LONG)]


# --- whole runs ------------------------------------------------------------------------------------------------------


def model(request: ModelRequest) -> ScriptItem:
    if request.tools and len(request.messages) == 1:
        return calls("billing", message=LONG)
    return text(LONG)


def test_run_with_large_texts_is_interrupted_and_resumed(tmp_path: Path) -> None:
    billing = package(name="billing", input=None)
    agent = seal_package(
        package(tools={"billing": agent_tool()}, agents={"billing": billing}, policy={"default": "allow"})
    )
    clock = StepClock()

    def runtime(store: FileStore) -> Runtime:
        providers = {"openai": replies(model)}
        return Runtime.in_memory(journals=store, content=store.blobs(RUN), providers=providers, clock=clock)

    with FileStore(Project(tmp_path)) as store:
        runtime(store).start(Request(agent=agent.agent.name, package=agent, message=LONG, run=RUN))
    with FileStore(Project(tmp_path)) as store:
        outcome = clock.run(runtime(store).resume(RUN).wait())
        assert (outcome.status, outcome.answer) == ("completed", LONG)
        assert [type(each) for each in facts(store)].count(ModelReplied) == 2
        child = f"{RUN}.c1.0"
        assert len(facts(store, child)) > 3
        assert len(blob_files(store)) >= 4
        assert blob_files(store, child) == []
        assert read_family(store.journal_path(RUN)).children[child].error is None


# --- full journals ---------------------------------------------------------------------------------------------------


def error_of(store: FileStore, fact: Fact) -> AgentrunError:
    with pytest.raises(StorageError) as caught:
        append(store.open(RUN), fact)
    return caught.value


def test_blobs_count_for_the_size_of_a_journal(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store.open(RUN), run_started(instructions=LONG), model_asked())
    used = store.journal_path(RUN).stat().st_size + blob_files(store)[0].stat().st_size
    whole = Record(3, 1000, 1, store.open(RUN).head, replied(LONG))
    size = used + len(HashChain(whole.prev, 2).line(whole)) + 1
    monkeypatch.setattr(module, "MAX_JOURNAL_BYTES", size - 1)
    error = error_of(store, replied(LONG))
    assert (error.code, "which is the limit" in error.message) == ("storage.failed", True)
    assert len(blob_files(store)) == 1
    monkeypatch.setattr(module, "MAX_JOURNAL_BYTES", size)
    append(store.open(RUN), replied(LONG))


def test_first_record_that_is_too_large_leaves_nothing(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOURNAL_BYTES", 1_000_000)
    error = error_of(store, run_started(instructions="x" * 1_000_000))
    assert error.hint is not None
    assert "--attach" in error.hint
    assert not os.listdir(store.project.store_directory / "runs")


def test_full_journal_still_ends(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(journal := store.open(RUN), run_started(), model_asked())
    monkeypatch.setattr(module, "MAX_JOURNAL_RECORDS", 3)
    append(journal, replied("x"))
    with pytest.raises(StorageError, match="the journal has 3 records, which is the limit"):
        append(journal, model_asked(2))
    append(journal, RUN_STOPPED)
    assert facts(store)[-1] == RUN_STOPPED
