"""`agentrun provider` through its real entry point, with its address, log and exit."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .command import SCRIPT, agentrun

TURNS = """\
agentrun: "1"
turns:
  - text: Hello.
    faults: [{status: 503}]
  - text: Bye.
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "hello.provider.yaml"
    path.write_text(TURNS, encoding="utf-8")
    return path


@contextmanager
def running_provider(*args: str | Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The running command, and its port."""
    command = [SCRIPT, "provider", *map(str, args)]
    env = {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), process.stderr and process.stderr.read()
            yield process, int(address.rpartition(":")[2])
        finally:
            process.kill()


def ask(port: int, *said: str) -> int:
    messages = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 5, said, strict=False)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"authorization": "Bearer sk-secret-key"}
    connection.request("POST", "/v1/chat/completions?x=1", json.dumps({"model": "m", "messages": messages}), headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_provider_serves_until_a_signal_and_logs_requests(script: Path, number: signal.Signals) -> None:
    with running_provider(script) as (process, port):
        assert [ask(port, "Hi"), ask(port, "Hi")] == [503, 200]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines() == [
        "503  openai  /v1/chat/completions  turn 1, not as expected",
        "200  openai  /v1/chat/completions  turn 1",
        "2 requests, 1 of 2 turns; not requested: turn 2",
    ]


def test_once_ends_the_provider_after_the_last_turn(script: Path) -> None:
    with running_provider(script, "--once") as (process, port):
        assert [ask(port, "Hi"), ask(port, "Hi"), ask(port, "Hi", "Hello.", "And?")] == [503, 200, 200]
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.splitlines()[-1] == "3 requests, 2 of 2 turns"


def test_port_option_is_used_and_a_busy_port_is_refused(script: Path) -> None:
    with running_provider(script) as (_, port):
        done = agentrun("provider", script, "--port", str(port))
        assert done.code == 2
        assert f"cannot listen on port {port}" in done.err
    with running_provider(script, "--port", str(port)) as (_, again):
        assert again == port


def test_invalid_script_is_refused_with_its_line(script: Path) -> None:
    script.write_text(TURNS.replace("text: Bye.", "txt: Bye."), encoding="utf-8")
    done = agentrun("provider", script)
    assert done.code == 2
    assert "hello.provider.yaml:5:5  spec.unknown_key" in done.err
    assert 'did you mean "text"?' in done.err


def test_missing_script_is_refused() -> None:
    assert agentrun("provider", "nothing.yaml").code == 2


def test_help_lists_the_options_and_examples() -> None:
    done = agentrun("provider", "--help")
    assert done.code == 0
    for word in ("--port", "--once", "Examples:", "base_url"):
        assert word in done.out
