"""A suspended sub-agent ends when its parent is cancelled."""

import pytest

from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import CancelRequested, RunStopped
from agentrun.core.outcome import Outcome
from agentrun.engine import driver
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import StepClock
from agentrun.testing.laws import begin_run, make_runtime

from ..testing.law_shapes import SHAPES


def cancel_and_resume_parent() -> tuple[Outcome, MemoryJournals]:
    """A parent whose child waits for a person is cancelled and resumed."""
    shape, clock, journals = SHAPES["asking child"], StepClock(), MemoryJournals()
    setting, file = shape.setting(clock), seal_package(shape.package)
    runtime = make_runtime(file, setting, clock, journals, 8)
    handle = begin_run(runtime, file, setting)
    assert clock.run(handle.wait()).status == "suspended"
    runtime.cancel(handle.run, by="Ada")
    return clock.run(runtime.resume(handle.run).wait()), journals


def test_suspended_sub_agent_is_cancelled_with_its_parent() -> None:
    outcome, journals = cancel_and_resume_parent()
    assert outcome.code == "cancelled"
    _, child = journals.runs
    facts = [record.fact for record in journals.records(child)]
    assert CancelRequested("parent") in facts
    assert isinstance(facts[-1], RunStopped)
    assert facts[-1].fault is not None
    assert facts[-1].fault.code == "cancelled"


def test_sub_agent_left_open_by_the_driver_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgotten(*_: object) -> None: ...

    monkeypatch.setattr(driver, "_end_child", forgotten)
    _, journals = cancel_and_resume_parent()
    assert not isinstance(list(journals.records(journals.runs[1]))[-1].fact, RunStopped)
