"""Run the real `agentrun` command, in a forked copy of a prepared process or as a new process."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import forked_command

ROOT = Path(__file__).parents[2]
SCRIPT = forked_command.SCRIPT


class CommandResult:
    """A command that has ended."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()
        assert "Traceback" not in self.err, self.err

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def agentrun(*args: str | Path, cwd: Path = ROOT, stdin: bytes = b"", **env: str) -> CommandResult:
    """Runs a command with nothing of the caller's environment but PATH and what is given.

    It is a copy of a process that waits for it (`forked_command.py`), unless Python must start for what is given.
    """
    if not forked_command.can_fork(env):
        return fresh(*args, cwd=cwd, stdin=stdin, **env)
    return CommandResult(forked_command.run([str(arg) for arg in args], cwd, _environment(cwd, env), stdin, 60))


def fresh(*args: str | Path, cwd: Path = ROOT, stdin: bytes = b"", **env: str) -> CommandResult:
    """The same, started as a user would start it."""
    command = [SCRIPT, *map(str, args)]
    return CommandResult(
        subprocess.run(
            command, cwd=cwd, env=_environment(cwd, env), input=stdin, capture_output=True, check=False, timeout=60
        )
    )


def start(
    *args: str | Path,
    cwd: Path,
    environment: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes] | forked_command.Copy:
    """A command that goes on, as `agentrun` runs it. An input that is not given is empty, an output a pipe."""
    words, env = [str(arg) for arg in args], {"PATH": os.environ["PATH"], **environment}
    if forked_command.can_fork(environment):
        return forked_command.start(words, cwd, env, stdin, stdout, stderr)
    given = subprocess.DEVNULL if stdin is None else stdin
    out, err = (subprocess.PIPE if each is None else each for each in (stdout, stderr))
    return subprocess.Popen([SCRIPT, *words], cwd=cwd, env=env, stdin=given, stdout=out, stderr=err)


def _environment(cwd: Path, env: dict[str, str]) -> dict[str, str]:
    home = tempfile.gettempdir() if cwd == ROOT else str(cwd)  # nothing new may be left in the checkout
    return {"PATH": os.environ["PATH"], "HOME": home, "PYTHONWARNINGS": "error", **env}


SMALL = """\
agentrun: "1"
name: small
model: {provider: openai, name: gpt-4.1-mini}
instructions: Answer in one word.
input: Hello
budgets: {turns: 2, tokens: 2k}
"""
