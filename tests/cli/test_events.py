"""`agentrun events`: the events of runs, while other processes work on them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrun.core.facts import ChildStarted, Fact, Parent, Record
from agentrun.core.spend import BudgetShare
from agentrun.spec.project import Project
from agentrun.store.files import FileStore

from ..journal.journals import RUN_STOPPED, model_asked, replied, run_started
from .command import CommandResult, agentrun, start
from .cut_runs import PAYS, SPEC, Bank, wait_until

ASKING = SPEC.replace("policy: {default: allow}", "policy: {default: allow, rules: [{id: money, ask: pay}]}")
EVIL = "\x1b[2J\u202eevil"


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that a test makes are trusted by the commands that it runs."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


class Follower:
    """`agentrun events … --follow`, in a process of its own."""

    def __init__(self, bank: Bank, *args: str) -> None:
        self.process: Any = start("events", *args, "--follow", cwd=bank.root, environment=bank.environment)
        self.out = b""

    def read_until(self, text: str) -> None:
        while text.encode() not in self.out:
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, f"it ended without {text!r}: {self.out!r}"
            self.out += more

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate()
        assert b"Traceback" not in err, err
        return self.process.returncode, (self.out + out).decode(), err.decode()


@contextmanager
def follow(bank: Bank, *args: str) -> Iterator[Follower]:
    follower = Follower(bank, *args)
    try:
        yield follower
    finally:
        follower.process.kill()
        follower.process.communicate()


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def store_runs(root: Path, *journals: tuple[str, tuple[Fact, ...]]) -> None:
    with FileStore(Project(root), sync="process") as store:
        for run, facts in journals:
            journal = store.open(run)
            for fact in facts:
                journal.append(Record(journal.seq + 1, 1000, journal.epoch, journal.head, fact))


def events(root: Path, *args: str, **env: Any) -> CommandResult:
    return agentrun("events", *args, cwd=root, **env)


def shown(done: CommandResult) -> list[tuple[str, int]]:
    assert done.code == 0, done.err
    return [(line["run"], line["record"]["seq"]) for line in done.lines()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with three runs, one of them with a sub-agent, and one that is not finished."""
    starting = ChildStarted("c1.0", "billing", "run-b.c1.0", BudgetShare())
    child = run_started(run="run-b.c1.0", agent="billing", parent=Parent("run-b", "c1.0", 1, BudgetShare()))
    store_runs(
        tmp_path,
        ("run-a", (run_started(run="run-a"), model_asked(), replied("Hello"), RUN_STOPPED)),
        ("run-b", (run_started(run="run-b", agent="desk"), starting)),
        ("run-b.c1.0", (child, RUN_STOPPED)),
        ("run-c", (run_started(run="run-c"), RUN_STOPPED)),
    )
    return tmp_path


# --- a run of another process ----------------------------------------------------------------------------------


def test_follower_prints_each_record_as_the_run_itself_does(bank: Bank) -> None:
    """The same objects with a cursor, from a second process that begins in the middle, and ends with the run."""
    bank.hold("pay")
    with bank.provider(), bank.started("bank.yaml", "--json") as run:
        wait_until(bank.recorded("tool_started"))
        (name,) = bank.run_ids()
        with follow(bank, name[4:12], "--json") as follower:
            follower.read_until('"tool_started"')
            bank.release("pay")
            code, out, err = follower.end()
        own = [line for line in lines_of(run.communicate()[0].decode()) if "record" in line]
    assert (code, err) == (0, "")
    found = lines_of(out)
    assert [{key: value for key, value in line.items() if key != "cursor"} for line in found] == own
    assert len({line["cursor"] for line in found}) == len(own)
    assert "call" in own[4]


def test_follower_shows_the_story_of_the_run_and_its_answer(bank: Bank) -> None:
    bank.hold("pay")
    with bank.provider(), bank.started() as run:
        wait_until(bank.recorded("tool_started"))
        with follow(bank, *bank.run_ids()) as follower:
            follower.read_until("→ pay")
            bank.release("pay")
            code, out, err = follower.end()
        answer, story = (text.decode() for text in run.communicate())
    *lines, summary = story[story.index("bank: Pay.") :].splitlines()
    assert (code, out.splitlines()) == (0, [*lines, "answer", f"  {answer.strip()}", summary]), story
    assert err == ""


def test_owner_that_is_killed_ends_its_follower(bank: Bank) -> None:
    bank.hold("pay")
    with bank.provider(), bank.started() as run:
        wait_until(bank.recorded("tool_started"))
        (name,) = bank.run_ids()
        with follow(bank, name) as follower, follow(bank, name, "--json") as other:
            follower.read_until("→ pay")
            other.read_until('"tool_started"')
            run.kill()
            code, _, err = follower.end()
            assert (code, err.splitlines()) == (
                8,
                ["the run is not finished, and no process works on it", f"  → agentrun resume {name}"],
            )
            code, out, err = other.end()
    *_, last, left = lines_of(out)
    assert (code, err) == (8, "")
    assert left == {"run": name, "status": "interrupted", "waits_for": [], "cursor": last["cursor"]}


def test_follower_continues_with_the_next_owner(bank: Bank) -> None:
    """The cursor of a follower that ended is valid after a crash of the owner, in a new process."""
    with bank.provider():
        bank.hold("look")
        story = PAYS.replace("pay", "look")
        with bank.provider(story):
            name = bank.killed(bank.recorded("tool_started"))
            first = bank.command("events", name, "--follow", "--json")
            assert first.code == 8
            bank.release("look")
            bank.hold("look")
            with bank.started("resume", name):
                wait_until(bank.recorded("run_resumed"))
                with follow(bank, name, "--json", "--since", first.lines()[-1]["cursor"]) as follower:
                    follower.read_until('"run_resumed"')
                    bank.release("look")
                    code, out, _ = follower.end()
    assert code == 0
    seqs = [line["record"]["seq"] for line in [*first.lines()[:-1], *lines_of(out)]]
    assert seqs == [*range(1, len(bank.facts(name)) + 1)]


def test_run_that_waits_for_an_approval_is_left_with_what_to_do(tmp_path: Path) -> None:
    bank = Bank(tmp_path, ASKING)
    with bank.provider(), bank.started("bank.yaml", "--json") as run:
        run.communicate()
    (name,) = bank.run_ids()
    done = bank.command("events", name, "--follow")
    assert (done.code, "suspended: the run waits for an approval of pay (c1.0)" in done.err) == (8, True)
    left = bank.command("events", name, "--follow", "--json").lines()[-1]
    (wait,) = left["waits_for"]
    assert (left["status"], wait["kind"], wait["subject"], wait["tool"]) == ("waiting", "approval", "c1.0", "pay")


def test_follower_of_all_runs_gets_a_new_run_and_ends_with_ctrl_c(bank: Bank) -> None:
    with bank.provider(), follow(bank, "--json", "--since", "now") as follower:
        assert bank.command("bank.yaml").code == 0
        follower.read_until('"run_stopped"')
        follower.process.send_signal(signal.SIGINT)
        code, out, err = follower.end()
    (name,) = bank.run_ids()
    assert (code, err) == (130, "")
    assert [(line["run"], line["record"]["fact"]["type"]) for line in lines_of(out)] == [
        (name, kind) for kind in bank.kinds(name)
    ]


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_follower_ends_when_nobody_reads_its_output(root: Path, flags: tuple[str, ...]) -> None:
    """Even if there is no event that it could print."""
    process: Any = start("events", "--follow", *flags, cwd=root, environment={"HOME": str(root)})
    os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_followers_change_nothing(bank: Bank) -> None:
    bank.hold("pay")
    with bank.provider(), bank.started():
        wait_until(bank.traces)  # the owner has written all that it writes before the call
        (name,) = bank.run_ids()
        store = bank.root / ".agentrun"
        before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
        with follow(bank, name) as follower, follow(bank, "--json") as other:
            follower.read_until("→ pay")
            other.read_until('"tool_started"')
        assert bank.command("events", name).code == 0
        assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


# --- cursors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("run-b",), (), ("--agent", "triage"), ("--agent", "billing")], ids=" ".join)
def test_since_continues_after_any_event(root: Path, words: tuple[str, ...]) -> None:
    whole = events(root, *words, "--json")
    found = shown(whole)
    assert found
    for number, line in enumerate(whole.lines(), 1):
        assert shown(events(root, *words, "--json", "--since", line["cursor"])) == found[number:]


def test_events_are_those_of_the_run_the_agent_or_all(root: Path) -> None:
    family = [("run-b", 1), ("run-b", 2), ("run-b.c1.0", 1), ("run-b.c1.0", 2)]
    assert shown(events(root, "run-b", "--json")) == family
    assert shown(events(root, "--agent", "billing", "--json")) == family[2:]
    assert shown(events(root, "--json")) == [*(("run-a", n) for n in range(1, 5)), *family, ("run-c", 1), ("run-c", 2)]
    assert shown(events(root, "--since", "now", "--json")) == []
    assert shown(events(root, "--agent", "nobody", "--json")) == []


@pytest.mark.parametrize(
    ("of", "used", "scope"),
    [
        (("run-a",), (), "all"),
        ((), ("run-a",), "family:run-a"),
        (("run-a",), ("run-c",), "family:run-c"),
        ((), ("--agent", "desk"), "agent:desk"),
    ],
)
def test_cursor_of_another_scope_is_refused(root: Path, of: tuple[str, ...], used: tuple[str, ...], scope: str) -> None:
    cursor = events(root, *of, "--json").lines()[0]["cursor"]
    for flags in ((), ("--follow",)):
        done = events(root, *used, "--since", cursor, "--json", *flags)
        (line,) = done.lines()
        assert (done.code, line["error"]["code"]) == (2, "cursor.scope")
        assert line["error"]["fields"] == {"cursor": cursor, "scope": scope}


def test_cursor_of_another_store_is_refused(root: Path) -> None:
    """Also one of a store whose list of runs was lost."""
    cursor = events(root, "--json").lines()[-1]["cursor"]
    (root / ".agentrun" / "order").write_text("run-c\nrun-b\nrun-a\n", encoding="utf-8")
    done = events(root, "--since", cursor)
    assert done.code == 2
    assert done.err.startswith("cursor.scope: this cursor cannot be used here: it is not of this store")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--since", "1-abc"), "cursor.invalid"),
        (("--since", ""), "cursor.invalid"),
        (("run-x",), "run.not_found"),
        (("../run-a",), "run.not_found"),
        (("run-x", "--follow"), "run.not_found"),
        (("run-a", "--agent", "desk"), "usage"),
    ],
)
def test_wrong_words_are_refused(root: Path, words: tuple[str, ...], code: str) -> None:
    done = events(root, *words, "--json")
    (line,) = done.lines()
    assert (done.code, line["error"]["code"]) == (2, code)


# --- gaps and damage -------------------------------------------------------------------------------------------


def test_run_that_was_removed_before_it_was_read_is_a_gap(root: Path) -> None:
    cursors = {(line["run"], line["record"]["seq"]): line["cursor"] for line in events(root, "--json").lines()}
    for name in ("run-b", "run-c"):
        assert agentrun("runs", "rm", "--force", name, cwd=root).code == 0
    done = events(root, "--since", cursors["run-b", 1], "--json")
    gap, other = done.lines()
    assert (done.code, gap["run"], gap["gap"]["error"]["code"]) == (0, "run-b", "run.not_found")
    assert gap["gap"]["since"] == cursors["run-b", 1]
    assert (other["run"], other["gap"]["error"]["code"]) == ("run-c", "run.not_found")
    assert events(root, "--since", other["cursor"], "--json").out == "", "it is told once"
    text = events(root, "--since", cursors["run-a", 4])
    assert "events of run-c are missing:\nrun.not_found: there is no run run-c\n" in text.err
    assert [run for run, _ in shown(events(root, "--json"))] == ["run-a"] * 4, "nobody has seen them"


def damage(root: Path, run: str) -> None:
    path = root / ".agentrun" / "runs" / run / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Hello", b"Hullo"))


def test_damaged_journal_has_its_code(root: Path) -> None:
    damage(root, "run-a")
    for flags in ((), ("--follow",)):
        done = events(root, "run-a", "--json", *flags)
        *before, last = done.lines()
        assert ([line["record"]["seq"] for line in before], done.code) == ([1, 2, 3], 7)
        assert last["error"]["code"] == "journal.damaged"
    done = events(root, "--json")
    gap, *others = done.lines()[3:]
    assert (done.code, gap["run"], gap["gap"]["error"]["code"]) == (7, "run-a", "journal.damaged")
    assert [line["run"] for line in others] == ["run-b", "run-b", "run-b.c1.0", "run-b.c1.0", "run-c", "run-c"]


def test_journal_that_lost_records_after_a_cursor_is_truncated(root: Path) -> None:
    cursor = events(root, "run-a", "--json").lines()[-1]["cursor"]
    path = root / ".agentrun" / "runs" / "run-a" / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    path.with_name("head").unlink()
    done = events(root, "run-a", "--since", cursor)
    assert (done.code, done.err.startswith("journal.truncated: ")) == (7, True)


def test_store_of_another_person_is_not_followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    clone = tmp_path_factory.mktemp("clone")
    shutil.copytree(root / ".agentrun", clone / ".agentrun")
    for words in (("run-a", "--follow"), ("--follow",), ("run-a",)):
        done = agentrun("events", *words, cwd=clone)
        assert (done.code, done.out, done.err.startswith("storage.untrusted: ")) == (7, "", True)


def test_store_without_a_list_of_runs_is_read_in_the_order_of_their_starts(root: Path) -> None:
    """As one of an earlier release. The next run writes the list."""
    whole = events(root, "--json")
    order = root / ".agentrun" / "order"
    order.unlink()
    again = events(root, "--json")
    assert again.out == whole.out
    store_runs(root, ("run-0", (run_started(run="run-0"), RUN_STOPPED)))
    assert order.read_text(encoding="utf-8") == "run-a\nrun-b\nrun-c\nrun-0\n"
    assert shown(events(root, "--since", again.lines()[-1]["cursor"], "--json")) == [("run-0", 1), ("run-0", 2)]


def test_project_without_runs_has_no_events(tmp_path: Path) -> None:
    assert (events(tmp_path).out, events(tmp_path).err, events(tmp_path, "--json").code) == ("", "", 0)


def test_runs_that_are_not_stored_have_no_events(tmp_path: Path) -> None:
    done = events(tmp_path, "--follow", AGENTRUN_STORE="none")
    assert (done.code, "because AGENTRUN_STORE is none" in done.err) == (2, True)


# --- text ------------------------------------------------------------------------------------------------------


def test_text_controls_no_terminal_and_has_no_secret(tmp_path: Path) -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    run = (run_started(run="run-a", agent=f"desk{EVIL}"), model_asked(), replied(f"{EVIL} {key}"), RUN_STOPPED)
    store_runs(tmp_path, ("run-a", run))
    for words in ((), ("run-a",), ("--json",), ("run-a", "--json")):
        done = events(tmp_path, *words, OPENAI_API_KEY=key)
        assert done.code == 0
        assert "evil" in done.out
        assert not any(each in done.out for each in ("\x1b", "\u202e", key))


def test_text_of_several_runs_names_them(root: Path) -> None:
    lines = events(root).out.splitlines()
    assert [line for line in lines if " · run" in line] == ["triage · run-a", "desk · run-b", "triage · run-c"]
    some = events(root, "--since", events(root, "--json").lines()[1]["cursor"])
    assert some.out.splitlines()[0] == "triage · run-a"
    assert "turn 1" not in "".join(some.out.splitlines()[:2]), "what came before the cursor is not shown"
    assert "  Hello" in some.out
