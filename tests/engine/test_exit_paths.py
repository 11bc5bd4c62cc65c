"""Failures injected at every call of every port, in run shapes that together call all ports.

Whatever fails, and however: nothing is left running, nothing was done without its intent, and the journal ends with
one terminal record. When it is the journal that fails, who waits hears of it, and the run can be resumed.
"""

from contextlib import nullcontext

import pytest

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact
from agentrun.engine import driver
from agentrun.engine.crew import StepCrew
from agentrun.engine.driver import RunLog
from agentrun.engine.perform import Performer
from agentrun.errors import StorageError

from ..long_loops import sample_of
from .failing_ports import (
    Point,
)
from .failure_trials import Trial, check_trial, look, points
from .run_shapes import SHAPES

EVERY = 4
"""`make test` tries one point of so many. Each call has three in a row: one of four meets every way to fail."""


@pytest.mark.parametrize("name", SHAPES)
def test_run_without_failures_ends_as_expected(name: str) -> None:
    trial = Trial(SHAPES[name], None).live()
    assert trial.error is None
    assert trial.result is not None
    assert trial.result.code == SHAPES[name].code
    look(trial)


def test_every_port_is_called() -> None:
    called: set[str] = set()
    for shape in SHAPES.values():
        failed = Trial(shape, Point("journal.append", 3, "code")).live()
        called |= {*Trial(shape, None).live().ports.calls, *failed.resume().ports.calls}
    assert called == {
        "approver.answer",
        "blobs.get",
        "blobs.put",
        "clock.now",
        "clock.sleep_until",
        "clock.within",
        "executor.run",
        "hook",
        "journal.append",
        "journal.contains",
        "journal.keep",
        "journal.open",
        "journal.records",
        "listener",
        "provider.ask",
        "sink.deliver",
    }


@pytest.mark.parametrize("name", SHAPES)
def test_invariants_after_a_failure_at_every_port_call(name: str) -> None:
    found = list(points(Trial(SHAPES[name], None).live()))
    assert len(found) > 60
    for point in sample_of(EVERY, found):
        check_trial(Trial(SHAPES[name], point).live())


@pytest.mark.parametrize("name", ["approval", "child", "sinks", "cancelled"])
def test_invariants_after_a_failure_during_resume(name: str) -> None:
    """The journal failed in the middle of the run, and whoever goes on with it fails too."""
    count = Trial(SHAPES[name], None).live().ports.calls["journal.append"]
    failures = [Point("journal.append", number, "code") for number in range(4, count, count // 3)]
    for failure in failures:
        for point in sample_of(EVERY, points(Trial(SHAPES[name], failure).live().resume())):
            trial = Trial(SHAPES[name], failure).live()
            assert isinstance(trial.error, StorageError)
            check_trial(trial.resume(point))


@pytest.mark.parametrize("name", SHAPES)
def test_failing_listener_changes_neither_result_nor_journal(name: str) -> None:
    whole = Trial(SHAPES[name], None).live()
    for number in range(1, whole.ports.calls["listener"] + 1):
        for how in ("error", "code"):
            trial = Trial(SHAPES[name], Point("listener", number, how)).live()
            assert trial.ports.hit
            assert trial.result == whole.result
            assert trial.ports.journals.kept() == whole.ports.journals.kept()


# --- planted ---------------------------------------------------------------------------------------------------


def test_check_detects_a_missing_terminal_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLog, "abandon", lambda log: None)
    with pytest.raises(AssertionError):
        check_all_points("text", "halt")


def test_check_detects_effects_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []
    monkeypatch.setattr(StepCrew, "_stop", lambda crew, task: left.append(task))
    with pytest.raises(AssertionError, match="left running"):
        check_all_points("late", "error")
    for task in left:
        task.work.close()  # type: ignore[attr-defined]  # looked at on purpose


def test_check_detects_an_effect_without_its_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = Performer.perform

    async def twice(performer: Performer, effect: Effect) -> Fact | None:
        await perform(performer, effect)
        return await perform(performer, effect)

    monkeypatch.setattr(Performer, "perform", twice)
    with pytest.raises(AssertionError, match="without its intent"):
        look(Trial(SHAPES["text"], None).live())


def test_check_detects_a_listener_that_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "suppress", lambda *kinds: nullcontext())
    with pytest.raises(AssertionError):
        test_failing_listener_changes_neither_result_nor_journal("text")


def check_all_points(name: str, how: str) -> None:
    for point in points(Trial(SHAPES[name], None).live()):
        if point.how == how:
            look(Trial(SHAPES[name], point).live())
