"""A run that dies at any operation of the store ends as if nothing had happened, and violations are found."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.canonical_json import data_hash
from agentrun.core import tool_calls, transitions
from agentrun.core.evolve import evolve
from agentrun.core.facts import Fact, Record, ToolFinished, ToolStarted
from agentrun.core.state import State
from agentrun.engine.driver import RunLog
from agentrun.errors import AgentrunError
from agentrun.journal.storage import FileJournal
from agentrun.store.files import FileStore, StoredJournal
from agentrun.store.process_lock import ProcessLock

from ..long_loops import LONG, times
from .crash_trial import RUN, CrashTrial
from .shapes import SHAPES
from .store_operations import CrashPoint, points_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="operations are found by their paths in /proc")


class Trials:
    """Trials of one shape, each in its own folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self._shape = SHAPES[name]
        self._folders = (folder / str(number) for number in itertools.count())
        self._undisturbed = self._trial()
        self._undisturbed.run()
        self.operations = self._undisturbed.operations

    def _trial(self) -> CrashTrial:
        folder = next(self._folders)
        folder.mkdir()
        return CrashTrial(self._shape, folder)

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


def test_repeated_call_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tool is taken for one that may run twice."""
    monkeypatch.setattr(tool_calls, "tool_effect", lambda tool, name: "read")
    assert "Counter" in first_violation(batch)


def test_effect_without_a_start_record_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a payment is written together with its result."""
    owed: dict[int, Record] = {}

    def append(log: Any, fact: Fact, seq: int, at: int) -> Record:
        record = Record(seq, at, log._journal.epoch, "", fact)
        after = evolve(log.state, record)
        if isinstance(fact, ToolStarted) and fact.tool == "pay":
            owed[id(log)] = record
        else:
            for each in (owed.pop(id(log), None), record):
                if each is not None:
                    log._journal.append(replace(each, prev=log._journal.head))
        log.state = after
        return record

    monkeypatch.setattr(RunLog, "_append", append)
    assert "Counter" in first_violation(batch)


def test_torn_line_that_is_not_cut_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(journal: Any, torn: bytes) -> None:
        journal._ends[-1] += len(torn)

    monkeypatch.setattr(FileJournal, "_cut", keep)
    assert re.search(r"journal\.(damaged|truncated)", first_violation(batch))


def test_lost_result_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call returns after a resume is not written."""
    resumed: list[str] = []
    take_over = RunLog.take_over

    def marked(log: RunLog, fingerprint: str) -> None:
        take_over(log, fingerprint)
        resumed.append(fingerprint)

    def forgetful(state: State, fact: Fact) -> bool:
        return not (resumed and isinstance(fact, ToolFinished)) and transitions.is_acceptable(state, fact)

    monkeypatch.setattr(RunLog, "take_over", marked)
    monkeypatch.setattr("agentrun.engine.driver.is_acceptable", forgetful)
    assert "is pending, but it is not running" in first_violation(batch)


def test_head_before_its_record_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    append = FileJournal.append

    def too_early(journal: Any, record: Record) -> None:
        if journal._head_file is not None:
            line = f"{record.seq:08} {data_hash(journal._chain.line(record))}\n"
            os.pwrite(journal._head_file, line.encode(), 0)
        append(journal, record)

    monkeypatch.setattr(FileJournal, "append", too_early)
    assert "journal.truncated" in first_violation(batch)


def test_package_after_the_first_record_is_found(batch: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    write, append_first = FileStore.write_package, StoredJournal._append_first

    def too_late(journal: Any, record: Record) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(FileStore, "write_package", lambda store, run: None)
            append_first(journal, record)
        write(journal._store, journal.run)

    monkeypatch.setattr(StoredJournal, "_append_first", too_late)
    assert "was not stored with it" in first_violation(batch)


def test_lock_that_is_left_is_found(batch: Trials, tmp_path: Path) -> None:
    trial = CrashTrial(SHAPES["plain"], tmp_path)
    trial.run()
    lock = ProcessLock(trial.project.store_tree, trial.project.store_directory / "runs" / RUN / "lock")
    lock.acquire("")
    with pytest.raises(AssertionError, match="a lock is left"):
        trial.check(trial)
    lock.release()
