"""Twelve secrets, planted in every place, never reach a file or a terminal."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file
from agentrun.testing.provider import ScriptedProvider

from ..cli.command import start
from .canary import ALL, KEY, SECRETS, Trap, environment, leaks, story

EVERYTHING = (ALL, "--param", f"who={ALL}", "--approve", "approvals.yaml", "--attach", "letter.txt")
REFUSAL = {"error": {"message": f"Not with {ALL}", "code": KEY, "param": ALL}}


@contextmanager
def leaking_provider(**faults: object) -> Iterator[dict[str, str]]:
    """The environment in which the provider is asked, which has it in for us."""
    with ScriptedProvider(story(**faults)) as server:
        yield environment(server.url)


def script_with_refusal(status: int) -> str:
    fault = {"status": status, "times": 99, "body": REFUSAL, "headers": {"set-cookie": KEY, "x-request-id": KEY}}
    return yaml.safe_dump({"agentrun": "1", "turns": [{"text": "x", "faults": [fault]}]}, allow_unicode=True)


def test_record_live_and_replay_leak_no_secret(tmp_path: Path) -> None:
    trap = Trap(tmp_path)
    with leaking_provider() as given:
        record = ("canary.yaml", *EVERYTHING, "--case", "all", "--mode", "record", "--yes")
        assert trap.run("record", *record, "--journal", "record.jsonl", environment=given) == 0
        live = ("canary.yaml", *EVERYTHING, "--mode", "live")
        assert trap.run("as JSON", *live, "--journal", "live.jsonl", "--json", environment=given) == 0
        assert trap.run("in a session", *live, "--new-session", "mine", "-q", "--journal", "-", environment=given) == 0
        assert trap.in_terminal("in a terminal", *live, environment=given) == 0
        assert trap.run("live tools", "canary.yaml", "--case", "all", "--live-tools", environment=given) == 3
    for words in (b"turn 3", b"[redacted:OPENAI_API_KEY]", b"recorded: cassettes/canary/all.yaml"):
        assert words in trap.said["record"], "it did happen"
    assert b"[redacted:LONG_TOKEN]" in trap.said["in a terminal"]
    replays = {
        "replay": ("--case", "all", "--attach", "letter.txt"),
        "replay of what was said": (ALL, "--param", f"who={ALL}", "--attach", "letter.txt", "--mode", "replay"),
        "replay as JSON": ("--case", "all", "--attach", "letter.txt", "--json", "--journal", "replay.jsonl"),
        "miss": ("--case", "all"),
    }
    codes = {name: trap.run(name, "canary.yaml", *args, environment=SECRETS) for name, args in replays.items()}
    assert codes == {"replay": 0, "replay of what was said": 0, "replay as JSON": 0, "miss": 3}
    bare = ("canary.yaml", "--case", "all", "--attach", "letter.txt", "--journal", "bare.jsonl")
    assert trap.run("replay that knows nothing", *bare, environment={}) == 0
    assert canonical(read_journal_file(tmp_path / "bare.jsonl")) == canonical(
        read_journal_file(tmp_path / "record.jsonl")
    )
    assert (tmp_path / "bare.jsonl").read_bytes() == (tmp_path / "replay.jsonl").read_bytes()
    for command in ("show", "audit", "ls"):
        trap.run(command, "cassette", command, "cassettes/canary/all.yaml", environment=SECRETS)
    assert trap.leaks() == {}


def test_failing_commands_leak_no_secret(tmp_path: Path) -> None:
    trap = Trap(tmp_path)
    for status in (400, 401, 429):
        with ScriptedProvider(script_with_refusal(status)) as server:
            once = ("--set", "retry.attempts=1", "--journal", f"{status}.jsonl")
            args = ("canary.yaml", ALL, "--mode", "record", "--yes", "--case", f"no-{status}", *once)
            assert trap.run(f"refused with {status}", *args, environment=environment(server.url)) == 6
    gone = environment("http://127.0.0.1:9")
    commands: dict[str, tuple[str, ...]] = {
        "nobody there": ("canary.yaml", ALL, "--mode", "live", "--json"),
        "no case": ("canary.yaml", "--case", KEY),
        "no such param": ("canary.yaml", "--param", SECRETS["HOOK_SECRET"]),
        "no such value": ("canary.yaml", "--param", f"number={ALL}"),
        "no such name": ("canary.yaml", "--param", f"{SECRETS['DB_PASSWORD']}=1", "--json"),
        "no such file": ("canary.yaml", "--approve", SECRETS["ROUTE_KEY"].replace("/", "-")),
        "no such answer": ("canary.yaml", "--approve", "wrong.yaml", "--mode", "live"),
        "no such answer, as JSON": ("canary.yaml", "--approve", "wrong.yaml", "--mode", "live", "--json"),
        "no such command": (SECRETS["VAULT_PASSPHRASE"],),
        "nothing recorded": ("canary.yaml", ALL, "--mode", "replay"),
        "no address": ("canary.yaml", "--mode", "live"),
    }
    for name, words in commands.items():
        given = gone | ({"OPENAI_BASE_URL": f"{KEY}://{SECRETS['LONG_TOKEN']}"} if name == "no address" else {})
        assert trap.run(name, *words, "--set", "retry.attempts=1", environment=given) in (2, 3, 6), trap.said[name]
    assert trap.leaks() == {}


def test_cancelled_recording_leaks_no_secret(tmp_path: Path) -> None:
    trap = Trap(tmp_path)
    slow = yaml.safe_dump(
        {"agentrun": "1", "turns": [{"text": ALL * 20, "chunk": 1, "faults": [{"gap": "20ms", "times": 9}]}]},
        allow_unicode=True,
    )
    with ScriptedProvider(slow) as server:
        args = ("canary.yaml", ALL, "--mode", "record", "--yes", "--case", "all", "--journal", "cancelled.jsonl")
        running = start(*args, cwd=tmp_path, environment=environment(server.url))
        while not server.requests and running.poll() is None:
            time.sleep(0.02)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    trap.said["cancelled"] = out + err
    assert running.returncode == 130
    assert b"not recorded" in err
    assert (tmp_path / "cancelled.jsonl").exists()
    assert trap.leaks() == {}


# --- the search itself --------------------------------------------------------------------------------------------

BLIND = """
import sys
from agentrun.engine.{package} import {module}
{module}.known_secrets = lambda *_: []
from agentrun.cassette import redaction
redaction.search_cassette = lambda cassette, secrets: []
from agentrun.cli import main
main()
"""


def test_search_finds_the_secrets_without_redaction(tmp_path: Path) -> None:
    """Without the redactor it is all over the place."""
    trap = Trap(tmp_path)
    blind = BLIND.format(package="worlds", module="live")
    with leaking_provider() as given:
        args = ("canary.yaml", *EVERYTHING, "--case", "all", "--mode", "record", "--yes", "--journal", "record.jsonl")
        trap.run("record", *args, environment=given, program=blind)
    found = trap.leaks()
    assert found["cassettes/canary/all.yaml"] >= {*SECRETS, "the pair"}
    assert found["record.jsonl"] >= {*SECRETS, "the pair"}
    assert "canary.cases.yaml" not in found


@pytest.mark.parametrize("name", SECRETS)
def test_search_finds_each_secret(name: str) -> None:
    value = SECRETS[name]
    assert name in leaks(b"x" + value.encode() + b"x")
    assert leaks(b"nothing to be seen [redacted:KEY]") == set()
