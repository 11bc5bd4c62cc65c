"""The store on disk: run directories, packages, blobs and locks."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from msgspec.structs import replace

from agentrun.canonical_json import data_hash
from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.facts import RunResumed, ToolStarted
from agentrun.errors import AgentrunError, RequestError, StorageError
from agentrun.journal import storage
from agentrun.journal.storage import SyncMode
from agentrun.spec.project import Project
from agentrun.store.files import FileStore
from agentrun.store.process_lock import ProcessLock
from agentrun.store.sessions import open_session

from ..journal.journals import RUN_STOPPED, WITH_TOOLS, model_asked, replied, run_started
from ..packages import package
from .stored_runs import append

NOBODY = 65534


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def store(project: Project) -> Iterator[FileStore]:
    with FileStore(project) as store:
        yield store


def sealed(**changes: object) -> PackageFile:
    return seal_package(package(**changes))


def error_of(call: object) -> AgentrunError:
    with pytest.raises(AgentrunError) as caught:
        call()  # type: ignore[operator]  # a lambda
    return caught.value


def test_run_is_stored_with_its_package_and_blobs(project: Project, store: FileStore) -> None:
    file = sealed()
    blobs = store.blobs("run-1")
    blob = blobs.put(b"large")
    store.keep("run-1", file)
    journal = store.open("run-1")
    assert ("run-1" in store, store.runs(), blobs.get(blob)) == (False, [], b"large")
    append(journal, *WITH_TOOLS)
    assert ("run-1" in store, store.runs()) == (True, ["run-1"])
    with FileStore(project) as other:
        assert [record.fact for record in other.records("run-1")] == list(WITH_TOOLS)
        assert other.package("run-1", file.fingerprint) == file
        assert other.blobs("run-1").get(blob) == b"large"
    directory = project.root / ".agentrun/runs/run-1"
    assert sorted(os.listdir(directory)) == ["blobs", "head", "inbox", "journal.jsonl", "lock", "package.json"]


def test_store_is_private_to_the_user(project: Project, store: FileStore) -> None:
    store.keep("run-1", sealed())
    store.blobs("run-1").put(b"x")
    append(store.open("run-1"), run_started())
    paths = [project.root / ".agentrun", *(project.root / ".agentrun").rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths if path.name != ".gitignore"}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_run_without_a_first_record_leaves_nothing(project: Project, store: FileStore) -> None:
    store.keep("run-1", sealed())
    store.blobs("run-1").put(b"x")
    store.open("run-1")
    assert error_of(lambda: store.records("run-1")).code == "run.not_found"
    store.close()
    assert not (project.root / ".agentrun/runs").exists()


def test_first_record_that_cannot_be_written_leaves_no_trace_in_its_session(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store.open("run-1"), run_started(session="ada"), RUN_STOPPED)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "MAX_JOURNAL_BYTES", 10)
        assert error_of(lambda: append(store.open("run-2"), run_started(session="ada"))).code == "storage.failed"
    assert [entry.run for entry in store.sessions.runs("ada")] == ["run-1"]
    assert len(open_session(store, "ada")) == 1


def test_existing_run_is_not_started_again(project: Project, store: FileStore) -> None:
    """Another process has created it between the check and the first record."""
    journal = store.open("run-1")
    with FileStore(project) as other:
        append(other.open("run-1"), run_started(), RUN_STOPPED)
    error = error_of(lambda: append(journal, run_started()))
    assert (error.code, error.fields) == ("run.duplicate", {"run": "run-1"})
    assert len(store.records("run-1")) == 2
    assert not store.is_locked("run-1")


def test_package_of_a_resumed_run_is_stored_beside_the_first(project: Project, store: FileStore) -> None:
    first, second = sealed(), sealed(name="other")
    store.keep("run-1", first)
    append(store.open("run-1"), run_started())
    store.close()
    with FileStore(project) as later:
        later.keep("run-1", second)
        append(later.open("run-1"), model_asked())
        assert later.package("run-1", first.fingerprint) == first
        assert later.package("run-1", second.fingerprint) == second
        assert error_of(lambda: later.package("run-1", "sha256:0")).code == "recovery.failed"


def test_damaged_blob_is_not_returned(project: Project, store: FileStore) -> None:
    blobs = store.blobs("run-1")
    blob = blobs.put(b"large")
    append(store.open("run-1"), run_started())
    path = project.root / ".agentrun/runs/run-1/blobs" / blob.removeprefix("sha256:")
    assert path.read_bytes() == b"large"
    path.write_bytes(b"other")
    for name in (blob, data_hash(b"none"), "sha256:../head", "x"):
        with pytest.raises(KeyError):
            blobs.get(name)


@pytest.mark.parametrize("run", ["../x", "a/b", "", ".hidden", "x" * 300, "a\0b"])
def test_id_that_is_not_a_name_is_refused(store: FileStore, run: str) -> None:
    assert run not in store
    assert error_of(lambda: store.records(run)).code == "run.not_found"
    assert error_of(lambda: store.open(run)).code == "storage.failed"
    assert error_of(lambda: store.remove(run)).code == "run.not_found"


# --- owners ----------------------------------------------------------------------------------------------------


def test_run_has_one_owner_across_stores(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started(session="ada"))
    with FileStore(project) as other:
        error = error_of(lambda: other.open("run-1"))
        assert (error.code, error.exit_code) == ("session.busy", 9)
        assert error.fields == {"run": "run-1", "session": "ada"}
        assert (other.is_locked("run-1"), other.is_locked("run-2")) == (True, False)
        store.close()
        assert not other.is_locked("run-1")
        journal = other.open("run-1")
        assert (journal.epoch, journal.seq) == (2, 1)


def test_finished_run_is_not_locked(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started(), RUN_STOPPED)
    with FileStore(project) as other:
        assert not other.is_locked("run-1")
        assert other.open("run-1").records()[-1].fact == RUN_STOPPED
        assert not store.is_locked("run-1")


def test_former_owner_in_the_same_process_cannot_write(store: FileStore) -> None:
    first = store.open("run-1")
    append(first, run_started())
    second = store.open("run-1")
    assert error_of(lambda: append(first, model_asked())).code == "journal.stale_owner"
    append(second, model_asked())
    assert [record.epoch for record in store.records("run-1")] == [1, 2]


def test_lock_of_a_killed_process_is_free(project: Project) -> None:
    code = """if True:
        import sys, time
        from pathlib import Path
        from agentrun.core.facts import Record
        from agentrun.spec.project import Project
        from agentrun.store.files import FileStore
        from tests.journal.journals import run_started
        journal = FileStore(Project(Path(sys.argv[1]))).open("run-1")
        journal.append(Record(1, 0, 1, journal.head, run_started()))
        print("ready", flush=True)
        time.sleep(60)
    """
    child = subprocess.Popen([sys.executable, "-c", code, str(project.root)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        with FileStore(project) as store:
            assert error_of(lambda: store.open("run-1")).code == "session.busy"
            child.kill()
            child.wait()
            assert store.open("run-1").epoch == 2
    finally:
        child.kill()
        child.communicate()


def test_stopped_owner_keeps_its_lock_and_is_fenced_out_if_it_lost_it(project: Project) -> None:
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from agentrun.errors import StorageError
        from agentrun.spec.project import Project
        from agentrun.store.files import FileStore
        from tests.journal.journals import model_asked, run_started
        from tests.store.stored_runs import append
        journal = FileStore(Project(Path(sys.argv[1]))).open("run-1")
        append(journal, run_started())
        os.kill(os.getpid(), signal.SIGSTOP)
        for _ in range(2):
            try:
                append(journal, model_asked())
            except StorageError as error:
                print(error.code)
    """
    child = subprocess.Popen([sys.executable, "-c", code, str(project.root)], stdout=subprocess.PIPE)
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with FileStore(project) as store:
            assert error_of(lambda: store.open("run-1")).code == "session.busy"
            (store.run_directory("run-1") / "lock").unlink()
            append(store.open("run-1"), RunResumed("sha256:1"), model_asked())
            child.send_signal(signal.SIGCONT)
            out, _ = child.communicate()
            assert out.split() == [b"journal.stale_owner", b"journal.poisoned"]
            assert [record.epoch for record in store.records("run-1")] == [1, 2, 2]
    finally:
        child.kill()
        child.wait()


def test_lock_on_a_removed_file_does_not_count(
    project: Project, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session or a run can be removed between the moments when its lock file is opened and locked."""
    path = project.store_directory / "sessions/ada/lock"
    lock, flock = ProcessLock(project.store_tree, path), fcntl.flock
    descriptors: list[int] = []

    def remove_first(descriptor: int, how: int) -> None:
        if not descriptors:
            path.unlink()
        descriptors.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    lock.acquire("busy")
    assert (len(descriptors), path.exists()) == (2, True)
    with FileStore(project) as other:
        assert error_of(lambda: other.lock_session("ada")).code == "session.busy"
    lock.release()
    store.lock_session("ada")


def test_sub_agent_uses_lock_and_blobs_of_its_root(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started())
    append(store.open("run-1.c1.0"), run_started(run="run-1.c1.0"))
    blob = store.blobs("run-1.c1.0").put(b"x")
    assert store.blobs("run-1").get(blob) == b"x"
    assert sorted(os.listdir(project.root / ".agentrun/runs/run-1.c1.0")) == ["head", "inbox", "journal.jsonl"]
    with FileStore(project) as other:
        assert error_of(lambda: other.open("run-1.c1.0")).code == "session.busy"


# --- removing --------------------------------------------------------------------------------------------------


def test_remove_takes_the_run_with_its_sub_agents(project: Project, store: FileStore) -> None:
    for run in ("run-1", "run-1.c1.0", "run-10", "run-10.c1.0"):
        append(store.open(run), run_started(run=run))
    with FileStore(project) as other:
        assert error_of(lambda: other.remove("run-1")).code == "session.busy"
    store.close()
    outside = project.root / "outside"
    outside.write_bytes(b"precious")
    (project.root / ".agentrun/runs/run-1/inbox/link").symlink_to(outside)
    store.remove("run-1")
    assert store.runs() == ["run-10", "run-10.c1.0"]
    assert outside.read_bytes() == b"precious"
    assert error_of(lambda: store.remove("run-1")).code == "run.not_found"


# --- damage ----------------------------------------------------------------------------------------------------


def test_torn_last_line_is_kept_aside_and_cut_off(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started(), model_asked())
    store.close()
    directory = project.root / ".agentrun/runs/run-1"
    path = directory / "journal.jsonl"
    good = path.read_bytes()
    path.write_bytes(good + b'{"at":12')
    assert len(store.records("run-1")) == 2
    journal = store.open("run-1")
    assert (journal.torn, journal.seq, journal.epoch) == (8, 2, 2)
    assert (path.read_bytes(), (directory / "torn-3").read_bytes()) == (good, b'{"at":12')


def test_tail_cut_at_a_record_boundary_is_found(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), *WITH_TOOLS)
    path = project.root / ".agentrun/runs/run-1/journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        error = error_of(lambda: store.records("run-1"))
        assert (error.code, error.fields) == ("journal.truncated", {"seq": count, "head": len(lines)})
        assert error_of(lambda: store.open("run-1")).code == "journal.truncated"
    (path.parent / "head").unlink()
    assert len(store.records("run-1")) == count, "the head is what finds it"


def test_replaced_last_record_is_found(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started(), model_asked())
    path = project.root / ".agentrun/runs/run-1/journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"reserved":100', b'"reserved":101'))
    error = error_of(lambda: store.records("run-1"))
    assert (error.code, error.fields) == ("journal.damaged", {"seq": 2})


@pytest.mark.parametrize("head", [b"x", b"00000001 sha256:" + b"0" * 63 + b"\n", b"0" * 200])
def test_damaged_head_is_reported(project: Project, store: FileStore, head: bytes) -> None:
    append(store.open("run-1"), run_started())
    (project.root / ".agentrun/runs/run-1/head").write_bytes(head)
    assert error_of(lambda: store.records("run-1")).code == "journal.damaged"


def test_vanished_directory_stops_the_run_before_the_next_effect(project: Project, store: FileStore) -> None:
    journal = store.open("run-1")
    append(journal, run_started())
    (project.root / ".agentrun/runs/run-1").rename(project.root / "moved")
    error = error_of(lambda: append(journal, model_asked()))
    assert (error.code, error.exit_code) == ("storage.failed", 7)
    assert error_of(lambda: append(journal, model_asked())).code == "journal.poisoned"


@contextmanager
def directory_of_another_user() -> Iterator[Path]:
    """A directory and a user for whom its mode counts. It does not count for root."""
    with TemporaryDirectory() as name:
        if os.geteuid():
            yield Path(name)
            return
        os.chown(name, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("sync", get_args(SyncMode))
def test_sub_agent_stops_before_its_next_effect_if_the_directory_of_its_root_vanishes(
    project: Project, sync: SyncMode
) -> None:
    with FileStore(project, sync=sync) as store:
        append(store.open("run-1"), run_started())
        child = store.open("run-1.c1.0")
        append(child, run_started(run="run-1.c1.0"), model_asked())
        store.run_directory("run-1").rename(project.root / "moved")
        append(child, replied("Hello"))
        assert error_of(lambda: append(child, model_asked())).code == "storage.failed"


def test_read_only_directory_stops_the_run_before_the_next_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    with directory_of_another_user() as folder, FileStore(Project(folder)) as store:
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        journal = store.open("run-1")
        append(journal, run_started(), model_asked())
        store.run_directory("run-1").chmod(0o500)
        append(journal, replied("", "search"))
        error = error_of(lambda: append(journal, ToolStarted("c1.0", "search", "k")))
        assert (error.code, "its directory is not writable" in error.message) == ("storage.failed", True)
        store.close()
        store.run_directory("run-1").chmod(0o700)
        assert len(store.records("run-1")) == 3
        append(store.open("run-1"), ToolStarted("c1.0", "search", "k"))


def test_store_that_another_user_owns_cannot_be_written() -> None:
    with directory_of_another_user() as folder:
        (folder / ".agentrun").mkdir(0o500)
        if os.access(folder / ".agentrun", os.W_OK, effective_ids=True):
            pytest.skip("the mode of a directory does not count here")
        error = error_of(lambda: FileStore(Project(folder)).check_writable())
        assert (error.code, "AGENTRUN_STORE" in str(error.hint)) == ("storage.failed", True)


def test_writer_that_lost_its_file_to_another_is_refused(project: Project, store: FileStore) -> None:
    journal = store.open("run-1")
    append(journal, run_started())
    path = project.root / ".agentrun/runs/run-1/journal.jsonl"
    with path.open("ab") as file:
        file.write(b"x")
    assert error_of(lambda: append(journal, replace(RUN_STOPPED))).code == "journal.stale_owner"
    assert path.read_bytes().endswith(b"\nx")


def test_linked_run_directory_is_not_followed(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started(), RUN_STOPPED)
    runs = project.root / ".agentrun/runs"
    (runs / "run-1").rename(project.root / "outside")
    (runs / "run-1").symlink_to(project.root / "outside")
    error = error_of(lambda: store.records("run-1"))
    assert (error.code, "symbolic link" in error.message) == ("storage.failed", True)


def test_store_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / ".agentrun").write_bytes(b"not a directory")
    error = error_of(lambda: FileStore(Project(tmp_path)).check_writable())
    assert (error.code, isinstance(error, StorageError)) == ("storage.failed", True)
    assert "AGENTRUN_STORE" in str(error.hint)


def test_busy_error_is_a_request_error(project: Project, store: FileStore) -> None:
    append(store.open("run-1"), run_started())
    with FileStore(project) as other, pytest.raises(RequestError):
        other.open("run-1")
