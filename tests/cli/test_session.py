"""`--session NAME`: a conversation over several commands."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

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
        first = shop.run("I am Ada.", "--session", "ada", **environment)
        second = shop.run("What is my name?", "--session", "ada", "--journal", "copy.jsonl", **environment)
        assert (first.out, second.out) == ("Hello, Ada.\n", "Ada.\n"), second.err
        sent = json.loads(server.requests[1].body)["messages"]
        assert [message["content"] for message in sent[1:]] == ["I am Ada.", "Hello, Ada.", "What is my name?"]
        other = shop.run("I am Bob.", "--session", "bob", **environment)
        assert other.out == "Hello, Ada.\n", "another session begins anew"
    assert first.err.startswith("live: session ada (requests go to openai")
    folder = shop.root / ".agentrun" / "sessions" / "ada"
    assert sorted(path.name for path in folder.glob("*.jsonl")) == ["0001.jsonl", "0002.jsonl"]
    assert (shop.root / "copy.jsonl").read_bytes() == (folder / "0002.jsonl").read_bytes()
    assert (shop.root / ".agentrun" / ".gitignore").read_text() == "*\n"


def test_dedupe_refuses_a_repeated_message_in_one_session(shop: Project) -> None:
    shop.edit("shop.yaml", "budgets:", "admission: {dedupe: true}\nbudgets:")
    with shop.provider(STORY) as (server, environment):
        assert shop.run("Hello", "--session", "ada", **environment).code == 0
        again = shop.run(" Hello ", "--session", "ada", **environment)
        assert (again.code, "input.rejected" in again.err, len(server.requests)) == (2, True, 1)
        assert shop.run("Hello", "--session", "bob", **environment).code == 0


def test_session_in_use_is_busy_until_its_process_ends(shop: Project) -> None:
    slow = STORY.replace('text: "Hello, Ada."', 'text: "Hello, Ada."\n    faults: [{delay: 60s}]')
    with shop.provider(slow) as (server, environment):
        first = subprocess.Popen(
            [SCRIPT, "shop.yaml", "Hi", "--session", "ada"],
            cwd=shop.root,
            env={"PATH": os.environ["PATH"], **environment},
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: bool(server.requests))
            busy = shop.run("Hi", "--session", "ada", **environment)
            assert (busy.code, "session.busy" in busy.err, len(server.requests)) == (9, True, 1)
        finally:
            first.kill()
            first.wait()
    with shop.provider(STORY) as (_, environment):
        after = shop.run("Hi again", "--session", "ada", **environment)
    assert after.code == 0, "what a killed process held is free, and its half run does not stand in the way"


def test_cut_off_last_line_is_ignored_and_a_changed_journal_is_damaged(shop: Project) -> None:
    with shop.provider(STORY) as (_, environment):
        shop.run("I am Ada.", "--session", "ada", **environment)
        journal = shop.root / ".agentrun" / "sessions" / "ada" / "0001.jsonl"
        journal.write_bytes(journal.read_bytes()[:-20])
        done = shop.run("What is my name?", "--session", "ada", **environment)
        assert done.code == 0, done.err
        journal.write_bytes(journal.read_bytes().replace(b"Ada", b"Eve", 1))
        damaged = shop.run("What is my name?", "--session", "ada", **environment)
    assert (damaged.code, "journal.damaged" in damaged.err) == (7, True)


@pytest.mark.parametrize("name", ["", "Ada", "a/b", "..", "a" * 65, "1a", "a b"])
def test_invalid_session_name_is_refused(shop: Project, name: str) -> None:
    assert shop.run("Hi", "--session", name).code == 2


@pytest.mark.parametrize("args", [["--mode", "record"], ["--mode", "replay"], ["--record", "all"], ["--live-tools"]])
def test_session_cannot_be_recorded_replayed_or_used_in_ci(shop: Project, args: list[str]) -> None:
    assert shop.run("Hi", "--session", "ada", *args).code == 2
    assert shop.run("Hi", "--session", "ada", CI="true").code == 2
