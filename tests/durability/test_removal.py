"""A process that dies while it removes runs leaves whole runs, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import RunStopped
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.sessions import open_session
from agentrun.testing.doubles import Crash

from ..journal.journals import RUN_STOPPED, run_started
from ..packages import package
from ..store.stored_runs import append
from .crash_trial import crash
from .store_operations import CrashPoint, StoreOperations

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="operations are found by their paths in /proc")

PACKAGE = seal_package(package())
FAMILY = ("run-1", "run-1.c1.0", "run-2")


def make_store(folder: Path) -> FileStore:
    folder.mkdir()
    store = FileStore(Project(folder))
    for run in FAMILY:
        store.keep(run, PACKAGE)
        store.blobs(run).put(b"large")
        session = {} if "." in run else {"session": "ada"}
        append(store.open(run), run_started(run=run, **session), RUN_STOPPED)
    return store


def die_everywhere(folder: Path, remove: Callable[[FileStore], None]) -> list[FileStore]:
    """Stores in each of which the removal died at another operation."""
    stores: list[FileStore] = []
    while True:
        store = make_store(folder / str(len(stores)))
        point = CrashPoint(len(stores) + 1)
        with StoreOperations([store.project.store_directory], point, crash, syncs=False) as operations:
            try:
                remove(store)
            except Crash:
                stores.append(FileStore(store.project))
            else:
                return stores
            finally:
                operations.close_files()


@pytest.mark.parametrize(
    "remove", [lambda store: store.remove("run-1"), lambda store: store.remove_session("ada")], ids=["run", "session"]
)
def test_removal_that_is_interrupted_leaves_whole_runs(tmp_path: Path, remove: Callable[[FileStore], None]) -> None:
    stores = die_everywhere(tmp_path, remove)
    assert len(stores) > 12
    for store in stores:
        for run in ("run-1", "run-2"):
            if run in store:
                assert isinstance(store.records(run)[-1].fact, RunStopped)
                assert store.package(run, PACKAGE.fingerprint) == PACKAGE
                assert store.blobs(run).get(store.blobs(run).put(b"large")) == b"large"
        assert len(open_session(store, "ada")) <= sum(run in store for run in ("run-1", "run-2"))
        store.close()
        for run in ("run-1", "run-2"):
            if store.run_directory(run).exists():
                store.remove(run)
        assert store.runs() == []
