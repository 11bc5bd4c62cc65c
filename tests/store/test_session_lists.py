"""The lists of the runs of sessions: forks, removals, and lists that are lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import EarlierRuns, RunStarted
from agentrun.errors import AgentrunError
from agentrun.spec.project import Project
from agentrun.store import retention, sessions
from agentrun.store.files import FileStore
from agentrun.store.retention import prune_store
from agentrun.store.session_lists import SessionEntry
from agentrun.store.sessions import SessionStart, check_runs, open_session

from ..journal.journals import run_started
from .stored_runs import append, finished_run
from .test_retention import DAY, NOW


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(Project(tmp_path), sync="process") as store:
        yield store


def talk(store: FileStore, session: str, *runs: str, after: str | None = None, count: int = 0, at: int = 1000) -> None:
    """Finished runs of a session. `after`: the run before the first, in another session; `count`: its number."""
    for number, run in enumerate(runs):
        before = runs[number - 1] if number else after
        named = {} if before is None else {"predecessor": before}
        finished_run(store, run, session=session, earlier=EarlierRuns(runs=count + number), at=at, **named)


def listed(store: FileStore, session: str) -> list[str]:
    return [entry.run + " removed" * entry.removed for entry in store.sessions.runs(session)]


def fork(store: FileStore, session: str, run: str, new: str) -> None:
    store.sessions.fork(session, run, new)
    store.sessions.unlock(new)


def lose_list(store: FileStore, session: str) -> None:
    (store.sessions.directory(session) / "runs").unlink()


def code_of(store: FileStore, session: str) -> str:
    with pytest.raises(AgentrunError) as caught:
        check_runs(store, session, store.sessions.runs(session))
    return caught.value.code


# --- lists that are lost ---------------------------------------------------------------------------------------


def test_lost_list_is_made_again_in_the_order_of_the_runs(store: FileStore) -> None:
    """The clock was set back between the runs."""
    talk(store, "ada", "run-9", at=3000)
    talk(store, "ada", "run-5", after="run-9", count=1, at=2000)
    talk(store, "ada", "run-7", after="run-5", count=2, at=1000)
    lose_list(store, "ada")
    assert listed(store, "ada") == ["run-9", "run-5", "run-7"]
    assert len(check_runs(store, "ada", store.sessions.runs("ada"))) == 3
    talk(store, "ada", "run-8", after="run-7", count=3)
    assert (store.sessions.directory("ada") / "runs").read_text() == "run-9\nrun-5\nrun-7\nrun-8\n"


def test_lost_list_of_a_fork_is_made_again_with_the_runs_of_the_other_session(store: FileStore) -> None:
    talk(store, "ada", "run-1", "run-2", "run-3")
    fork(store, "ada", "run-2", "eve")
    talk(store, "eve", "run-4", "run-5", after="run-2", count=2)
    for session in ("ada", "eve"):
        lose_list(store, session)
    assert listed(store, "eve") == ["run-1", "run-2", "run-4", "run-5"]
    assert listed(store, "ada") == ["run-1", "run-2", "run-3"]


def test_fork_that_loses_its_list_before_its_first_run_does_not_exist(store: FileStore) -> None:
    talk(store, "ada", "run-1")
    fork(store, "ada", "run-1", "eve")
    lose_list(store, "eve")
    assert ("eve" in store.sessions, "ada" in store.sessions) == (False, True)


def test_runs_of_earlier_releases_name_no_predecessor(store: FileStore) -> None:
    finished_run(store, "run-2", session="ada", at=1)
    finished_run(store, "run-1", session="ada", earlier=EarlierRuns(runs=1), at=2)
    assert len(check_runs(store, "ada", store.sessions.runs("ada"))) == 2
    talk(store, "ada", "run-3", after="run-1", count=2)
    lose_list(store, "ada")
    assert listed(store, "ada") == ["run-2", "run-1", "run-3"]


@pytest.mark.parametrize("text", ["run-1\nrun-3\n", "run-2\nrun-1\nrun-3\n", "run-1\nrun-3\nrun-2\n", "run-3\n"])
def test_list_that_does_not_agree_with_the_predecessors_stops_the_session(store: FileStore, text: str) -> None:
    talk(store, "ada", "run-1", "run-2", "run-3")
    path = store.sessions.directory("ada") / "runs"
    path.write_text(text)
    assert code_of(store, "ada") == "recovery.failed"
    path.write_text("run-1\nrun-2\nrun-3\n")
    assert len(check_runs(store, "ada", store.sessions.runs("ada"))) == 3, "the twin"


def test_lines_that_are_no_run_ids_are_ignored(store: FileStore) -> None:
    talk(store, "ada", "run-1")
    (store.sessions.directory("ada") / "runs").write_bytes(b"../../x\nrun-1\n\xff\xfe\n/etc removed\nrun-1 gone\n")
    assert store.sessions.runs("ada") == (SessionEntry("run-1"),)


def test_predecessor_that_is_no_run_id_is_not_followed(store: FileStore) -> None:
    finished_run(store, "run-1", session="ada", predecessor="../../../etc/passwd")
    lose_list(store, "ada")
    assert listed(store, "ada")[-1] == "run-1"
    assert code_of(store, "ada") == "recovery.failed"


def test_predecessors_in_a_circle_end(store: FileStore) -> None:
    finished_run(store, "run-1", session="bob", predecessor="run-2")
    finished_run(store, "run-2", session="bob", predecessor="run-1")
    finished_run(store, "run-3", session="ada", predecessor="run-2")
    for session in ("ada", "bob"):
        lose_list(store, session)
    assert sorted(listed(store, "ada")) == ["run-1", "run-2", "run-3"]


# --- removals --------------------------------------------------------------------------------------------------


def test_removed_run_is_marked_in_all_its_sessions(store: FileStore) -> None:
    talk(store, "ada", "run-1", "run-2", "run-3")
    fork(store, "ada", "run-2", "eve")
    lose_list(store, "ada")
    store.remove("run-1")
    assert listed(store, "ada") == ["run-1 removed", "run-2", "run-3"]
    assert listed(store, "eve") == ["run-1 removed", "run-2"]
    for session, count in (("ada", 2), ("eve", 1)):
        assert len(check_runs(store, session, store.sessions.runs(session))) == count


def test_removed_run_that_never_began_is_no_damage(store: FileStore) -> None:
    """Its process was killed between the list and the first record."""
    talk(store, "ada", "run-1")
    store.run_directory("run-2").mkdir()
    store.lock_session("ada")
    store.sessions.add("ada", "run-2", sync=False)
    assert len(check_runs(store, "ada", store.sessions.runs("ada"))) == 1
    store.remove("run-2")
    assert listed(store, "ada") == ["run-1", "run-2 removed"]
    talk(store, "ada", "run-3", after="run-1", count=1)
    assert len(check_runs(store, "ada", store.sessions.runs("ada"))) == 2


def test_session_that_shares_runs_loses_only_its_own(store: FileStore) -> None:
    talk(store, "ada", "run-1", "run-2", "run-3")
    fork(store, "ada", "run-2", "eve")
    assert store.remove_session("ada") == ["run-3"]
    assert ("ada" in store.sessions, listed(store, "eve")) == (False, ["run-1", "run-2"])
    with pytest.raises(AgentrunError, match=r"session\.not_found"):
        open_session(store, "ada", "continue")
    assert open_session(store, "ada", "new") == (), "nothing of the former session"
    talk(store, "ada", "run-4")
    assert listed(store, "ada") == ["run-4"]
    assert store.remove_session("eve") == ["run-1", "run-2"]


def test_lock_of_a_removed_session_is_released(store: FileStore, tmp_path: Path) -> None:
    talk(store, "ada", "run-1")
    store.remove_session("ada")
    with FileStore(Project(tmp_path)) as other:
        other.lock_session("ada")
        with pytest.raises(AgentrunError, match=r"session\.busy"):
            store.lock_session("ada")


def test_session_without_a_run_leaves_no_directory(store: FileStore) -> None:
    store.lock_session("ada")
    store.close()
    assert os.listdir(store.sessions.directory("ada").parent) == []
    talk(store, "bob", "run-1")
    lose_list(store, "bob")
    store.lock_session("bob")
    store.close()
    assert listed(store, "bob") == ["run-1"], "only its list is lost"


# --- how long they are kept ------------------------------------------------------------------------------------


def test_fork_is_kept_90_days_with_the_runs_that_it_shares(store: FileStore) -> None:
    talk(store, "ada", "run-1", "run-2", at=1)
    fork(store, "ada", "run-1", "eve")
    set_age(store, "eve", 90 * DAY - 2000)
    prune_store(store, NOW)
    assert (store.runs(), listed(store, "eve")) == (["run-1"], ["run-1"])
    set_age(store, "eve", 90 * DAY + 2000)
    prune_store(store, NOW)
    assert (store.runs(), store.sessions.names()) == ([], [])


def test_fork_with_runs_of_its_own_is_kept_90_days_after_the_last(store: FileStore) -> None:
    talk(store, "ada", "run-1", at=1)
    fork(store, "ada", "run-1", "eve")
    talk(store, "eve", "run-2", after="run-1", count=1, at=NOW - 90 * DAY)
    set_age(store, "eve", 1000 * DAY)
    prune_store(store, NOW)
    assert store.runs() == ["run-1", "run-2"]


def test_session_of_many_runs_is_removed_too(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_REMOVALS", 2)
    talk(store, "ada", "run-1", "run-2", "run-3")
    talk(store, "bob", "run-4")
    prune_store(store, NOW)
    assert store.runs() == ["run-4"], "one session at a time"
    prune_store(store, NOW)
    assert store.runs() == []


def test_session_whose_runs_were_all_removed_is_removed(store: FileStore) -> None:
    talk(store, "ada", "run-1")
    store.remove("run-1")
    set_age(store, "ada", 90 * DAY - 2000)
    prune_store(store, NOW)
    assert store.sessions.names() == ["ada"]
    set_age(store, "ada", 90 * DAY + 2000)
    prune_store(store, NOW)
    assert store.sessions.names() == []


def set_age(store: FileStore, session: str, age: int) -> None:
    os.utime(store.sessions.directory(session) / "runs", ((NOW - age) / 1000,) * 2)


# --- open and fork ---------------------------------------------------------------------------------------------


def test_first_record_that_is_not_written_leaves_no_session(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("agentrun.journal.storage.append_or_cut", refuse)
        with pytest.raises(AgentrunError):
            append(store.open("run-1"), run_started(session="ada"))
    store.close()
    assert store.sessions.names() == []
    assert open_session(store, "ada", "new") == ()


def test_fork_in_the_moment_when_a_process_begins_the_session_is_busy(store: FileStore, tmp_path: Path) -> None:
    talk(store, "ada", "run-1")
    with FileStore(Project(tmp_path)) as other:
        assert open_session(other, "eve", "new") == ()
        with pytest.raises(AgentrunError, match=r"session\.busy"):
            store.sessions.fork("ada", "run-1", "eve")
    fork(store, "ada", "run-1", "eve")
    with FileStore(Project(tmp_path)) as other:
        with pytest.raises(AgentrunError, match=r"session\.duplicate"):
            open_session(other, "eve", "new")
        assert len(open_session(other, "eve", "continue")) == 1
    first = store.first_record("run-1")
    assert first is not None
    assert isinstance(first.fact, RunStarted)
    assert first.fact.session == "ada", "where it comes from"


@pytest.mark.parametrize(("start", "code"), [("new", "session.duplicate"), ("continue", "session.not_found")])
def test_session_that_changes_in_the_same_moment(tmp_path: Path, start: SessionStart, code: str) -> None:
    """Another process begins or removes the session before this one has its lock."""

    class SlowStore(FileStore):
        def lock_session(self, name: str, run: str | None = None) -> None:
            with FileStore(self.project) as faster:
                if start == "new":
                    talk(faster, name, "run-1")
                else:
                    faster.remove_session(name)
            super().lock_session(name, run)

    with FileStore(Project(tmp_path)) as store:
        if start == "continue":
            talk(store, "ada", "run-1")
    with SlowStore(Project(tmp_path)) as store, pytest.raises(AgentrunError) as caught:
        open_session(store, "ada", start)
    assert caught.value.code == code


# --- runs that were checked before -------------------------------------------------------------------------------


@pytest.fixture
def reads(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose journals are read."""
    found: list[str] = []
    read = store.records

    def note(run: str) -> Any:
        found.append(run)
        return read(run)

    monkeypatch.setattr(sessions, "CLOCK_TICK_NS", 0)
    monkeypatch.setattr(store, "records", note)
    return found


def check(store: FileStore, session: str = "ada") -> int:
    return len(check_runs(store, session, store.sessions.runs(session)))


def test_finished_run_is_read_once(store: FileStore, reads: list[str]) -> None:
    talk(store, "ada", "run-1", "run-2")
    assert (check(store), reads) == (2, ["run-1", "run-2"])
    talk(store, "ada", "run-3", after="run-2", count=2)
    assert (check(store), reads) == (3, ["run-1", "run-2", "run-3"])
    fork(store, "ada", "run-2", "eve")
    assert check_runs(store, "ada", store.sessions.runs("ada")[:1])[0].run == "run-1"
    assert (check(store), len(reads)) == (3, 3)
    assert (check(store, "eve"), reads[3:]) == (2, ["run-1", "run-2"]), "a fork has its own file"


def test_run_that_is_not_finished_is_read_every_time(store: FileStore, reads: list[str]) -> None:
    append(store.open("run-1"), run_started(run="run-1", session="ada"))
    assert (check(store), check(store), reads) == (1, 1, ["run-1", "run-1"])
    assert not check_runs(store, "ada", store.sessions.runs("ada"))[0].is_finished


def test_run_that_changed_a_moment_ago_is_read_again(store: FileStore, reads: list[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(sessions, "CLOCK_TICK_NS", 10**18)
    talk(store, "ada", "run-1")
    assert (check(store), check(store), reads) == (1, 1, ["run-1", "run-1"])


def test_journal_that_was_changed_after_its_check_stops_the_session(store: FileStore, reads: list[str]) -> None:
    talk(store, "ada", "run-1", "run-2")
    assert check(store) == 2
    path = store.journal_path("run-1")
    status, data = path.stat(), path.read_bytes()
    path.write_bytes(data.replace(b'"seq":1', b'"seq":7'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (code_of(store, "ada"), reads[2:]) == ("journal.damaged", ["run-1"])
    path.write_bytes(data)
    assert check(store) == 2, "the twin"
    path.unlink()
    path.parent.rename(path.parent.with_name("run-9"))
    assert code_of(store, "ada") == "recovery.failed"


@pytest.mark.parametrize("text", ["", "{", "[]", "[[1]]", '[["run-1", "x", null, null, null, true, [1, 2]]]'])
def test_list_of_checked_runs_that_is_damaged_is_made_again(store: FileStore, reads: list[str], text: str) -> None:
    talk(store, "ada", "run-1")
    path = store.sessions.directory("ada") / "checked"
    assert (check(store), path.stat().st_mode & 0o777) == (1, 0o600)
    before = path.read_bytes()
    path.write_text(text)
    assert (check(store), reads, path.read_bytes()) == (1, ["run-1", "run-1"], before)
