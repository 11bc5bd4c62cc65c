"""`agentrun runs`: the runs of the store."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import Fact, Parent, Record, RunStopped
from agentrun.core.fault import Fault
from agentrun.core.spend import BudgetShare
from agentrun.errors import StorageError
from agentrun.spec.project import Project as SpecProject
from agentrun.store.files import FileStore

from ..journal.journals import RUN_STOPPED, model_asked, replied, run_started
from ..store.test_index import forge
from .command import SCRIPT, CommandResult, agentrun
from .shop_project import KEY, Project

NOW = "2026-03-01T12:00:00Z"
HOUR = 3_600_000
AT = 1_772_366_400_000
"""The time NOW."""


def runs(root: Path, *args: str, **env: str) -> CommandResult:
    return agentrun("runs", *args, cwd=root, stdin=b"", TZ="UTC", AGENTRUN_NOW=NOW, **env)


def listed(root: Path, *args: str, **env: str) -> list[dict[str, Any]]:
    done = runs(root, *args, "--json", **env)
    assert done.code == 0, done.err
    return done.lines()


def store_runs(root: Path, *journals: tuple[str, int, tuple[Fact, ...]]) -> None:
    with FileStore(SpecProject(root), sync="process") as store:
        for run, at, facts in journals:
            journal = store.open(run)
            for fact in facts:
                journal.append(Record(journal.seq + 1, at, journal.epoch, journal.head, fact))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with runs that ended differently, each an hour after the one before."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # as for the commands, so that the store is theirs
    failed = RunStopped("failed", fault=Fault("budget.cost", "too much"))
    reply = replied("Hello")
    store_runs(
        tmp_path,
        ("run-a", AT - 4 * HOUR, (run_started(run="run-a", agent="desk", session="chat"), failed)),
        ("run-b", AT - 3 * HOUR, (run_started(run="run-b"), model_asked(), reply, RUN_STOPPED)),
        ("run-c", AT - 2 * HOUR, (run_started(run="run-c", agent="desk"), model_asked())),
    )
    return tmp_path


def test_table_has_a_line_for_each_run(root: Path) -> None:
    done = runs(root)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "run-c  desk    interrupted  2026-03-01 10:00  0 tokens   1 turn\n"
        "run-b  triage  completed    2026-03-01 09:00  25 tokens  1 turn\n"
        "run-a  desk    failed       2026-03-01 08:00  0 tokens   0 turns  budget.cost, session chat\n"
    )


def test_json_has_an_object_for_each_run(root: Path) -> None:
    assert listed(root)[1] == {
        "run": "run-b",
        "agent": "triage",
        "status": "completed",
        "code": None,
        "session": None,
        "started": "2026-03-01T09:00:00.000Z",
        "ended": "2026-03-01T09:00:00.000Z",
        "spent": {"cost": 0, "tokens": 25},
        "turns": 1,
        "parent": None,
        "waits_for": [],
        "seq": 4,
    }


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("--agent desk", "run-c run-a"),
        ("--status failed --status interrupted", "run-c run-a"),
        ("--code budget.cost", "run-a"),
        ("--session chat", "run-a"),
        ("--since 3h", "run-c run-b"),
        ("--since 2026-03-01T09:00", "run-c run-b"),
        ("--since 2026-03-01T10:00+01:00", "run-c run-b"),
        ("--until 2h", "run-b run-a"),
        ("--until 2026-03-01", ""),
        ("--limit 1", "run-c"),
        ("--limit 0", "run-c run-b run-a"),
        ("ls --agent triage", "run-b"),
        ("--agent desk' --agent x", ""),
    ],
)
def test_options_filter_runs(root: Path, args: str, found: str) -> None:
    assert [each["run"] for each in listed(root, *args.split())] == found.split()


@pytest.mark.parametrize(
    "args",
    [("--since", "soon"), ("--until", "1x"), ("--status", "great"), ("--limit", "-1"), ("--since", "0001-01-01")],
)
def test_invalid_option_is_refused(root: Path, args: tuple[str, ...]) -> None:
    done = runs(root, *args)
    assert (done.code, done.out, args[0] in done.err) == (2, "", True), done.err


def test_more_runs_than_the_limit_are_mentioned(root: Path) -> None:
    done = runs(root, "--limit", "2")
    assert (len(done.out.splitlines()), done.err) == (2, "only the latest 2 runs; --limit 0 lists all\n")
    assert runs(root, "--limit", "3").err == ""


def test_project_without_runs_says_so(tmp_path: Path) -> None:
    done = runs(tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "no runs found\n")
    assert listed(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_store_of_an_ancestor_is_used(root: Path) -> None:
    (root / "src/deep").mkdir(parents=True)
    assert len(listed(root / "src/deep")) == 3
    (root / "src/.git").mkdir()
    assert listed(root / "src/deep") == [], "another project"
    assert len(listed(root / "src/deep", AGENTRUN_STORE=str(root / ".agentrun"))) == 3


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    name = "a\x1b]52;c;Zm9v\x07\x1b[2J\u202e\u2028\r\nrun-9  b"
    store_runs(tmp_path, ("run-a", AT, (run_started(agent=name, session=name), RUN_STOPPED)))
    done = runs(tmp_path)
    assert done.out == (
        "run-a  " + (shown := r"a\x1b]52;c;Zm9v\x07\x1b[2J\u202e\u2028\r\nrun-9  b") + "  completed  2026-03-01 12:00"
        f"  0 tokens  0 turns  session {shown}\n"
    )
    assert listed(tmp_path)[0]["agent"] == name
    assert runs(tmp_path, "--json").out.isprintable() is False
    assert runs(tmp_path, "--json").out.rstrip("\n").isprintable()


def test_credentials_of_the_environment_are_not_shown(tmp_path: Path) -> None:
    store_runs(
        tmp_path,
        ("run-a", AT, (run_started(agent=f"agent {KEY}", session=KEY), RUN_STOPPED)),
        ("run-b", AT, (run_started(agent="b"), RUN_STOPPED)),
    )
    for args in ((), ("--json",)):
        done = runs(tmp_path, *args, OPENAI_API_KEY=KEY)
        assert (KEY in done.out, len(done.out.splitlines())) == (False, 2), done.out


def test_narrow_terminal_gets_lines_without_columns(root: Path) -> None:
    primary, secondary = pty.openpty()
    env = {"PATH": os.environ["PATH"], "COLUMNS": "40", "TZ": "UTC"}
    subprocess.run([SCRIPT, "runs"], cwd=root, env=env, stdout=secondary, check=True)
    os.close(secondary)
    out = os.read(primary, 10_000).decode().replace("\r\n", "\n")
    os.close(primary)
    assert out.splitlines()[0] == "run-c  desk  interrupted  2026-03-01 10:00  0 tokens  1 turn"


def test_closed_pipe_ends_the_command_quietly(root: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([SCRIPT, "runs", "--json"], cwd=root, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.stderr == b""


def test_live_runs_are_listed_with_what_they_spent_and_wait_for(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    with shop.provider() as (_, environment):
        completed = shop.run("--mode", "live", "--approve", "all", "--new-session", "desk", **environment)
        rules = "{id: pays, allow: refund}\n    - {id: money, defer: refund, when: args.amount > 10.0"
        shop.edit("shop.yaml", "{id: money, ask: refund", rules)
        deferred = shop.run("--mode", "live", **environment)
    assert (completed.code, deferred.code) == (0, 8), completed.err + deferred.err
    two, one = listed(tmp_path)
    assert (one["status"], one["session"], one["turns"], one["agent"]) == ("completed", "desk", 3, "shop")
    assert (one["spent"], two["spent"]) == ({"cost": 0, "tokens": 45}, {"cost": 0, "tokens": 30})
    waits = [{"kind": "deferral", "subject": "c2.0", "tool": "refund", "until": None}]
    assert (two["status"], two["waits_for"]) == ("waiting", waits)
    assert "2 turns  refund (c2.0) is deferred\n" in runs(tmp_path, "--status", "waiting").out


@pytest.mark.parametrize("obstacle", ["directory", "busy", "nonsense"])
def test_run_does_not_need_the_index(tmp_path: Path, obstacle: str) -> None:
    shop = Project(tmp_path)
    with shop.provider() as (_, environment), ExitStack() as stack:
        shop.run("--mode", "live", "--approve", "all", **environment)
        index = tmp_path / ".agentrun/index.sqlite"
        if obstacle == "nonsense":
            index.write_bytes(b"nonsense" * 1000)
        elif obstacle == "directory":
            index.unlink()
            index.mkdir()
        else:
            lock = stack.enter_context((tmp_path / ".agentrun/locks/index.lock").open())
            fcntl.flock(lock, fcntl.LOCK_EX)
        done = shop.run("--mode", "live", "--approve", "all", **environment)
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert [each["status"] for each in listed(tmp_path)] == ["completed", "completed"]


# --- rm ---------------------------------------------------------------------------------------------------------


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root / ".agentrun/runs"))


@pytest.fixture
def family(root: Path) -> Path:
    """Two more runs of the session, and a run with a sub-agent."""
    child = Parent("run-d", "c1.0", 1, BudgetShare())
    store_runs(
        root,
        ("run-a2", AT, (run_started(run="run-a2", session="chat"), RUN_STOPPED)),
        ("run-d", AT, (run_started(run="run-d"), RUN_STOPPED)),
        ("run-d.c1.0", AT, (run_started(run="run-d.c1.0", parent=child), RUN_STOPPED)),
    )
    return root


def test_rm_removes_a_run_with_its_sub_agents(family: Path) -> None:
    done = runs(family, "rm", "run-b", "d", "run-d")
    assert (done.code, done.out, done.err) == (0, "", "2 runs removed\n")
    assert names(family) == ["run-a", "run-a2", "run-c"]
    assert [each["run"] for each in listed(family, "--sub-agents")] == ["run-a2", "run-c", "run-a"]
    again = runs(family, "rm", "run-b")
    assert (again.code, "run.not_found" in again.err) == (2, True)


def test_rm_prints_json(family: Path) -> None:
    assert runs(family, "rm", "run-b", "--json").lines() == [{"run": "run-b", "removed": True}]
    refused = runs(family, "rm", "run-c", "--json")
    assert (refused.code, refused.lines()[0]["error"]["fields"]["run"]) == (2, "run-c")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["run-b", "run-c"], 2, "run.invalid_state: the run run-c is interrupted, but it must be finished for this"),
        (["run-b", "run-a"], 2, "which is removed as a whole: agentrun sessions rm chat"),
        (["run-b", "run-d.c1.0"], 2, "run-d.c1.0 is the run of a sub-agent; remove the run that started it: run-d"),
        (["run-b", "run-x"], 2, "run.not_found"),
        (["run-b", "run-"], 2, "5 runs begin with"),
        ([], 2, "Missing argument 'RUN...'"),
        (["../run-b"], 2, "run.not_found"),
    ],
)
def test_rm_removes_nothing_if_it_refuses_one(family: Path, args: list[str], code: int, said: str) -> None:
    before = names(family)
    done = runs(family, "rm", *args)
    assert (done.code, said in done.err, names(family)) == (code, True, before), done.err


def test_rm_force_removes_unfinished_and_running_runs(family: Path) -> None:
    with FileStore(SpecProject(family)) as store:
        journal = store.open("run-c")
        refused = runs(family, "rm", "run-c")
        assert (refused.code, "the run run-c is running" in refused.err) == (2, True), refused.err
        assert runs(family, "rm", "run-c", "--force").code == 0
        with pytest.raises(StorageError, match="the journal cannot be written"):
            journal.append(Record(journal.seq + 1, AT, journal.epoch, journal.head, replied("Hello")))
    assert "run-c" not in names(family)


def finish_in_index(root: Path, run: str) -> None:
    """The index says that the run is completed, and is right about everything else."""
    listed(root)
    forge(root / ".agentrun/index.sqlite", "UPDATE runs SET status = 'completed', ended = ? WHERE run = ?", AT, run)
    assert {each["run"]: each["status"] for each in listed(root)}[run] == "completed"


def test_rm_believes_the_files_and_not_the_index(family: Path) -> None:
    finish_in_index(family, "run-c")
    refused = runs(family, "rm", "run-c")
    assert (refused.code, "the run run-c is interrupted" in refused.err) == (2, True), refused.err
    assert "run-c" in names(family)


def test_rm_removes_what_is_no_run(family: Path) -> None:
    (family / ".agentrun/runs/run-z").mkdir()
    assert runs(family, "rm", "run-z").code == 2
    assert runs(family, "rm", "run-z", "--force").code == 0
    assert "run-z" not in names(family)


def test_dash_believes_the_files_and_not_the_index(family: Path) -> None:
    finish_in_index(family, "run-c")
    assert agentrun("show", "-", cwd=family).out.startswith("desk · run-c · not finished\n")


def test_dash_skips_damaged_and_running_runs(family: Path) -> None:
    store_runs(family, ("run-e", AT + 10, (run_started(run="run-e"),)), ("run-f", AT + 9, (run_started(run="run-f"),)))
    store_runs(family, ("run-g", AT + 8, (run_started(run="run-g"),)))
    with (family / ".agentrun/runs/run-e/journal.jsonl").open("r+b") as file:
        file.write(b"[")
    with FileStore(SpecProject(family)) as store:
        store.open("run-f")
        assert " · run-g · not finished\n" in agentrun("show", "-", cwd=family).out


def test_rm_does_not_follow_links(family: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "mine").write_text("x")
    (family / ".agentrun/runs/run-b/blobs").symlink_to(outside)
    assert runs(family, "rm", "run-b").code == 0
    assert (outside / "mine").read_text() == "x"
    (family / ".agentrun/runs/run-l").symlink_to(outside)
    assert runs(family, "rm", "run-l", "--force").code != 0
    assert (outside / "mine").read_text() == "x"
