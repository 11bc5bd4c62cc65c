"""Some of the cases of `make races`, and a bug that they find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.store.process_lock import ProcessLock

from .races import PROCESSES, check_race, start_session

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the workers of pytest-xdist have threads

ROOT = Path(__file__).parents[2]


def test_one_process_wins() -> None:
    """In a small process: to copy one that has collected all tests takes ten times as long."""
    command = [
        sys.executable,
        "-c",
        "from tests.durability.races import main; raise SystemExit(main(12))",
        "--seed",
        "7",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "races: 36 cases, 0 violations, seed 7\n", "")


def test_race_without_a_lock_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessLock, "acquire", lambda lock, busy, *, wait=0: None)
    with pytest.raises(AssertionError, match=str(["won"] * PROCESSES).replace("[", r"\[").replace("]", r"\]")):
        check_race(tmp_path / "1", start_session, [0.0] * PROCESSES)
