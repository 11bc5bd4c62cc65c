"""A run that dies at any operation of the store ends as if nothing had happened, and violations are found."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentrun.engine.inbox import MAX_SENDER_WAIT
from agentrun.engine.recorded_history import RecordedHistory
from agentrun.engine.recording import CassetteRecording
from agentrun.errors import AgentrunError
from agentrun.store.inbox import InboxMessage
from agentrun.store.process_lock import ProcessLock

from ..long_loops import LONG, times
from .crash_trial import RUN, CrashTrial
from .planted_bugs import BUGS
from .recorded_trial import RecordedTrial
from .shapes import SHAPES
from .store_operations import CrashPoint, points_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="operations are found by their paths in /proc")


@pytest.fixture(autouse=True)
def _gone_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender of an earlier message has crashed: the next one does not wait for it."""
    monkeypatch.setattr(InboxMessage, "age", MAX_SENDER_WAIT)


class Trials:
    """Trials of one shape, each in its own folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self._shape = SHAPES[name]
        self._is_recorded = name == "recording"
        self._folders = (folder / str(number) for number in itertools.count())
        self._undisturbed = self._trial()
        self._undisturbed.run()
        self.operations = self._undisturbed.operations

    def _trial(self) -> CrashTrial:
        folder = next(self._folders)
        folder.mkdir()
        return (RecordedTrial if self._is_recorded else CrashTrial)(self._shape, folder)

    def violation(self, *points: CrashPoint) -> str | None:
        trial = self._trial()
        try:
            trial.run(*points)
            trial.check(self._undisturbed)
        except (AssertionError, AgentrunError) as error:
            last = self.operations[points[0].number - 1]
            return f"{' and '.join(map(str, points))} ({last}): {type(error).__name__} {error}"
        return None

    def points(self) -> Iterator[CrashPoint]:
        """All points. In `make test` one of the torn writes of each size is enough."""
        torn = 0
        for point in points_of(self.operations):
            torn += point.when == "torn"
            if point.when != "torn" or LONG or torn % 3 == 0:
                yield point


@pytest.fixture
def trials(request: pytest.FixtureRequest, tmp_path: Path) -> Trials:
    return Trials(request.param, tmp_path)


@pytest.mark.parametrize("trials", SHAPES, indirect=True)
def test_run_survives_a_crash_at_every_operation(trials: Trials) -> None:
    assert [found for point in trials.points() if (found := trials.violation(point))] == []


@pytest.mark.parametrize("trials", SHAPES, indirect=True)
def test_run_survives_three_crashes_in_a_row(trials: Trials) -> None:
    chance = Random(3)  # noqa: S311  # reproducible, not secret
    points = points_of(trials.operations, after=True)
    for _ in range(times(8, 200)):
        assert trials.violation(*(chance.choice(points) for _ in range(3))) is None


# --- planted bugs ----------------------------------------------------------------------------------------------------


def first_violation(trials: Trials) -> str:
    points = [*trials.points()]
    Random(1).shuffle(points)  # noqa: S311  # sooner found than in order
    return next((found for point in points if (found := trials.violation(point))), "none")


@pytest.fixture
def batch(tmp_path: Path) -> Trials:
    return Trials("batch", tmp_path)


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    BUGS[bug].plant(monkeypatch.setattr)
    assert re.search(BUGS[bug].violation, first_violation(batch))


def test_lock_that_is_left_is_found(batch: Trials, tmp_path: Path) -> None:
    trial = CrashTrial(SHAPES["plain"], tmp_path)
    trial.run()
    lock = ProcessLock(trial.project.store_tree, trial.project.store_directory / "runs" / RUN / "lock")
    lock.acquire("")
    with pytest.raises(AssertionError, match="a lock is left"):
        trial.check(trial)
    lock.release()


def test_recorded_interaction_without_its_fact_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is sent again after a crash is on the cassette twice."""
    monkeypatch.setattr(RecordedHistory, "keep_finished", lambda history, logged: list(logged))
    assert "only recorded" in first_violation(Trials("recording", tmp_path))


def test_recording_that_is_removed_before_the_cassette_is_written_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = CassetteRecording._save

    def too_early(recording: Any, *args: Any) -> None:
        recording._recorder.remove()
        save(recording, *args)

    monkeypatch.setattr(CassetteRecording, "_save", too_early)
    assert "there is no cassette" in first_violation(Trials("recording", tmp_path))
