"""The real console script, started as a user would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(sys.executable).with_name("agentrun"))


class Done:
    """A command that has ended."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()
        assert "Traceback" not in self.err, self.err

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def agentrun(*args: str | Path, cwd: Path = ROOT, stdin: bytes = b"", **env: str) -> Done:
    """Runs a command with nothing of the caller's environment but PATH and what is given."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONWARNINGS": "error", **env}
    done = subprocess.run(
        [SCRIPT, *map(str, args)], cwd=cwd, env=clean, input=stdin, capture_output=True, check=False, timeout=60
    )
    return Done(done)


SMALL = """\
agentrun: "1"
name: small
model: {provider: openai, name: gpt-4.1-mini}
instructions: Answer in one word.
input: Hello
budgets: {turns: 2, tokens: 2k}
"""
