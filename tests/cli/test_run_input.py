"""`agentrun send`, `cancel` and `settle` for runs that another process works on, and messages after a crash."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentrun.core.facts import ApprovalAnswered, MessageQueued
from agentrun.core.messages import user_message
from agentrun.engine import inbox as engine_inbox
from agentrun.engine.inbox import send_fact
from agentrun.errors import RequestError
from agentrun.redactor import Redactor
from agentrun.spec.project import find_working_project
from agentrun.store.files import FileStore
from agentrun.store.inbox import InboxMessage
from agentrun.store.owner import claim_store

from . import forked_command
from .cut_runs import PAYS, SPEC, Bank, wait_until

SECRET = "sk-inbox-0123456789abcdefghij"
ASKS = SPEC.replace("{default: allow}", "{default: allow, rules: [{id: payments, ask: pay}]}")
LOOKS = """\
agentrun: "1"
turns:
  - calls: [{tool: look, args: {value: one}}]
  - text: First.
  - text: Second.
"""
BOSS = """\
agentrun: "1"
name: boss
model: {provider: openai, name: gpt-4.1-mini}
instructions: Delegate.
input: Pay.
tools: {teller: {kind: agent, spec: bank.yaml}}
policy: {default: allow}
budgets: {turns: 4}
hooks: [{id: last, at: on_stop, call: "bank_hooks:last"}]
"""
HOOKS = """\
from pathlib import Path

def last(question):
    Path(__file__).with_name("ended.txt").write_text(str(question.value))
"""
ASKS_TELLER = """\
agentrun: "1"
order: arrival
turns:
  - calls: [{tool: teller, args: {message: Pay.}}]
  - calls: [{tool: pay, args: {value: one}}]
"""


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


@pytest.fixture
def asking(tmp_path: Path) -> Bank:
    return Bank(tmp_path, ASKS)


def inbox(bank: Bank, run: str) -> list[str]:
    return [path.name for path in (bank.store / run / "inbox").iterdir()]


def fault_code(bank: Bank, run: str) -> str:
    code: str = bank.facts(run)[-1]["fault"]["code"]
    return code


# --- send ----------------------------------------------------------------------------------------------------------


def test_message_reaches_a_run_of_another_process(bank: Bank) -> None:
    bank.hold("look")
    with bank.provider(LOOKS) as server, bank.started() as owner:
        wait_until(bank.traces)
        (run,) = bank.run_ids()
        done = bank.command("send", run, f"Also look at {SECRET}.", OPENAI_API_KEY=SECRET)
        assert (done.code, done.out) == (0, ""), done.err
        assert done.err.splitlines() == [
            f"the message is queued in {run}",
            f"another process works on {run} and continues it",
        ]
        bank.release("look")
        out, _ = owner.communicate(timeout=60)
        assert (owner.returncode, out) == (0, b"Second.\n")
        assert b"Also look at" in server.requests[-1].body
        assert SECRET.encode() not in server.requests[-1].body
    assert bank.kinds(run).count("message_queued") == 1
    assert inbox(bank, run) == []
    done = bank.command("send", run, "More.")
    assert (done.code, bank.kinds(run)[-1]) == (2, "run_stopped")
    assert "run.invalid_state" in done.err


def test_message_continues_a_run_that_waits(asking: Bank) -> None:
    with asking.provider(PAYS.replace("  - text: Paid.", "  - text: Paid.\n  - text: Twice.")):
        assert asking.command("bank.yaml").code == 8
        (run,) = asking.run_ids()
        (line,) = asking.command("send", run, "Thanks.", "--no-resume", "--json").lines()
        assert line == {"run": run, "sent": True}
        assert asking.kinds(run)[-1] == "message_queued"
        assert asking.command("send", "-", "And?").code == 8, "the question is still open"
        assert asking.command("approve", run, "c1.0").out == "Twice.\n"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("  ", "there is no message to send"),
        ("x" * 41, "the message has 41 characters, but the limit is 40"),
        ("Pay.", "the same message was already sent in this session"),
        ("Thanks.", "the same message was already sent in this session"),
    ],
    ids=["empty", "long", "input", "repeated"],
)
def test_message_is_admitted_like_an_input(asking: Bank, message: str, text: str) -> None:
    spec = asking.root / "bank.yaml"
    spec.write_text(f"{spec.read_text()}admission: {{max_chars: 40, dedupe: true}}\n")
    with asking.provider():
        assert asking.command("bank.yaml").code == 8
        (run,) = asking.run_ids()
        assert asking.command("send", run, "Thanks.", "--no-resume").code == 0
        assert asking.command("send", run, "x" * 40, "--no-resume").code == 0
        done = asking.command("send", run, message)
    assert (done.code, inbox(asking, run)) == (2, [])
    assert f"input.rejected: {text}" in done.err
    assert asking.kinds(run).count("message_queued") == 2


def test_sub_agents_get_no_messages_of_their_own(asking: Bank) -> None:
    _write_boss(asking)
    with asking.provider(ASKS_TELLER):
        assert asking.command("boss.yaml").code == 8
        (run,) = asking.run_ids()
        for command in (("send", f"{run}.c1.0", "Go."), ("cancel", f"{run}.c1.0")):
            done = asking.command(*command)
            assert done.code == 2
            assert f"{run}.c1.0 is the run of a sub-agent" in done.err


# --- cancel --------------------------------------------------------------------------------------------------------


def _write_boss(bank: Bank) -> None:
    (bank.root / "boss.yaml").write_text(BOSS)
    (bank.root / "bank_hooks.py").write_text(HOOKS)


def test_cancel_ends_a_run_of_another_process_and_its_sub_agents(bank: Bank) -> None:
    _write_boss(bank)
    bank.hold("pay")
    with bank.provider(ASKS_TELLER), bank.started("boss.yaml") as owner:
        wait_until(bank.traces)
        (run,) = bank.run_ids()
        done = bank.command("cancel", run, "--by", "Ada", "--json")
        (line,) = done.lines()
        assert (done.code, line.get("cancelled"), line.get("by")) == (0, True, "Ada"), line
        bank.release("pay")
        owner.communicate(timeout=60)
    assert owner.returncode == 130
    assert [fault_code(bank, each) for each in (run, f"{run}.c1.0")] == ["cancelled"] * 2
    by = [
        fact["by"] for each in (run, f"{run}.c1.0") for fact in bank.facts(each) if fact["type"] == "cancel_requested"
    ]
    assert by == ["Ada", "parent"]
    assert (inbox(bank, run), (bank.root / "ended.txt").exists()) == ([], True)


@pytest.mark.parametrize("is_killed", [False, True], ids=["suspended", "killed"])
def test_cancel_ends_a_run_that_no_process_works_on(asking: Bank, is_killed: bool) -> None:
    """It needs no key and asks no model: only the hooks of the end are called."""
    _write_boss(asking)
    with asking.provider(ASKS_TELLER) as server:
        if is_killed:
            asking.hold("pay")
            (asking.root / "bank.yaml").write_text(SPEC)
            run = asking.killed(asking.traces, "boss.yaml")
        else:
            assert asking.command("boss.yaml").code == 8
            (run,) = asking.run_ids()
        count = len(server.requests)
        del asking.environment["OPENAI_API_KEY"], asking.environment["OPENAI_BASE_URL"]
        done = asking.command("cancel", run, "--by", "Ada")
        assert (done.code, done.out, done.err) == (0, "", f"{run} is cancelled by Ada\n")
        assert len(server.requests) == count
    assert [fault_code(asking, each) for each in (run, f"{run}.c1.0")] == ["cancelled"] * 2
    assert "cancelled" in (asking.root / "ended.txt").read_text()
    before = (asking.store / run / "journal.jsonl").read_bytes()
    again = asking.command("cancel", run)
    assert (again.code, again.err) == (0, f"{run} is already finished\n")
    assert (asking.store / run / "journal.jsonl").read_bytes() == before
    assert asking.command("verify", run).code == 0


def test_cancel_leaves_a_finished_run_as_it_is(bank: Bank) -> None:
    with bank.provider():
        assert bank.command("bank.yaml").code == 0
        (run,) = bank.run_ids()
        (line,) = bank.command("cancel", run, "--json").lines()
        assert (line["cancelled"], line["status"]) == (False, "completed")
        assert bank.command("cancel", run).err == f"{run} is already finished: completed\n"
    assert bank.command("cancel", "nowhere").code == 2


# --- settle --------------------------------------------------------------------------------------------------------


def test_live_owner_takes_a_settlement(bank: Bank) -> None:
    """The run was killed in two calls. It is resumed: one of them runs again, while the outcome of the other is not
    known."""
    spec = bank.root / "bank.yaml"
    spec.write_text(spec.read_text().replace('"bank:pay"}', '"bank:pay", parallel: true}'))
    bank.hold("pay", "look")
    with bank.provider(PAYS.replace("[{tool: pay", "[{tool: look, args: {value: two}}, {tool: pay")):
        run = bank.killed(lambda: len(bank.traces()) == 2)
        with bank.started("resume", run) as owner:
            wait_until(lambda: len(bank.traces()) == 3)
            done = bank.command("settle", run, "c1.1", "--result", "Paid by hand.", "--by", "Ada")
            assert done.code == 0, done.err
            assert done.err.splitlines() == [
                f"pay (c1.1) of {run} is settled by Ada: it has a result now",
                f"another process works on {run} and continues it",
            ]
            assert bank.command("settle", run, "c1.1", "--retry").code == 2
            bank.release("pay", "look")
            assert owner.communicate(timeout=60)[0] == b"Paid.\n"
    assert bank.traces().count("pay one") == 1
    assert bank.command("audit", run).code == 0


# --- recordings ----------------------------------------------------------------------------------------------------


def test_recording_takes_only_a_cancellation(asking: Bank) -> None:
    """The answer of another process would not be on the cassette."""
    asking.hold("look")
    story = PAYS.replace("[{tool: pay", "[{tool: look, args: {value: two}}, {tool: pay")
    record = ("bank.yaml", "--mode", "record", "--yes", "--approve", "all")
    with asking.provider(story), asking.started(*record) as owner:
        wait_until(asking.recorded("approval_answered"))
        (run,) = asking.run_ids()
        for command in (("send", run, "More."), ("settle", run, "c1.1", "--retry")):
            done = asking.command(*command)
            assert done.code == 2, done.err
            assert f"the run {run} is being recorded, and its cassette would not contain this" in done.err
        assert inbox(asking, run) == []
        assert asking.command("cancel", run).code == 0
        asking.release("look")
        owner.communicate(timeout=60)
    assert (owner.returncode, fault_code(asking, run)) == (130, "cancelled")
    assert list((asking.root / "cassettes").rglob("*.yaml")) == []


def test_hostile_message_to_a_recording_is_refused_by_its_owner(bank: Bank) -> None:
    """A sender that does not check is not trusted."""
    bank.hold("look")
    with bank.provider(LOOKS), bank.started("bank.yaml", "--mode", "record", "--yes") as owner:
        wait_until(bank.traces)
        (run,) = bank.run_ids()
        FileStore(find_working_project(bank.root)).inbox(run).leave(run, MessageQueued("", user_message("More.")))
        wait_until(lambda: inbox(bank, run) == [])
        bank.release("look")
        assert owner.communicate(timeout=60)[0] == b"First.\n"
    assert "message_queued" not in bank.kinds(run)


# --- crashes -------------------------------------------------------------------------------------------------------

DIES_AT_REMOVAL = """\
import os, signal
from agentrun.store.inbox import Inbox
Inbox.remove = lambda self, id: os.kill(os.getpid(), signal.SIGKILL)
from agentrun.cli import main
main()
"""


def dying(bank: Bank, *args: str) -> forked_command.Copy:
    """A command that is killed where it would remove a message."""
    environment = {"PATH": os.environ["PATH"], **bank.environment}
    with open(os.devnull, "r+b") as null:
        streams = [null.fileno()] * 3
        return forked_command.Copy(args, bank.root, environment, streams, program=DIES_AT_REMOVAL)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied with fork")
@pytest.mark.parametrize("is_owned", [True, False], ids=["owner", "sender"])
def test_message_of_a_process_that_was_killed_before_it_removed_it_counts_once(bank: Bank, is_owned: bool) -> None:
    bank.hold("look")
    with bank.provider(LOOKS) as server:
        if is_owned:
            owner = dying(bank, "bank.yaml")
            wait_until(bank.traces)
            (run,) = bank.run_ids()
            sender = bank.start("send", run, "Once.", "--no-resume")
            assert owner.wait(60) == -signal.SIGKILL
            sender.communicate(timeout=60)
            assert sender.returncode == 0, "the sender takes over, and finds its message in the journal"
        else:
            run = bank.killed(bank.traces)
            assert dying(bank, "send", run, "Once.", "--no-resume").wait(60) == -signal.SIGKILL
            assert len(inbox(bank, run)) == 1
        assert bank.kinds(run).count("message_queued") == 1
        bank.release("look")
        done = bank.command("resume", run)
        assert (done.code, done.out) == (0, "Second.\n"), done.err
        assert server.requests[-1].body.count(b"Once.") == 1
    assert (bank.kinds(run).count("message_queued"), inbox(bank, run)) == (1, [])


def test_resume_takes_the_messages_that_were_left_and_survives_hostile_files(bank: Bank) -> None:
    bank.hold("look")
    with bank.provider(LOOKS):
        run = bank.killed(bank.traces)
        folder, secret = bank.store / run / "inbox", bank.root / "secret.json"
        secret.write_text("{}")
        names = iter(range(10**18, 10**18 + 9))
        fact = {
            "type": "message_queued",
            "id": "",
            "message": {"role": "user", "parts": [{"kind": "text", "text": "A"}]},
        }
        for data in (b"", b"[" * 9999, json.dumps({"run": "run-2", "fact": fact}).encode()):
            (folder / f"{next(names)}-{'0' * 16}.json").write_bytes(data)
        os.mkfifo(folder / f"{next(names)}-{'0' * 16}.json")
        (folder / f"{next(names)}-{'0' * 16}.json").symlink_to(secret)
        unknown = {"run": f"{run}.c9.9", "fact": fact}
        (folder / f"{next(names)}-{'0' * 16}.json").write_text(json.dumps(unknown))
        (folder / f"{next(names)}-{'0' * 16}.json").write_text(json.dumps({"run": run, "fact": fact}))
        bank.release("look")
        done = bank.command("resume", run)
    assert (done.code, done.out) == (0, "Second.\n"), done.err
    assert (inbox(bank, run), secret.read_text()) == ([], "{}")
    assert bank.kinds(run).count("message_queued") == 1


# --- a sender, and a process that does not take its message ----------------------------------------------------------


@pytest.fixture
def stores(asking: Bank, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run that waits, and two stores: a lock of one is in the way of the other."""
    with asking.provider():
        assert asking.command("bank.yaml").code == 8
    monkeypatch.setenv("XDG_STATE_HOME", str(asking.root / "state"))
    project = find_working_project(asking.root)
    claim_store(project)
    (run,) = asking.run_ids()
    with FileStore(project) as one, FileStore(project) as two:
        yield run, one, two


def make_answer(store: FileStore, run: str, by: str) -> ApprovalAnswered:
    asked = next(record.fact for record in store.records(run) if hasattr(record.fact, "grant"))
    return ApprovalAnswered("c1.0", asked.question, "approved", by)  # type: ignore[union-attr]  # it has a grant


def test_message_that_is_not_taken_in_time_stays_and_the_next_sender_records_it(
    stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, busy, store = stores
    monkeypatch.setattr(engine_inbox, "MAX_SENDER_WAIT", 0.05)
    assert busy.try_lock(run)
    with pytest.raises(RequestError, match="did not take the message within 0 seconds") as refused:
        send_fact(store, run, make_answer(store, run, "Ada"), Redactor(()))
    assert (refused.value.code, refused.value.exit_code) == ("session.busy", 9)
    assert len(store.inbox(run).messages()) == 1
    busy.unlock(run)
    with pytest.raises(RequestError, match="already answered: approved by Ada"):
        send_fact(store, run, make_answer(store, run, "Bob"), Redactor(()))
    answers = [record.fact.by for record in store.records(run) if isinstance(record.fact, ApprovalAnswered)]
    assert (answers, store.inbox(run).messages()) == (["Ada"], [])


def test_sender_waits_longer_than_a_sender_that_was_killed(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both messages are of the same moment. Nobody works on the run, so that is not `session.busy`."""
    run, _, store = stores
    seconds = 0.0

    def sleep(_: float) -> None:
        nonlocal seconds
        seconds += 0.3

    monkeypatch.setattr(engine_inbox, "time", SimpleNamespace(monotonic=lambda: seconds, sleep=sleep))
    monkeypatch.setattr(InboxMessage, "age", property(lambda message: seconds))
    store.inbox(run).leave(run, make_answer(store, run, "Ada"))
    with pytest.raises(RequestError, match="already answered: approved by Ada"):
        send_fact(store, run, make_answer(store, run, "Bob"), Redactor(()))


def test_sender_leaves_the_message_of_another_one_that_waits(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sender continues the run, so it records its own answer."""
    run, _, store = stores
    other = store.inbox(run).leave(run, make_answer(store, run, "Ada"))
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        assert not any(isinstance(record.fact, ApprovalAnswered) for record in store.records(run))
        assert not store.is_locked(run)
        if looks == 3:
            store.inbox(run).remove(other.id)

    monkeypatch.setattr(time, "sleep", sleep)
    assert send_fact(store, run, make_answer(store, run, "Bob"), Redactor(())) is True
    assert (looks, store.is_locked(run)) == (3, True)


def test_sender_that_is_interrupted_takes_its_message_back(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, busy, store = stores
    assert busy.try_lock(run)

    def interrupt(_: float) -> None:
        assert len(store.inbox(run).messages()) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        send_fact(store, run, MessageQueued("", user_message("Go.")), Redactor(()))
    assert store.inbox(run).messages() == []
