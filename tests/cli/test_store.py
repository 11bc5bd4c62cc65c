"""Stored runs, through the real command: what is stored, where, and what happens if the store fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrun.core.facts import ApprovalAsked, Ruled, RunStarted, RunStopped
from agentrun.core.messages import File
from agentrun.spec.project import Project as ProjectFiles
from agentrun.store.files import FileStore

from ..journal.journals import model_asked, replied, run_started
from ..store.stored_runs import append
from .command import SCRIPT, agentrun
from .shop_project import Project
from .test_live import SLOW_STORY, wait_until

ANSWER = 'agentrun: "1"\nturns: [{text: Hello.}, {text: Again.}]\n'
TWO_CALLS = """\
agentrun: "1"
turns:
  - calls: [{tool: look, args: {order: "1"}}]
  - calls: [{tool: refund, args: {order: "1", amount: 1.0}}]
  - text: Done.
"""


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def stored_runs(shop: Project) -> list[str]:
    return FileStore(ProjectFiles(shop.root)).root_runs()


def facts(path: Path) -> list[str]:
    return [json.loads(line)["fact"]["type"] for line in path.read_bytes().splitlines()]


def test_live_run_is_stored_with_package_and_blobs(shop: Project) -> None:
    (shop.root / "note.txt").write_text("a note", encoding="utf-8")
    with shop.provider(ANSWER) as (_, environment):
        done = shop.run("Hi", "--attach", "note.txt", **environment)
        again = shop.run("Hello", **environment)
    said = "runs are stored in .agentrun: finished ones for 30 days (1,000 at most), sessions for 90 days"
    assert (done.code, said in done.err, said in again.err) == (0, True, False), done.err
    store, attached = FileStore(ProjectFiles(shop.root)), None
    assert len(store.root_runs()) == 2
    for run in store.root_runs():
        started, *_, stopped = (record.fact for record in store.records(run))
        assert isinstance(started, RunStarted)
        assert isinstance(stopped, RunStopped)
        assert store.package(run, started.package).agent.name == "shop"
        for part in started.input.parts if started.input else ():
            if isinstance(part, File):
                assert store.blobs(run).get(part.blob) == b"a note"
                attached = run
    assert attached
    assert "store: runs are stored in .agentrun: finished ones for 30 days" in agentrun("doctor", cwd=shop.root).out


def test_recorded_run_is_stored_and_replays_and_tests_are_not(shop: Project) -> None:
    shop.record()
    assert len(stored_runs(shop)) == 1
    assert shop.run().code == 0
    shop.expect_outcome("completed")
    assert agentrun("test", cwd=shop.root).code == 0
    assert len(stored_runs(shop)) == 1
    with shop.provider() as (_, environment):
        assert shop.run("--live-tools", "--approve", "all", **environment).code == 0
    assert len(stored_runs(shop)) == 2


def test_refused_run_leaves_no_directory(shop: Project) -> None:
    with shop.provider(ANSWER) as (_, environment):
        assert shop.run("", **environment).code == 2
    assert stored_runs(shop) == []


def test_variable_turns_the_store_off(shop: Project) -> None:
    with shop.provider(ANSWER) as (_, environment):
        done = shop.run("Hi", AGENTRUN_STORE="none", **environment)
        refused = shop.run("Hi", "--new-session", "ada", AGENTRUN_STORE="none", **environment)
    assert (done.code, "runs are stored" in done.err) == (0, False)
    assert not (shop.root / ".agentrun").exists()
    assert (refused.code, "a session needs a store, but AGENTRUN_STORE is none" in refused.err) == (2, True)
    assert "note  store: runs are not stored" in agentrun("doctor", cwd=shop.root, AGENTRUN_STORE="none").out


def test_variable_names_another_directory(shop: Project, tmp_path: Path) -> None:
    with shop.provider(ANSWER) as (_, environment):
        assert shop.run("Hi", AGENTRUN_STORE=str(tmp_path / "x/store"), **environment).code == 0
    assert len(list((tmp_path / "x/store/runs").iterdir())) == 1
    assert not (shop.root / ".agentrun").exists()


def test_former_variable_is_an_error_with_the_new_name(shop: Project) -> None:
    done = shop.run("Hi", AGENTRUN_DATA="x")
    assert (done.code, "set AGENTRUN_STORE instead" in done.err) == (2, True)
    doctor = agentrun("doctor", cwd=shop.root, AGENTRUN_DATA="x")
    assert (doctor.code, "WRONG AGENTRUN_DATA: no longer a setting" in doctor.out) == (2, True)


def test_invalid_sync_mode_is_an_error_with_the_known_ones(shop: Project) -> None:
    with shop.provider(ANSWER) as (server, environment):
        done = shop.run("Hi", AGENTRUN_SYNC="always", **environment)
        assert (done.code, "set it to process, effects or full" in done.err, server.requests) == (2, True, [])
        assert shop.run("Hi", AGENTRUN_SYNC="full", **environment).code == 0


# --- a store that fails ------------------------------------------------------------------------------------------


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system in memory."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def test_store_that_is_read_only_is_refused_before_the_first_request(shop: Project) -> None:
    with mounted(shop.root / ".agentrun", "ro"), shop.provider(ANSWER) as (server, environment):
        done = shop.run("Hi", **environment)
        assert (done.code, "storage.failed" in done.err, server.requests) == (7, True, []), done.err
        assert "set AGENTRUN_STORE to a directory that can be written, or to none" in done.err
        assert shop.run("Hi", AGENTRUN_STORE="none", **environment).code == 0


def test_store_without_space_is_refused_before_the_first_request(shop: Project) -> None:
    with mounted(shop.root / ".agentrun", "size=4k"), shop.provider(ANSWER) as (server, environment):
        done = shop.run("Hi", **environment)
        assert (done.code, "No space left" in done.err, server.requests) == (7, True, []), done.err
        assert stored_runs(shop) == []


def test_full_disk_stops_the_run_and_it_goes_on_with_space(shop: Project) -> None:
    """The journal ends with a whole record, whatever part of the next one fitted."""
    long = ANSWER.replace("Hello.", "x" * 60_000)
    store = shop.root / ".agentrun"
    with mounted(store, "size=72k"), shop.provider(long) as (_, environment):
        done = shop.run("Hi", **environment)
        assert (done.code, "storage.failed: the journal cannot be written: No space left" in done.err) == (7, True)
        remount(store, "size=1m")
        (run,) = stored_runs(shop)
        with FileStore(ProjectFiles(shop.root)) as files:
            assert facts(files.journal_path(run)) == ["run_started", "model_asked"]
            assert files.open(run).torn == 0


BREAK = """
def look(order: str) -> str:
    '''Finds an order.'''
    import os, shutil, subprocess
    from pathlib import Path
    (run,) = Path(".agentrun/runs").iterdir()
    {break_it}
    return "late"
"""


@pytest.mark.parametrize("mode", ["process", "effects", "full"])
@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        ("shutil.rmtree(run)", ""),
        ("run.rename('moved')", "No such file or directory"),
        ("shutil.copytree(run, 'copy'); run.rename('moved'); Path('copy').rename(run)", "was moved or replaced"),
        ("os.truncate(run / 'journal.jsonl', 100)", "changed by another process"),
    ],
    ids=["removed", "moved", "replaced", "changed"],
)
def test_run_directory_that_vanishes_stops_the_run_before_the_next_effect(
    shop: Project, mode: str, break_it: str, why: str
) -> None:
    desk = (shop.root / "desk.py").read_text(encoding="utf-8").replace("def look(", "def former_look(")
    (shop.root / "desk.py").write_text(desk + BREAK.format(break_it=break_it), encoding="utf-8")
    with shop.provider(TWO_CALLS) as (server, environment):
        done = shop.run("--approve", "all", **environment, AGENTRUN_SYNC=mode)
        assert (done.code, why in done.err, len(server.requests)) == (7, True, 1), done.err
    assert shop.traces() == []
    shop.edit("desk.py", break_it, "pass")
    shutil.rmtree(shop.root / ".agentrun")
    with shop.provider(TWO_CALLS) as (_, environment):
        assert shop.run("--approve", "all", **environment).code == 0, "the twin: without the fault it runs"
    assert shop.traces() == ["refund 1 1"]


# --- journals that --journal would overwrite --------------------------------------------------------------------


@pytest.mark.parametrize("store", [".agentrun", "none"])
def test_journal_of_an_unfinished_run_is_not_overwritten(shop: Project, store: str) -> None:
    command = [SCRIPT, "shop.yaml", "--journal", "run.jsonl"]
    journal = shop.root / "run.jsonl"
    with shop.provider(SLOW_STORY) as (server, environment):
        where = {"PATH": os.environ["PATH"], "AGENTRUN_STORE": store, **environment}
        killed = subprocess.Popen(command, cwd=shop.root, env=where, stderr=subprocess.DEVNULL)
        wait_until(lambda: bool(server.requests))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    before = journal.read_bytes()
    assert facts(journal) == ["run_started", "model_asked"]
    with shop.provider() as (server, environment):
        done = shop.run("--journal", "run.jsonl", "--approve", "all", **environment)
        assert (done.code, "run.invalid_state" in done.err, server.requests) == (2, True, []), done.err
        assert "which is not finished, and is not overwritten" in done.err
        assert journal.read_bytes() == before
        journal.write_bytes(before[:-3])
        assert shop.run("--journal", "run.jsonl", **environment).code == 2, "a torn one is evidence too"
        journal.unlink()
        assert shop.run("--journal", "run.jsonl", "--approve", "all", **environment).code == 0
        assert shop.run("--journal", "run.jsonl", "--approve", "all", **environment).code == 0, "finished: replaced"


# --- whose store it is ------------------------------------------------------------------------------------------


def test_run_in_a_store_that_is_not_trusted_says_that_it_cannot_be_resumed(shop: Project) -> None:
    with shop.provider(ANSWER) as (_, environment):
        assert "not trusted" not in shop.run("Hi", **environment).err
        assert "not trusted" not in shop.run("Hi", **environment).err
        (shop.root / ".agentrun").chmod(0o755)
        done = shop.run("Hi", **environment)
    notice = "the store .agentrun is not trusted: other users can read or write it; this run cannot be resumed\n"
    assert (done.code, f"{notice}  → agentrun store trust\n" in done.err) == (0, True), done.err


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_forged_store_of_a_clone_is_refused_until_it_is_trusted(shop: Project, tmp_path: Path) -> None:
    with FileStore(ProjectFiles(shop.root)) as store:
        journal = store.open("run-1")
        question = (
            Ruled("c1.0", "tool_call", "ask", ("money",)),
            ApprovalAsked("c1.0", "q", "g", "refund", ("money",)),
        )
        append(journal, run_started(session="ada"), model_asked(), replied("", "refund"), *question)
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-f", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=shop.root, check=True)
    subprocess.run(["git", "clone", "-q", str(shop.root), str(tmp_path / "clone")], check=True)
    clone = tmp_path / "clone"
    home = str(tmp_path / "home")
    with shop.provider(ANSWER) as (server, environment):
        done = agentrun("shop.yaml", "Hi", "--session", "ada", cwd=clone, **{"HOME": home, **environment})  # type: ignore[arg-type]  # only texts
        assert (done.code, "storage.untrusted" in done.err, server.requests) == (7, True, []), done.err
    shown = agentrun("store", cwd=clone, HOME=home).out
    assert ".agentrun, not trusted: it is under version control" in shown
    assert "1 run, 1 not finished; 1 session" in shown
    assert "waits for an approval of refund (c1.0)" in shown
    assert agentrun("store", "trust", "--yes", cwd=clone, HOME=home).code == 7
    subprocess.run(["git", "rm", "-r", "-q", "--cached", ".agentrun"], cwd=clone, check=True)
    no_answer = agentrun("store", "trust", cwd=clone, HOME=home)
    assert (no_answer.code, "add --yes" in no_answer.err) == (2, True)
    assert "waits for an approval of refund" in no_answer.out
    done = agentrun("store", "trust", "--yes", cwd=clone, HOME=home)
    assert (done.code, done.err.endswith("the store is trusted\n")) == (0, True), done.err
    about = agentrun("store", "--json", cwd=clone, HOME=home).lines()[0]["store"]
    assert (about["trusted"], about["reason"], about["runs"]) == (True, None, 1)
    assert agentrun("store", "trust", cwd=clone, HOME=home).err == "the store is trusted already\n"


def test_new_run_is_stored_in_a_store_that_is_not_trusted(shop: Project) -> None:
    """A container may keep the project and not the home directory."""
    with shop.provider(ANSWER) as (_, environment):
        for home in ("one", "two"):
            assert shop.run("Hi", **environment, HOME=str(shop.root / home)).code == 0
        done = shop.run("Hi", "--new-session", "ada", **environment, HOME=str(shop.root / "two"))
        assert done.code == 0, "a new session has nothing to follow"
        again = shop.run("Hi", "--session", "ada", **environment, HOME=str(shop.root / "two"))
        assert (again.code, "storage.untrusted" in again.err) == (7, True)


def test_store_of_a_project_without_runs(shop: Project) -> None:
    done = agentrun("store", cwd=shop.root)
    assert (done.code, done.out.splitlines()[1]) == (0, "0 runs, 0 not finished; 0 sessions")
    assert agentrun("store", "trust", cwd=shop.root).err == "there is no store yet\n"
    assert agentrun("store", cwd=shop.root, AGENTRUN_STORE="none").err.startswith("runs are not stored")
