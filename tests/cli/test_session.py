"""`--session NAME`: a conversation over several commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .command import SCRIPT
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


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data[:-20], "journal.truncated"),
        (lambda data: data[: data[:-1].rindex(b"\n") + 1], "journal.truncated"),
        (lambda data: data.replace(b"Ada", b"Eve", 1), "journal.damaged"),
        (None, "recovery.failed"),
    ],
)
def test_session_with_a_damaged_journal_stops_with_its_code(shop: Project, change: Any, code: str) -> None:
    with shop.provider(STORY) as (server, environment):
        shop.run("I am Ada.", "--new-session", "ada", **environment)
        journal = journal_of(shop, *stored_runs(shop, "ada"))
        if change is None:
            shutil.rmtree(journal.parent)
        else:
            journal.write_bytes(change(journal.read_bytes()))
        damaged = shop.run("What is my name?", "--session", "ada", **environment)
        assert (damaged.code, code in damaged.err, len(server.requests)) == (7, True, 1), damaged.err


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
