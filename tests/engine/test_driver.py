"""The driver loop, with failing journals, failing decisions and interrupts."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.core.decide import decide
from agentrun.core.effects import Effect, NextStep
from agentrun.core.evolve import fold
from agentrun.core.facts import CancelRequested, Fact, ModelAsked, RunStopped, TimePassed, ToolFinished, fact_kind
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome, outcome_of
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.engine import driver
from agentrun.engine.driver import RunLog, drive
from agentrun.engine.event_loop import SystemClock, TaskCrew
from agentrun.errors import PolicyError, StorageError
from agentrun.journal.storage import MemoryJournal
from agentrun.testing import FailingJournal

from ..core.script import calls_reply, rule, text_reply, tool, writing
from ..packages import package, typed
from ..scripted_service import BAD, GOOD
from .driven_run import DrivenRun

TOOLS = package(tools={"look": tool(), "pay": writing()}, policy={"default": "allow"})


def test_intent_is_journaled_before_its_effect_runs() -> None:
    run = DrivenRun(TOOLS, calls_reply("pay"), text_reply("Done.")).begun()
    run.finish()
    assert [(effect, facts[-1]) for effect, facts in run.seen] == [
        ("m1.1", "model_asked"),
        ("c1.0", "tool_started"),
        ("m2.1", "model_asked"),
    ]


REPAIRED = (text_reply(BAD), text_reply(GOOD))


@pytest.mark.parametrize("at", range(2, 9))
def test_no_effect_runs_if_its_intent_cannot_be_written(at: int) -> None:
    """Whichever record cannot be written: nothing is sent whose intent is not in the journal."""
    run = DrivenRun(typed(), *REPAIRED, journal=FailingJournal(at)).begun()
    with pytest.raises(StorageError, match=r"storage\.failed"):
        run.finish()
    assert len(run.facts()) == at - 1
    assert len(run.seen) == sum(isinstance(fact, ModelAsked) for fact in run.facts())
    assert not run.at_once, "nothing is left running"


def test_effect_without_a_journaled_intent_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that writes intents afterwards is noticed."""
    run = DrivenRun(typed(), *REPAIRED).begun()
    monkeypatch.setattr(driver, "intent", lambda effect: TimePassed())
    run.finish()
    assert run.seen[0][1][-1] != "model_asked"


def test_run_continued_from_any_record_ends_with_the_same_bytes() -> None:
    """Cut after any record at which nothing is under way: the rest of the run is the same to the byte."""
    whole = DrivenRun(typed(), *REPAIRED).begun()
    outcome = whole.finish()
    cuts = 0
    for length in range(1, len(whole.facts()) + 1):
        part = MemoryJournal()
        for record in whole.journal.records()[:length]:
            part.append(record)
        if fold(part.records()).phase == "asking":
            continue
        cuts += 1
        sent = sum(isinstance(record.fact, ModelAsked) for record in part.records())
        assert DrivenRun(typed(), *REPAIRED[sent:], journal=part).finish() == outcome
        assert part.text() == whole.journal.text()
    assert cuts == 6


def test_request_that_no_effect_performs_is_an_internal_error() -> None:
    """A journal that ends inside a request, and nobody to perform it: an error, not an endless loop."""
    run = DrivenRun(typed()).begun()
    run.log().commit(ModelAsked("m1.1", 1, 1, "r", 0))
    outcome = run.finish()
    assert (outcome.code, outcome.status) == ("internal", "failed")
    assert "m1.1" in (outcome.fault.message if outcome.fault else "")
    with pytest.raises(StorageError, match=r"recovery\.failed"):
        DrivenRun(typed()).finish()


def test_request_that_no_effect_performs_fails_before_the_time_budget() -> None:
    """With a time budget too, and at once."""
    run = DrivenRun(package(budgets={"time": 60_000})).begun()
    run.log().commit(ModelAsked("m1.1", 1, 1, "r", 0))
    outcome = run.finish()
    assert (outcome.code, run.clock.now()) == ("internal", 1000)


def test_open_question_suspends_the_run() -> None:
    asking = package(tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})
    run = DrivenRun(asking, calls_reply("pay")).begun()
    waiting = run.finish()
    assert waiting.status == "suspended"
    assert [question.target for question in waiting.questions] == ["pay"]
    assert fact_kind(run.facts()[-1]) == "approval_asked"


@pytest.mark.parametrize("width", [1, 2, 3, 5, 9])
def test_width_limits_the_effects_at_once(width: int) -> None:
    calls = tuple(("look", f'{{"q": "{n}"}}') for n in range(5))
    run = DrivenRun(TOOLS, calls_reply(*calls), text_reply("Done."), width=width, takes=10).begun()
    run.finish()
    assert run.most == min(width, 5)
    assert run.clock.now() == 1000 + 20 + 10 * -(-5 // width), "and no less than that at once"


def test_driver_runs_in_an_event_loop() -> None:
    """The driver is a plain coroutine: it also runs where effects do take time."""

    async def main(width: int) -> Outcome:
        run = DrivenRun(TOOLS, calls_reply(("look", '{"q": "1"}'), ("look", '{"q": "2"}')), text_reply("Done.")).begun()
        clock = SystemClock()

        async def perform(effect: Effect) -> Fact:
            await asyncio.sleep(0.001)
            return run.answer(effect)

        return await drive(TOOLS, RunLog(run.journal, clock), TaskCrew(perform, width=width, clock=clock))

    for width in (1, 2):
        outcome = asyncio.run(main(width))
        assert (outcome.answer, outcome.tool_calls) == ("Done.", 2)


# --- our own bugs ----------------------------------------------------------------------------------------------


def decide_that_raises_at(
    number: int, error: BaseException, *, for_good: bool = False
) -> Callable[[Package, State], NextStep]:
    """A `decide` that raises the nth time it is asked."""
    asked = 0

    def deciding(agent: Package, state: State) -> NextStep:
        nonlocal asked
        asked += 1
        if asked == number or (for_good and asked > number):
            raise error
        return decide(agent, state)

    return deciding


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("number", range(1, 8))
def test_exception_in_decide_stops_the_run_as_internal(
    number: int, for_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = DrivenRun(typed(), *REPAIRED, takes=5).begun()
    monkeypatch.setattr(driver, "decide", decide_that_raises_at(number, ValueError("secret"), for_good=for_good))
    outcome = run.finish()
    assert (outcome.code, outcome.fields, outcome.exit_code) == ("internal", {"error": "ValueError"}, 70)
    assert outcome == outcome_of(fold(run.journal.records()))
    assert sum(isinstance(fact, RunStopped) for fact in run.facts()) == 1
    assert b"secret" not in run.journal.text()
    assert not run.at_once


def test_exception_in_decide_after_the_end_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is over: its outcome stays what it is."""
    whole = DrivenRun(typed(), *REPAIRED).begun()
    outcome = whole.finish()
    run = DrivenRun(typed(), *REPAIRED).begun()
    monkeypatch.setattr(driver, "decide", decide_that_raises_at(8, ValueError()))
    assert run.finish() == outcome
    assert run.journal.text() == whole.journal.text()


def test_agentrun_error_in_decide_keeps_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    run = DrivenRun(package(), text_reply("Done.")).begun()
    error = PolicyError("policy.denied", "no", hint="ask", fields={"rules": ["r1"]})
    monkeypatch.setattr(driver, "decide", decide_that_raises_at(2, error))
    outcome = run.finish()
    assert outcome.fault == Fault("policy.denied", "no", {"rules": ["r1"]}, "ask")


def test_keyboard_interrupt_is_recorded_as_cancellation_and_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded as a cancellation, and passed on."""
    run = DrivenRun(package(), text_reply("Done.")).begun()
    monkeypatch.setattr(driver, "decide", decide_that_raises_at(2, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    requested, stopped = run.facts()[-2:]
    assert requested == CancelRequested("host")
    assert isinstance(stopped, RunStopped)
    assert stopped.fault is not None
    assert (stopped.fault.code, stopped.fault.fields) == ("cancelled", {"by": "host"})


def test_fact_of_an_unknown_effect_is_an_internal_error() -> None:
    """A fact that nobody waits for leaves its effect open: that is said, not waited out."""

    class Confused(DrivenRun):
        def answer(self, effect: Any) -> Fact:
            return ToolFinished("c9.9", ())

    outcome = Confused(package()).begun().finish()
    assert outcome.code == "internal"
