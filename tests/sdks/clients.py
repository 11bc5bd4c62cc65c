"""The venv with the official provider clients, which is never imported here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sdk" / "bin" / "python"
READY = ROOT / ".venv-sdk" / "ready"


def in_venv(script: str, *args: str, stdin: str = "") -> str:
    """What a script of this folder prints. Skips the test where the venv is not there."""
    if not READY.exists():
        pytest.skip("the providers' own clients are not installed: run `make sdks`")
    command = [str(PYTHON), str(Path(__file__).with_name(script)), *args]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
