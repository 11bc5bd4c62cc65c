"""How long runs are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.spec.project import Project
from agentrun.store import retention
from agentrun.store.files import FileStore
from agentrun.store.retention import prune_store

from ..journal.journals import run_started
from .stored_runs import append, finished_run

DAY = 24 * 60 * 60 * 1000
NOW = 1_800_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(Project(tmp_path), sync="process") as store:
        yield store


def pruned(store: FileStore) -> list[str]:
    prune_store(store, NOW)
    return store.runs()


@pytest.mark.parametrize(("age", "is_kept"), [(30 * DAY, True), (30 * DAY + 1, False)])
def test_finished_run_is_removed_after_30_days(store: FileStore, age: int, is_kept: bool) -> None:
    finished_run(store, "run-1", at=NOW - age)
    finished_run(store, "run-1.c1.0", at=NOW - age)
    assert pruned(store) == (["run-1", "run-1.c1.0"] if is_kept else [])


def test_unfinished_run_is_never_removed(store: FileStore) -> None:
    append(store.open("run-1"), run_started(), at=1)
    append(store.open("run-2"), run_started(run="run-2", session="ada"), at=1)
    store.close()
    assert pruned(store) == ["run-1", "run-2"]


def test_only_the_newest_finished_runs_are_kept(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_FINISHED_RUNS", 2)
    append(store.open("run-0"), run_started(run="run-0"), at=1)
    for number in (3, 1, 4, 2):
        finished_run(store, f"run-{number}", at=NOW - 10 + number)
    assert pruned(store) == ["run-0", "run-3", "run-4"]


@pytest.mark.parametrize(("age", "is_kept"), [(90 * DAY, True), (90 * DAY + 1, False)])
def test_session_is_removed_whole_90_days_after_its_last_run(store: FileStore, age: int, is_kept: bool) -> None:
    finished_run(store, "run-1", session="ada", at=NOW - 500 * DAY)
    finished_run(store, "run-2", session="ada", at=NOW - age)
    assert pruned(store) == (["run-1", "run-2"] if is_kept else [])
    assert (store.sessions.directory("ada")).exists() == is_kept


def test_session_run_is_kept_if_the_list_of_the_session_is_lost(store: FileStore) -> None:
    finished_run(store, "run-1", session="ada", at=1)
    (store.sessions.directory("ada") / "runs").unlink()
    assert pruned(store) == ["run-1"]
    assert [entry.run for entry in store.sessions.runs("ada")] == ["run-1"], "it is made again"


def test_session_with_an_active_run_is_kept(store: FileStore, tmp_path: Path) -> None:
    finished_run(store, "run-1", session="ada", at=1)
    with FileStore(Project(tmp_path)) as other:
        other.lock_session("ada")
        assert pruned(store) == ["run-1"]
    assert pruned(store) == []


def test_directory_without_a_record_is_removed_after_a_day(store: FileStore) -> None:
    directory = store.run_directory("run-1")
    directory.mkdir(parents=True)
    os.utime(directory, (NOW / 1000 - 3600,) * 2)
    assert pruned(store) == ["run-1"]
    os.utime(directory, (NOW / 1000 - 25 * 3600,) * 2)
    assert pruned(store) == []


def test_one_call_removes_a_limited_number(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_REMOVALS", 2)
    for number in range(5):
        finished_run(store, f"run-{number}", at=number + 1)
    assert pruned(store) == ["run-2", "run-3", "run-4"]


def test_damaged_run_is_kept(store: FileStore) -> None:
    finished_run(store, "run-1", at=1)
    path = store.journal_path("run-1")
    path.write_bytes(path.read_bytes()[:-5])
    assert pruned(store) == ["run-1"]


def test_removed_run_of_a_session_is_no_damage(store: FileStore) -> None:
    finished_run(store, "run-1", session="ada")
    finished_run(store, "run-2", session="ada")
    store.remove("run-1")
    assert [(entry.run, entry.removed) for entry in store.sessions.runs("ada")] == [("run-1", True), ("run-2", False)]
