"""`--session NAME`: a conversation over several commands, with processes that die, and runs that are lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from agentrun.spec.project import Project as SpecProject
from agentrun.store.files import FileStore
from agentrun.store.sessions import check_runs
from agentrun.testing.provider import ScriptedProvider

from .command import SCRIPT, CommandResult, agentrun
from .cut_runs import Bank
from .shop_project import Project
from .test_live import wait_until

STORY = """\
agentrun: "1"
turns:
  - text: "Hello, Ada."
  - expect: {contains: ["What is my name?"]}
    text: "Ada."
  - text: "Still Ada."
"""


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_session_run_gets_the_messages_of_earlier_runs(shop: Project) -> None:
    with shop.provider(STORY) as (server, environment):
        first = shop.run("I am Ada.", "--new-session", "ada", **environment)
        second = shop.run("What is my name?", "--session", "ada", "--journal", "copy.jsonl", **environment)
        assert (first.out, second.out) == ("Hello, Ada.\n", "Ada.\n"), second.err
        sent = json.loads(server.requests[1].body)["messages"]
        assert [message["content"] for message in sent[1:]] == ["I am Ada.", "Hello, Ada.", "What is my name?"]
        other = shop.run("I am Bob.", "--session", "bob", "--create", **environment)
        assert other.out == "Hello, Ada.\n", "another session begins anew"
    assert first.err.startswith("live: new session ada (requests go to openai")
    assert second.err.startswith("live: session ada (requests go to openai")
    one, two = stored_runs(shop, "ada")
    assert f"\n  history: 2 messages of 1 run, the last is {one}\n" in second.err
    assert started(shop, two)["earlier"]["origins"] == [{"run": one, "messages": 2}]
    assert (shop.root / "copy.jsonl").read_bytes() == journal_of(shop, two).read_bytes()
    assert "predecessor" not in started(shop, one)
    assert (started(shop, two)["session"], started(shop, two)["predecessor"]) == ("ada", one)
    assert (shop.root / ".agentrun" / ".gitignore").read_text() == "*\n"


def test_dedupe_refuses_a_repeated_message_in_one_session(shop: Project) -> None:
    shop.edit("shop.yaml", "budgets:", "admission: {dedupe: true}\nbudgets:")
    with shop.provider(STORY) as (server, environment):
        assert shop.run("Hello", "--new-session", "ada", **environment).code == 0
        again = shop.run(" Hello ", "--session", "ada", **environment)
        assert (again.code, "input.rejected" in again.err, len(server.requests)) == (2, True, 1)
        assert shop.run("Hello", "--new-session", "bob", **environment).code == 0


def test_session_in_use_is_busy_until_its_process_ends(shop: Project) -> None:
    slow = STORY.replace('text: "Hello, Ada."', 'text: "Hello, Ada."\n    faults: [{delay: 60s}]')
    with shop.provider(slow) as (server, environment):
        first = subprocess.Popen(
            [SCRIPT, "shop.yaml", "Hi", "--new-session", "ada"],
            cwd=shop.root,
            env={"PATH": os.environ["PATH"], "HOME": str(shop.root), **environment},
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: bool(server.requests))
            busy = shop.run("Hi", "--session", "ada", **environment)
            assert (busy.code, "session.busy" in busy.err, len(server.requests)) == (9, True, 1)
        finally:
            first.kill()
            first.wait()
    (run,) = stored_runs(shop, "ada")
    with shop.provider(STORY) as (_, environment):
        after = shop.run("Hi again", "--session", "ada", **environment)
        why = f"session.unfinished: run {run} of this session was cut in a request, a hook or a delivery: resume it"
        assert (after.code, why in after.err, f"→ agentrun resume {run}" in after.err) == (8, True, True), after.err
        assert shop.run("Hi again", "--new-session", "bob", **environment).code == 0


# --- begin and continue ----------------------------------------------------------------------------------------


def test_unknown_session_is_not_found_and_leaves_nothing(shop: Project) -> None:
    with shop.provider(STORY) as (server, environment):
        unknown = shop.run("Hi", "--session", "ada", **environment)
        assert (unknown.code, unknown.out) == (2, "")
        assert unknown.err == (
            'session.not_found: there is no session "ada"\n  → begin a session with --new-session ada\n'
        )
        assert not (shop.root / ".agentrun/sessions").exists()
        assert shop.run("Hi", "--new-session", "ada", **environment).code == 0
        typo = shop.run("Hi", "--session", "adda", "--json", **environment)
        error = typo.lines()[-1]["error"]
        assert (typo.code, error["code"], error["fields"]["session"]) == (2, "session.not_found", "adda")
        assert error["hint"] == 'did you mean "ada"? Otherwise begin a session with --new-session adda'
        assert len(server.requests) == 1
    assert os.listdir(shop.root / ".agentrun/sessions") == ["ada"]


def test_new_session_must_not_exist(shop: Project) -> None:
    with shop.provider(STORY) as (server, environment):
        assert shop.run("Hi", "--new-session", "ada", **environment).code == 0
        again = shop.run("Hi", "--new-session", "ada", **environment)
        assert (again.code, again.out, len(server.requests)) == (2, "", 1)
        assert again.err == (
            "session.duplicate: a session with the name ada already exists\n  → continue it with --session ada\n"
        )


def test_create_begins_or_continues(shop: Project) -> None:
    with shop.provider(STORY) as (_, environment):
        done = [shop.run(text, "--session", "ada", "--create", **environment) for text in ("Hi", "What is my name?")]
    assert [each.out for each in done] == ["Hello, Ada.\n", "Ada.\n"]


def test_refused_first_run_begins_no_session(shop: Project) -> None:
    with shop.provider(STORY) as (_, environment):
        assert shop.run("", "--new-session", "ada", **environment).code == 2
        assert os.listdir(shop.root / ".agentrun/sessions") == []
        assert shop.run("Hi", "--new-session", "ada", **environment).code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--session", "a", "--new-session", "b"), "--new-session cannot be combined with --session"),
        (("--create",), "--create needs --session"),
        (("--new-session", "a", "--create"), "--create needs --session"),
        (("--any-agent",), "--any-agent needs --session"),
        (("--new-session", "a", "--any-agent"), "--any-agent needs --session"),
        (("--new-session", "a", "--mode", "replay"), "--new-session cannot be combined with --mode replay"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_do_not_fit(shop: Project, args: tuple[str, ...], said: str) -> None:
    done = shop.run("Hi", *args)
    assert (done.code, said in done.err) == (2, True), done.err


def test_other_agent_is_refused_unless_any_agent_may_continue(shop: Project) -> None:
    (shop.root / "clerk.yaml").write_text(
        'agentrun: "1"\nname: clerk\nmodel: {provider: openai, name: gpt-4.1-mini}\ninstructions: Be brief.\n'
        "budgets: {tokens: 1k}\n",
        encoding="utf-8",
    )

    def clerk(*args: str, **given: Any) -> CommandResult:
        return agentrun("clerk.yaml", "What is my name?", "--session", "ada", *args, cwd=shop.root, **given)

    with shop.provider(STORY) as (server, environment):
        shop.run("I am Ada.", "--new-session", "ada", **environment)
        refused = clerk(**environment)
        assert (refused.code, len(server.requests)) == (2, 1)
        assert "run.invalid_continuation: the session ada is a conversation with shop, not with clerk" in refused.err
        fields = clerk("--json", **environment).lines()[-1]["error"]["fields"]
        assert (fields["session"], fields["expected"], fields["actual"]) == ("ada", "shop", "clerk")
        assert clerk("--any-agent", **environment).out == "Ada.\n"
        assert shop.run("Again?", "--session", "ada", **environment).out == "Still Ada.\n", "both have runs in it now"


def test_approval_for_the_session_holds_in_the_session_and_not_in_its_fork(shop: Project) -> None:
    """The question is the same in every run."""
    turns = '  - calls: [{tool: refund, args: {order: "1042", amount: 20}}]\n  - text: Done.\n'
    with shop.provider(f'agentrun: "1"\nturns:\n{turns * 3}') as (server, environment):
        assert shop.run("One.", "--new-session", "ada", **environment).code == 8
        (run,) = stored_runs(shop, "ada")
        refused = shop.run("Two.", "--session", "ada", **environment)
        assert (refused.code, len(server.requests)) == (8, 1)
        assert refused.err == (
            f"session.unfinished: run {run} of this session waits for an approval of `refund` (c1.0): answer it\n"
            f"  → agentrun approve {run} c1.0, or agentrun deny {run} c1.0\n"
        )
        assert shop.run("Two.", "--session", "ada").code == 8, "before anything is opened: no key is needed"
        approved = agentrun("approve", run, "c1.0", "--for-session", cwd=shop.root, stdin=b"", **environment)
        assert (approved.code, shop.traces()) == (0, ["refund 1042 20"]), approved.err
        assert agentrun("sessions", "fork", "ada", "eve", cwd=shop.root).code == 0
        assert shop.run("Two.", "--session", "ada", **environment).code == 0
        assert len(shop.traces()) == 2, "approved for the session"
        assert shop.run("Two.", "--session", "eve", **environment).code == 8
        assert len(shop.traces()) == 2, "the fork is another session"


# --- damage ----------------------------------------------------------------------------------------------------


def cut_last_bytes(journal: Path) -> None:
    journal.write_bytes(journal.read_bytes()[:-20])


def cut_last_record(journal: Path) -> None:
    data = journal.read_bytes()
    journal.write_bytes(data[: data[:-1].rindex(b"\n") + 1])


def change_a_byte(journal: Path) -> None:
    journal.write_bytes(journal.read_bytes().replace(b"Ada", b"Eve", 1))


def delete_the_run(journal: Path) -> None:
    shutil.rmtree(journal.parent)


def delete_the_run_and_its_line(journal: Path) -> None:
    """The next run still names it."""
    shutil.rmtree(journal.parent)
    for path in journal.parents[2].glob("sessions/*/runs"):
        path.write_text(path.read_text(encoding="utf-8").replace(f"{journal.parent.name}\n", ""), encoding="utf-8")


def delete_the_list_and_the_run(journal: Path) -> None:
    shutil.rmtree(journal.parent)
    (journal.parents[2] / "sessions/ada/runs").unlink()


DAMAGES: dict[Callable[[Path], None], str] = {
    cut_last_bytes: "journal.truncated",
    cut_last_record: "journal.truncated",
    change_a_byte: "journal.damaged",
    delete_the_run: "recovery.failed",
    delete_the_run_and_its_line: "recovery.failed",
    delete_the_list_and_the_run: "recovery.failed",
}


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a session of two runs."""
    shop = Project(tmp_path_factory.mktemp("talked"))
    with shop.provider(STORY) as (_, environment):
        shop.run("I am Ada.", "--new-session", "ada", **environment)
        shop.run("What is my name?", "--session", "ada", **environment)
    return shop.root


def copy_of(talked: Path, tmp_path: Path) -> Project:
    shutil.copytree(talked, tmp_path, dirs_exist_ok=True)
    return Project(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_session_with_a_damaged_run_stops_with_its_code(
    talked: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    shop = copy_of(talked, tmp_path)
    first, _ = stored_runs(shop, "ada")
    damage(journal_of(shop, first))
    with shop.provider(STORY) as (server, environment):
        done = shop.run("And now?", "--session", "ada", **environment)
        assert (done.code, done.out, len(server.requests)) == (7, "", 0), done.err
        assert f"{DAMAGES[damage]}: " in done.err
        assert f"{first} of the session ada" in done.err
        error = shop.run("And now?", "--session", "ada", "--json", **environment).lines()[-1]["error"]
        assert (error["fields"]["blocking_run"], error["fields"]["session"], error["exit"]) == (first, "ada", 7)


def test_session_without_damage_goes_on(talked: Path, tmp_path: Path) -> None:
    """The twin. A list that is lost is made again."""
    shop = copy_of(talked, tmp_path)
    runs = stored_runs(shop, "ada")
    (shop.root / ".agentrun/sessions/ada/runs").unlink()
    with shop.provider(STORY) as (_, environment):
        assert shop.run("And now?", "--session", "ada", **environment).out == "Still Ada.\n"
    assert stored_runs(shop, "ada")[:2] == runs


@pytest.mark.parametrize(("number", "sent"), [(0, 1), (1, 1)], ids=["first", "last"])
def test_run_that_was_removed_is_no_damage(talked: Path, tmp_path: Path, number: int, sent: int) -> None:
    shop = copy_of(talked, tmp_path)
    runs = stored_runs(shop, "ada")
    with FileStore(SpecProject(shop.root)) as store:
        store.remove(runs[number])
    with shop.provider(STORY.replace("What is my name?", "And now?")) as (server, environment):
        done = shop.run("And now?", "--session", "ada", **environment)
        assert (done.code, done.out) == (0, "Ada.\n"), done.err
        texts = [message["content"] for message in json.loads(server.requests[0].body)["messages"][1:]]
        assert texts == [*(["What is my name?", "Ada."], ["I am Ada.", "Hello, Ada."])[number], "And now?"]
        assert shop.run("Again?", "--session", "ada", **environment).code == 0
    lines = (shop.root / ".agentrun/sessions/ada/runs").read_text(encoding="utf-8").splitlines()
    assert lines[number] == f"{runs[number]} removed"
    survivor = runs[1 - number]
    assert started(shop, lines[2])["predecessor"] == survivor


# --- processes that die ----------------------------------------------------------------------------------------

SLOW = 11
KILLS = {3: "pay", 7: "save", SLOW: "request", 15: "pay", 19: "look"}
"""The runs that are killed, and in which call."""


def test_session_of_20_runs_with_a_kill_in_5_of_them(tmp_path: Path) -> None:
    bank, story = Bank(tmp_path), "agentrun: '1'\nturns:\n"
    for number in range(1, 21):
        call = f"calls: [{{tool: {KILLS.get(number, 'pay')}, args: {{value: '{number}'}}}}]"
        story += f"  - {{{call}}}\n" if number != SLOW else "  - {text: Wait., faults: [{delay: 60s}]}\n"
        story += f"  - {{text: Done {number}.}}\n" if number != SLOW else ""
    with bank.provider(story) as server:
        for number in range(1, 21):
            say = ("bank.yaml", f"Message {number}.", "--session", "long", "--create")
            if number not in KILLS:
                assert bank.command(*say).out == f"Done {number}.\n"
                continue
            run = kill(bank, server, KILLS[number], *say)
            finish(bank, server, run, number)
        sent = json.loads(server.requests[-1].body)["messages"][1:]
    users = [message["content"] for message in sent if message["role"] == "user"]
    assert users == [f"Message {number}." for number in range(1, 21)]
    answers = [message["content"] for message in sent if message["role"] == "assistant" and message["content"]]
    assert answers == ["Wait." if number == SLOW else f"Done {number}." for number in range(1, 20)]
    assert len([message for message in sent if message["role"] == "tool"]) == 19
    paid = [trace for trace in bank.traces() if trace.startswith("pay")]
    assert paid == [f"pay {number}" for number in range(1, 21) if KILLS.get(number, "pay") == "pay"], "each once"
    with FileStore(SpecProject(tmp_path)) as store:
        runs = [entry.run for entry in store.sessions.runs("long")]
        assert len(check_runs(store, "long", store.sessions.runs("long"))) == len(runs) == 20
        names = [store.records(run)[0].fact.predecessor for run in runs]  # type: ignore[union-attr]  # run_started
    assert names == [UNSET, *runs[:-1]]


def kill(bank: Bank, server: ScriptedProvider, tool: str, *words: str) -> str:
    """Kill the run of a message inside a call or a request."""
    before, requests = len(bank.traces()), len(server.requests)
    if tool == "request":
        return bank.killed(lambda: len(server.requests) > requests, *words)
    bank.hold(tool)
    run = bank.killed(lambda: len(bank.traces()) > before, *words)
    bank.release(tool)
    return run


def finish(bank: Bank, server: ScriptedProvider, run: str, number: int) -> None:
    """The next message is refused, until the run is resumed or settled."""
    tool = KILLS[number]
    requests, traces = len(server.requests), bank.traces()
    next_one = bank.command("bank.yaml", "Too early.", "--session", "long")
    where = (
        "a request, a hook or a delivery: resume it" if tool == "request" else f"`{tool}` (c1.0): resume or settle it"
    )
    assert (next_one.code, next_one.out) == (8, "")
    assert next_one.err.startswith(f"session.unfinished: run {run} of this session was cut in {where}\n"), next_one.err
    assert (len(server.requests), bank.traces()) == (requests, traces), "nothing is started"
    done = bank.command("resume", run)
    if tool == "pay":
        assert done.code == 8
        needs = bank.command("bank.yaml", "Too early.", "--session", "long")
        assert (needs.code, "was cut in `pay` (c1.0): resume or settle it" in needs.err) == (8, True)
        done = bank.command("settle", run, "c1.0", "--result", "pay is done")
    assert (done.code, done.out) == (0, "Wait.\n" if number == SLOW else f"Done {number}.\n"), done.err


def test_compacted_history_is_carried_over_processes(shop: Project) -> None:
    shop.edit(
        "shop.yaml",
        "stream: true}",
        "stream: true, context_window: 400}\ncontext: {overflow: compact, compaction: {keep: 1}}",
    )
    story = """\
agentrun: "1"
order: arrival
turns:
  - {text: "%s"}
  - {text: A summary.}
  - {text: Two.}
  - {text: Three.}
  - {text: Four.}
"""
    with shop.provider(story % ("x" * 900)) as (server, environment):
        shop.run("One?", "--new-session", "ada", **environment)
        done = shop.run("Two? " + "y" * 100, "--session", "ada", **environment)
        assert (done.code, done.out) == (0, "Two.\n"), done.err
        for text in ("Three?", "Four?"):
            assert shop.run(text, "--session", "ada", **environment).code == 0
            sent = server.requests[-1].body.decode()
            assert ("A summary." in sent, "One?" in sent, "Two." in sent) == (True, False, True)


def stored_runs(shop: Project, session: str) -> list[str]:
    return (shop.root / ".agentrun" / "sessions" / session / "runs").read_text(encoding="utf-8").split()


def started(shop: Project, run: str) -> dict[str, Any]:
    fact: dict[str, Any] = json.loads(journal_of(shop, run).read_bytes().splitlines()[0])["fact"]
    return fact


def journal_of(shop: Project, run: str) -> Path:
    return shop.root / ".agentrun" / "runs" / run / "journal.jsonl"


@pytest.mark.parametrize("name", ["", "Ada", "a/b", "..", "a" * 65, "1a", "a b"])
def test_invalid_session_name_is_refused(shop: Project, name: str) -> None:
    for option in ("--session", "--new-session"):
        assert "is not a valid name" in shop.run("Hi", option, name).err


@pytest.mark.parametrize("args", [["--mode", "record"], ["--mode", "replay"], ["--record", "all"], ["--live-tools"]])
def test_session_cannot_be_recorded_replayed_or_used_in_ci(shop: Project, args: list[str]) -> None:
    assert shop.run("Hi", "--session", "ada", *args).code == 2
    assert shop.run("Hi", "--session", "ada", CI="true").code == 2
