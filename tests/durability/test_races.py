"""Some of the cases of `make races`, and a bug that they find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from agentrun.store.files import FileStore
from agentrun.store.process_lock import ProcessLock

from .races import KINDS, PROCESSES, check_race, random_delays, start_session

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the workers of pytest-xdist have threads


@pytest.mark.parametrize("work", KINDS, ids=lambda work: str(work.__name__))
def test_one_process_wins(tmp_path: Path, work: Callable[[FileStore], None]) -> None:
    chance = Random(7)  # noqa: S311  # reproducible, not secret
    for number in range(12):
        check_race(tmp_path / str(number), work, random_delays(chance))


def test_race_without_a_lock_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessLock, "acquire", lambda lock, busy, *, wait=0: None)
    with pytest.raises(AssertionError, match=str(["won"] * PROCESSES).replace("[", r"\[").replace("]", r"\]")):
        check_race(tmp_path / "1", start_session, [0.0] * PROCESSES)
