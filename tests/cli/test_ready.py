"""A copy of a process that waits is the command that a user starts: the same words, files and ends."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from agentrun.cli.group import COMMANDS

from . import ready
from .agent import agentrun, fresh
from .project import Project

pytestmark = pytest.mark.skipif(not ready.enough(()), reason="no process can be copied here")

EACH = {
    "run": ("specs/triage.yaml",),
    "init": ("README.md",),
    "validate": ("specs",),
    "render": ("specs/triage.yaml",),
    "compile": ("specs/triage.yaml",),
    "lock": ("specs/triage.yaml", "--check"),
    "diff": ("specs/triage.yaml", "specs/support.yaml"),
    "schema": ("cases",),
    "doctor": (),
    "provider": ("no-such-script.yaml",),
    "test": ("no-such-folder",),
    "cassette": ("show", "cassettes/triage/default.yaml"),
    "completion": ("bash",),
}


def test_each_command_is_here() -> None:
    assert set(EACH) == set(COMMANDS)


@pytest.mark.parametrize("command", EACH)
def test_the_same_as_when_python_starts(command: str) -> None:
    copied, started = agentrun(command, *EACH[command]), fresh(command, *EACH[command])
    assert (copied.code, copied.out, copied.err) == (started.code, started.out, started.err)
    assert copied.out + copied.err


@pytest.mark.parametrize(
    ("last", "code"),
    [("os.kill(os.getpid(), 9)", -9), ("os._exit(77)", 77), ("atexit.register(TRACE.write_text, 'ended')", 0)],
)
def test_it_ends_as_a_process_does(tmp_path: Path, last: str, code: int) -> None:
    shop = Project(tmp_path)
    shop.edit("desk.py", "from pathlib", "import atexit, os\nfrom pathlib")
    shop.edit("desk.py", '    return {"order": order', f'    {last}\n    return {{"order": order')
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", "--approve", "none", **environment).code == code
    assert shop.traces() == ["ended" if code == 0 else "look 1042"]


def test_what_was_forgotten_open_is_told(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.edit(
        "desk.py", '    return {"order": order', '    a = [TRACE.open()]; a.append(a)\n    return {"order": order'
    )
    with shop.provider() as (_, environment), pytest.raises(AssertionError, match="ResourceWarning: unclosed file"):
        shop.run("--mode", "live", "--approve", "none", **environment)


def test_one_that_does_not_end_is_ended(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('agentrun: "1"\nturns: [{text: Hi}]\n', encoding="utf-8")
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        ready.run(["provider", "a.yaml"], tmp_path, {"PATH": os.environ["PATH"]}, b"", 0.2)
    assert time.monotonic() - begun < 60
    assert agentrun("--version").code == 0


def test_nothing_comes_from_the_caller_or_from_another_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-abcdefghijklmnop")
    assert "OPENAI_API_KEY" in agentrun("doctor", OPENAI_API_KEY="sk-other-abcdefghijklmnop").out
    assert agentrun("doctor").out == fresh("doctor").out


def test_what_is_typed_is_read(tmp_path: Path) -> None:
    """Also more than fits into a pipe: so much that it is more than the agent may use."""
    shop = Project(tmp_path)
    with shop.provider() as (_, environment):
        done = shop.run("-", "--approve", "none", stdin=b"Hello there.\n" + b" " * 300_000, **environment)
    assert (done.code, "\nshop: Hello there." in done.err) == (5, True), done.err
