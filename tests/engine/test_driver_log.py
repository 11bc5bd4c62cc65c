"""`RunLog`, which writes a run's facts to its journal and keeps its state."""

from typing import Any

import pytest

from agentrun.core.evolve import fold
from agentrun.core.facts import (
    RULES_VERSION,
    CancelRequested,
    ModelAsked,
    Record,
    RunResumed,
    ToolFinished,
    ToolStarted,
    WorkLost,
    fact_kind,
)
from agentrun.core.fault import Fault
from agentrun.core.outcome import outcome_of
from agentrun.engine.clock import StepClock
from agentrun.engine.driver import RunLog, drive
from agentrun.errors import InternalError, StorageError
from agentrun.journal.storage import MemoryJournal

from ..core.script import RUN_STARTED, calls_reply, text_reply, writing
from ..packages import package
from .driven_run import DrivenRun

TOOLS = package(tools={"pay": writing()}, policy={"default": "allow"})


def test_illegal_fact_is_not_written() -> None:
    run = DrivenRun(package()).begun()
    log, before = run.log(), run.journal.text()
    with pytest.raises(StorageError, match=r"recovery\.failed"):
        log.commit(RUN_STARTED)
    assert run.journal.text() == before
    log.commit(CancelRequested("ada"))
    assert log.state == fold(run.journal.records()), "and the log goes on"


def test_commit_if_acceptable_ignores_unexpected_facts() -> None:
    log = DrivenRun(package()).begun().log()
    log.commit_if_acceptable(ToolFinished("c1.0", ()))
    assert log.state.seq == 1
    log.commit_if_acceptable(CancelRequested("ada"))
    assert (log.state.seq, log.state.cancelled) == (2, CancelRequested("ada"))


class FailsOnce(MemoryJournal):
    """Cannot write the nth record, and then can again."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__()
        self._at, self._error = at, error

    def append(self, record: Record) -> None:
        if record.seq == self._at:
            self._at = 0
            raise self._error
        super().append(record)


def test_nothing_is_written_after_a_failure() -> None:
    """Also when the journal would take it: what the next owner finds is what there was."""
    journal = FailsOnce(2, StorageError("storage.failed", "full", fields={"path": "journal", "errno": 28}))
    log = DrivenRun(package(), journal=journal).begun().log()
    with pytest.raises(StorageError, match=r"storage\.failed"):
        log.commit(CancelRequested("ada"))
    with pytest.raises(StorageError) as caught:
        log.commit(CancelRequested("ada"))
    assert (caught.value.code, caught.value.fields) == ("journal.poisoned", {"seq": 2})
    assert (log.state.seq, len(journal.records())) == (1, 1)
    RunLog(journal, StepClock()).commit(CancelRequested("ada"))
    assert len(journal.records()) == 2


def test_half_of_a_surrogate_pair_is_escaped() -> None:
    run = DrivenRun(package(), text_reply("half a pair: \ud800")).begun()
    outcome = run.finish()
    assert (outcome.answer, outcome) == ("half a pair: \\ud800", outcome_of(fold(run.journal.records())))


def test_take_over_records_the_resume_and_the_lost_work() -> None:
    run = DrivenRun(TOOLS, calls_reply("pay"), text_reply("Done.")).begun()
    run.log().commit(ModelAsked("m1.1", 1, 1, "r", 0))
    log = run.log()
    log.take_over("sha256:other")
    assert run.facts()[-2:] == [RunResumed("sha256:other", RULES_VERSION), WorkLost("m1.1")]
    assert log.state == fold(run.journal.records())
    assert run.finish().is_finished
    assert sum(isinstance(fact, ToolStarted) for fact in run.facts()) == 1


def test_first_stop_of_a_run_counts() -> None:
    run = DrivenRun(package()).begun()
    log = run.log()
    outcome = log.stop(Fault("internal", "x"))
    assert (outcome.code, log.state.phase) == ("internal", "stopped")
    assert log.stop(Fault("cancelled", "y")) == outcome, "the first end counts"
    assert len(run.facts()) == 2


def test_listener_is_called_after_the_record_is_written_and_applied() -> None:
    """After it is written and the state has it."""
    heard: list[tuple[int, int]] = []
    journal = MemoryJournal()
    log = RunLog(journal, StepClock(), lambda record: heard.append((record.seq, log.state.seq)))
    log.commit(RUN_STARTED)
    log.commit(CancelRequested("ada"))
    assert heard == [(1, 1), (2, 2)]


@pytest.mark.parametrize("error", [ValueError, StorageError("storage.failed", "x"), InternalError("internal", "x")])
def test_listeners_cannot_stop_the_run(error: Any) -> None:
    def listen(record: Record) -> None:
        raise error

    run = DrivenRun(package(), text_reply("Done.")).begun()
    outcome = run.clock.run(drive(run.agent, RunLog(run.journal, run.clock, listen), run.crew()))
    assert outcome.answer == "Done."


def test_interrupt_in_a_listener_cancels_the_run_after_the_record() -> None:
    """The record is written and counts: the terminal one follows it."""

    def listen(record: Record) -> None:
        if record.seq == 3:
            raise KeyboardInterrupt

    run = DrivenRun(package(), text_reply("Done.")).begun()
    with pytest.raises(KeyboardInterrupt):
        run.clock.run(drive(run.agent, RunLog(run.journal, run.clock, listen), run.crew()))
    assert [fact_kind(fact) for fact in run.facts()[-3:]] == ["model_replied", "cancel_requested", "run_stopped"]
