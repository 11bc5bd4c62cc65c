"""`agentrun sessions`: sessions are listed, shown, forked and removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import EarlierRuns, Fact
from agentrun.core.messages import user_message
from agentrun.spec.project import Project as SpecProject
from agentrun.store.files import FileStore
from agentrun.testing.provider import ScriptedProvider

from ..journal.journals import RUN_STOPPED, model_asked, replied, run_started
from .command import CommandResult, agentrun
from .shop_project import KEY, Project
from .test_runs import AT, HOUR, store_runs

STORY = """\
agentrun: "1"
turns:
  - {text: One.}
  - {text: Two.}
  - {text: Three.}
  - {text: Four.}
"""


def sessions(root: Path, *args: str, **env: str) -> CommandResult:
    return agentrun("sessions", *args, cwd=root, stdin=b"", TZ="UTC", **env)


def talk(session: str, *runs: str, agent: str = "desk") -> list[tuple[str, int, tuple[Fact, ...]]]:
    """Finished runs of a session, one an hour."""
    journals: list[tuple[str, int, tuple[Fact, ...]]] = []
    for number, run in enumerate(runs):
        after: dict[str, Any] = {"predecessor": runs[number - 1]} if number else {}
        started = run_started(
            run=run,
            agent=agent,
            session=session,
            input=user_message(f"Question {run}"),
            earlier=EarlierRuns(runs=number, turns=number),
            **after,
        )
        facts = (started, model_asked(), replied(f"Answer {run}"), RUN_STOPPED)
        journals.append((run, AT + number * HOUR, facts))
    return journals


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".local/state"))  # as for the commands: the store is trusted
    store_runs(tmp_path, *talk("ada", "run-a1", "run-a2", "run-a3"), *talk("bob", "run-b1", agent="clerk"))
    return tmp_path


def entries(root: Path, session: str) -> list[str]:
    return (root / ".agentrun/sessions" / session / "runs").read_text(encoding="utf-8").splitlines()


def stored(root: Path) -> list[str]:
    return sorted(os.listdir(root / ".agentrun/runs"))


# --- list and show ---------------------------------------------------------------------------------------------


def test_list_has_a_line_for_each_session_and_the_latest_is_first(root: Path) -> None:
    done = sessions(root)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "ada  desk   3 runs  completed  2026-03-01 14:00  75 tokens\n"
        "bob  clerk  1 run   completed  2026-03-01 12:00  25 tokens\n"
    )
    assert sessions(root, "ls", "--json").lines()[1] == {
        "session": "bob",
        "agents": ["clerk"],
        "runs": 1,
        "last": "run-b1",
        "status": "completed",
        "code": None,
        "started": "2026-03-01T12:00:00.000Z",
        "ended": "2026-03-01T12:00:00.000Z",
        "spent": {"cost": 0, "tokens": 25},
        "waits_for": [],
        "forked": None,
    }


def test_no_sessions(tmp_path: Path) -> None:
    done = sessions(tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "no sessions found\n")
    assert sessions(tmp_path, "--json").out == ""


def test_show_has_the_messages_of_each_run(root: Path) -> None:
    done = sessions(root, "show", "ada")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:4] == [
        "session ada: 3 runs of desk, 75 tokens",
        "run-a1  desk  completed  2026-03-01 12:00",
        "  user: Question run-a1",
        "  assistant: Answer run-a1",
    ]
    lines = sessions(root, "show", "ada", "--json").lines()
    assert [(each["run"], each["from"], each["removed"]) for each in lines] == [
        (run, "ada", False) for run in ("run-a1", "run-a2", "run-a3")
    ]
    assert lines[2]["messages"] == [
        {"role": "user", "parts": [{"kind": "text", "text": "Question run-a3"}]},
        {"role": "assistant", "parts": [{"kind": "text", "text": "Answer run-a3"}]},
    ]


def test_show_has_calls_and_results(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    with shop.provider() as (_, environment):
        assert shop.run("--approve", "all", "--new-session", "ada", **environment).code == 0
    shown = sessions(tmp_path, "show", "ada").out
    assert '  assistant: I look it up.\n  call r1.c1.0: look {"order":"1042"}\n  result of r1.c1.0: {' in shown


def test_show_goes_on_after_a_damaged_and_a_removed_run(root: Path) -> None:
    journal = root / ".agentrun/runs/run-a2/journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"Answer", b"Bnswer"))
    with FileStore(SpecProject(root)) as store:
        store.remove("run-a1")
    done = sessions(root, "show", "ada")
    assert (done.code, "journal.damaged" in done.err) == (7, True)
    assert "run-a1  removed\n" in done.out
    assert "  assistant: Answer run-a3\n" in done.out
    removed, damaged, error, _ = sessions(root, "show", "ada", "--json").lines()
    assert (removed["removed"], removed["status"], removed["messages"]) == (True, None, [])
    assert (damaged["messages"], error["run"], error["error"]["code"]) == ([], "run-a2", "journal.damaged")


@pytest.mark.parametrize("command", [("show",), ("rm",), ("fork", "--at", "run-a1", "new")], ids=lambda each: each[0])
def test_unknown_session_is_not_found(root: Path, command: tuple[str, ...]) -> None:
    before = stored(root)
    for name in ("adaa", "../ada", "", "a" * 300, "ada\u202e", "ADA"):
        done = sessions(root, command[0], "--json", "--", name, *command[3:])
        error = done.lines()[0]["error"]
        assert (done.code, error["code"], error["fields"]["session"]) == (2, "session.not_found", name)
        assert ('did you mean "ada"?' in error["hint"]) == (0 < len(name) < 100), error
    shown = sessions(root, command[0], "ada\u202e", *command[3:]).err
    assert 'there is no session "ada\\u202e"' in shown
    assert stored(root) == before
    assert sorted(os.listdir(root / ".agentrun/sessions")) == ["ada", "bob"]


def test_texts_are_shown_without_secrets_and_control_characters(tmp_path: Path) -> None:
    said = run_started(session="Ada \x1b[2J\u202e", agent=KEY, input=user_message(f"\x1b]52;c;x\x07 {KEY}"))
    store_runs(tmp_path, ("run-1", AT, (said, RUN_STOPPED)))
    (name,) = os.listdir(tmp_path / ".agentrun/sessions")
    assert len(name) == 64, "a name that is no plain name is a hash"
    for args in ((), ("show", name), ("--json",), ("show", name, "--json")):
        done = sessions(tmp_path, *args, MY_TOKEN=KEY)
        assert done.code == 0, done.err
        assert not {"\x1b", "\u202e", "\x07"} & set(done.out)
        assert KEY not in done.out
    assert sessions(tmp_path, "--json", MY_TOKEN=KEY).lines()[0]["session"] == "Ada \x1b[2J\u202e"


def test_variable_that_turns_the_store_off_is_named(root: Path) -> None:
    for args in ((), ("show", "ada"), ("fork", "ada", "new"), ("rm", "ada")):
        done = sessions(root, *args, AGENTRUN_STORE="none")
        assert (done.code, "there are no stored runs and sessions, because AGENTRUN_STORE is none" in done.err) == (
            2,
            True,
        )


@pytest.mark.parametrize(
    "words", ["sessions show ", "sessions rm ", "sessions fork ", "shop.yaml --session ", "runs --session "]
)
def test_shells_complete_sessions(root: Path, words: str) -> None:
    (root / "shop.yaml").write_text('agentrun: "1"\n', encoding="utf-8")
    command = f"agentrun {words}a"
    place = str(len(command.split()) - 1)
    done = agentrun(cwd=root, _AGENTRUN_COMPLETE="bash_complete", COMP_WORDS=command, COMP_CWORD=place)
    assert done.out == "plain,ada\n"


# --- fork ------------------------------------------------------------------------------------------------------


def test_fork_has_the_history_up_to_a_run_and_goes_on_by_itself(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    with shop.provider(STORY) as (server, environment):
        shop.run("First.", "--new-session", "ada", **environment)
        shop.run("Second.", "--session", "ada", **environment)
        first, _ = entries(tmp_path, "ada")
        done = sessions(tmp_path, "fork", "ada", "--at", first[:12], "eve")
        assert (done.code, done.out) == (0, ""), done.err
        assert done.err == f"eve continues after {first} of ada, with 1 run; use --session eve\n"
        assert (len(server.requests), entries(tmp_path, "eve"), len(stored(tmp_path))) == (2, [first], 2)
        assert shop.run("Third.", "--session", "eve", **environment).code == 0
        assert heard(server) == ["First.", "One.", "Third."]
        assert shop.run("Fourth.", "--session", "ada", **environment).code == 0
        assert heard(server) == ["First.", "One.", "Second.", "Two.", "Fourth."]
    _, own = entries(tmp_path, "eve")
    with FileStore(SpecProject(tmp_path)) as store:
        started = store.records(own)[0].fact
    assert (started.session, started.predecessor, started.earlier.runs) == ("eve", first, 1)  # type: ignore[union-attr]  # run_started
    ada, eve = sorted(sessions(tmp_path, "--json").lines(), key=lambda line: str(line["session"]))
    assert (ada["forked"], ada["runs"]) == (None, 3)
    assert (eve["forked"], eve["runs"], eve["last"]) == ({"session": "ada", "run": first}, 2, own)
    shown = sessions(tmp_path, "show", "eve").out
    assert f", forked from ada at {first}\n" in shown
    assert [each["from"] for each in sessions(tmp_path, "show", "eve", "--json").lines()] == ["ada", "eve"]


def heard(server: ScriptedProvider) -> list[str]:
    return [message["content"] for message in json.loads(server.requests[-1].body)["messages"][1:]]


def test_fork_without_a_run_is_at_the_last_one(root: Path) -> None:
    assert sessions(root, "fork", "ada", "eve", "--json").lines() == [
        {"session": "eve", "forked": {"session": "ada", "run": "run-a3"}, "runs": 3}
    ]
    assert entries(root, "eve") == ["run-a1", "run-a2", "run-a3"]
    assert sessions(root, "fork", "eve", "--at", "run-a1", "leo").code == 0, "a fork of a fork"
    assert entries(root, "leo") == ["run-a1"]


def forks(root: Path) -> Iterator[str]:
    yield from sorted(set(os.listdir(root / ".agentrun/sessions")) - {"ada", "bob"})


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["ada", "bob"], 2, "session.duplicate"),
        (["ada", "ada"], 2, "session.duplicate"),
        (["ada", "../eve"], 2, "is not a valid name"),
        (["ada", "a" * 65], 2, "is not a valid name"),
        (["ada", "eve\u202e"], 2, "is not a valid name"),
        (["ada", "eve", "--at", "run-b1"], 2, "run.not_found: the session ada has no run run-b1"),
        (["ada", "eve", "--at", "run-x"], 2, "run.not_found"),
        (["ada", "eve", "--at", "run-a"], 2, "3 runs begin with"),
        (["ada", "eve", "--at", ""], 2, "run.not_found"),
        (["ada"], 2, "Missing argument 'NEW'"),
    ],
)
def test_fork_that_is_refused_leaves_nothing(root: Path, args: list[str], code: int, said: str) -> None:
    before = entries(root, "ada")
    done = sessions(root, "fork", *args)
    assert (done.code, said in done.err) == (code, True), done.err
    assert (list(forks(root)), entries(root, "ada")) == ([], before)


def test_fork_at_a_run_that_is_not_finished_is_refused(root: Path) -> None:
    after = run_started(run="run-a4", session="ada", predecessor="run-a3", earlier=EarlierRuns(runs=3))
    store_runs(root, ("run-a4", AT, (after, model_asked())))
    done = sessions(root, "fork", "ada", "eve")
    assert (done.code, "session.unfinished: run run-a4 of this session was cut in" in done.err) == (8, True), done.err
    assert list(forks(root)) == []
    assert sessions(root, "fork", "ada", "--at", "run-a3", "eve").code == 0


def test_fork_before_a_damaged_run_is_the_way_out(root: Path) -> None:
    journal = root / ".agentrun/runs/run-a2/journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    refused = sessions(root, "fork", "ada", "--at", "run-a3", "eve")
    assert (refused.code, "journal.truncated" in refused.err, list(forks(root))) == (7, True, []), refused.err
    assert "the run is run-a2 of the session ada" in refused.err
    assert sessions(root, "fork", "ada", "--at", "run-a1", "eve").code == 0


def test_fork_in_a_store_that_is_not_trusted_is_refused(root: Path) -> None:
    other = str(root / "other")
    done = sessions(root, "fork", "ada", "eve", HOME=other)
    assert (done.code, "storage.untrusted" in done.err, list(forks(root))) == (7, True, [])
    assert sessions(root, "show", "ada", HOME=other).code == 0, "looking is allowed"


def test_fork_of_a_session_in_use_at_an_earlier_run(root: Path) -> None:
    with FileStore(SpecProject(root)) as store:
        store.lock_session("ada")
        assert sessions(root, "fork", "ada", "--at", "run-a1", "eve").code == 0
        store.lock_session("leo")
        busy = sessions(root, "fork", "ada", "--at", "run-a1", "leo")
        assert (busy.code, "session.busy" in busy.err) == (9, True)


# --- remove ----------------------------------------------------------------------------------------------------


def test_session_is_removed_with_its_runs(root: Path) -> None:
    done = sessions(root, "rm", "ada", "ada")
    assert (done.code, done.out, done.err) == (0, "", "1 session removed, with 3 runs\n")
    assert (stored(root), os.listdir(root / ".agentrun/sessions")) == (["run-b1"], ["bob"])


def test_run_is_kept_as_long_as_one_of_its_sessions(root: Path) -> None:
    sessions(root, "fork", "ada", "--at", "run-a2", "eve")
    assert sessions(root, "rm", "ada", "--json").lines() == [{"session": "ada", "removed": ["run-a3"]}]
    assert stored(root) == ["run-a1", "run-a2", "run-b1"]
    assert sessions(root, "show", "eve").code == 0
    refused = agentrun("runs", "rm", "run-a1", cwd=root)
    assert (refused.code, "which is removed as a whole: agentrun sessions rm eve" in refused.err) == (2, True)
    store_runs(root, *talk("ada", "run-n1"))
    assert entries(root, "ada") == ["run-n1"], "a new session with the name has nothing of the former one"
    assert sessions(root, "rm", "eve", "--json").lines() == [{"session": "eve", "removed": ["run-a1", "run-a2"]}]
    assert stored(root) == ["run-b1", "run-n1"]


def test_session_that_is_not_finished_is_removed_only_by_force(root: Path) -> None:
    store_runs(root, ("run-b2", AT, (run_started(run="run-b2", session="bob", predecessor="run-b1"),)))
    refused = sessions(root, "rm", "ada", "bob")
    assert (refused.code, "add --force; nothing was removed" in refused.err) == (2, True)
    assert len(stored(root)) == 5
    assert sessions(root, "rm", "bob", "--force").err == "1 session removed, with 2 runs\n"


def test_session_in_use_is_removed_only_by_force(root: Path) -> None:
    with FileStore(SpecProject(root)) as store:
        store.lock_session("bob")
        busy = sessions(root, "rm", "bob")
        assert (busy.code, "session.busy" in busy.err, len(stored(root))) == (9, True, 4), busy.err
        assert sessions(root, "rm", "bob", "--force").code == 0
    assert stored(root) == ["run-a1", "run-a2", "run-a3"]


def test_session_with_a_changed_or_lost_list_is_removed_with_all_its_runs(root: Path) -> None:
    path = root / ".agentrun/sessions/ada/runs"
    path.write_text("run-a2\n../../../precious\n", encoding="utf-8")
    (root / "precious").mkdir()
    (root / ".agentrun/sessions/bob/runs").unlink()
    assert sessions(root, "rm", "ada", "bob").err == "2 sessions removed, with 4 runs\n"
    assert (stored(root), (root / "precious").is_dir()) == ([], True)


def test_directory_of_a_session_that_is_a_link_is_not_followed(root: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    shutil.move(root / ".agentrun/sessions/ada", outside / "ada")
    (root / ".agentrun/sessions/ada").symlink_to(outside / "ada")
    before = sorted(path.name for path in (outside / "ada").iterdir())
    for args in (("rm", "ada"), ("fork", "ada", "eve")):
        done = sessions(root, *args)
        assert (done.code, "storage.failed" in done.err) == (7, True), done.err
    assert sorted(path.name for path in (outside / "ada").iterdir()) == before
    assert len(stored(root)) == 4
