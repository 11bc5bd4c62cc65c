"""A forked command behaves like a command that a user starts."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from agentrun.cli.group import COMMANDS

from ..long_loops import sample_of
from . import forked_command
from .command import agentrun, fresh
from .shop_project import Project

pytestmark = pytest.mark.skipif(not forked_command.can_fork(()), reason="no process can be copied here")

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
    "runs": (),
    "store": (),
    "resume": ("no-such-run",),
    "settle": ("no-such-run", "c1.0", "--retry"),
    "approvals": (),
    "approve": ("no-such-run", "c1.0"),
    "deny": ("no-such-run", "c1.0"),
    "send": ("no-such-run", "Hello"),
    "cancel": ("no-such-run",),
    "events": ("no-such-run",),
    "sessions": (),
    "show": ("no-such-run.jsonl",),
    "verify": ("no-such-run.jsonl",),
    "audit": ("no-such-run.jsonl",),
    "view": ("no-such-run.jsonl",),
    "completion": ("bash",),
}


def test_every_command_is_in_the_table() -> None:
    assert set(EACH) == set(COMMANDS)


@pytest.mark.parametrize("command", [*sample_of(3, EACH)])
def test_forked_command_prints_the_same_as_a_new_process(command: str) -> None:
    copied, started = agentrun(command, *EACH[command]), fresh(command, *EACH[command])
    assert (copied.code, copied.out, copied.err) == (started.code, started.out, started.err)
    assert copied.out + copied.err


@pytest.mark.parametrize(
    ("last", "code"),
    [("os.kill(os.getpid(), 9)", -9), ("os._exit(77)", 77), ("atexit.register(TRACE.write_text, 'ended')", 0)],
)
def test_forked_command_ends_with_the_same_exit_code_and_exit_handlers(tmp_path: Path, last: str, code: int) -> None:
    shop = Project(tmp_path)
    shop.edit("desk.py", "from pathlib", "import atexit, os\nfrom pathlib")
    shop.edit("desk.py", '    return {"order": order', f'    {last}\n    return {{"order": order')
    with shop.provider() as (_, environment):
        assert shop.run("--mode", "live", "--approve", "none", **environment).code == code
    assert shop.traces() == ["ended" if code == 0 else "look 1042"]


def test_unclosed_file_in_a_forked_command_is_reported(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.edit(
        "desk.py", '    return {"order": order', '    a = [TRACE.open()]; a.append(a)\n    return {"order": order'
    )
    with shop.provider() as (_, environment), pytest.raises(AssertionError, match="ResourceWarning: unclosed file"):
        shop.run("--mode", "live", "--approve", "none", **environment)


def test_forked_command_over_its_timeout_is_killed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('agentrun: "1"\nturns: [{text: Hi}]\n', encoding="utf-8")
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        forked_command.run(["provider", "a.yaml"], tmp_path, {"PATH": os.environ["PATH"]}, b"", 0.2)
    assert time.monotonic() - begun < 60
    assert agentrun("--version").code == 0


def test_forked_command_inherits_no_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-abcdefghijklmnop")
    assert "OPENAI_API_KEY" in agentrun("doctor", OPENAI_API_KEY="sk-other-abcdefghijklmnop").out
    assert agentrun("doctor").out == fresh("doctor").out


def test_forked_command_reads_a_large_stdin(tmp_path: Path) -> None:
    """Also more than fits into a pipe: so much that it is more than the agent may use."""
    shop = Project(tmp_path)
    with shop.provider() as (_, environment):
        done = shop.run("-", "--approve", "none", stdin=b"Hello there.\n" + b" " * 200_000, **environment)
    assert (done.code, "\nshop: Hello there." in done.err) == (5, True), done.err
