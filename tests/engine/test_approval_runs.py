"""Approvals in whole runs, with functions as approvers, without an approver, and with deferred calls."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import Any

import pytest

import agentrun
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import ApprovalAnswered, Ruled
from agentrun.core.outcome import Outcome
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import AgentrunError
from agentrun.testing import StepClock, calls, scripted, stub, text

from ..core.script import rule, writing
from ..packages import package
from .memory_runtime import ASKING_AGENT, Home

PAY = (calls("pay", q="x"), text("Done."))


def answers(journals: MemoryJournals, run: str) -> list[tuple[str, str]]:
    facts = [record.fact for record in journals.records(run)]
    return [(fact.answer, fact.by) for fact in facts if isinstance(fact, ApprovalAnswered)]


def run(approver: Any, clock: StepClock | None, limit: int = 120_000) -> tuple[list[tuple[str, str]], int, Outcome]:
    """The answers, how often the tool ran, and the outcome. Without a clock: in real time."""
    journals, pay = MemoryJournals(), stub("paid")
    policy = {"default": "deny", "rules": [rule("ask", "pay")], "approval_timeout": limit}
    agent = package(tools={"pay": writing()}, policy=policy)
    given: dict[str, Any] = {} if clock is None else {"clock": clock}
    ended = agentrun.run(
        agent, "Pay.", model=scripted(*PAY), tools={"pay": pay}, approver=approver, journals=journals, **given
    )
    assert ended.is_finished
    return answers(journals, ended.run), pay.count, ended


async def approve_async(question: Any) -> bool:
    return bool(question.target == "pay" and question.value == {"q": "x"})


@pytest.mark.parametrize("clock", [StepClock, lambda: None], ids=["step", "real"])
@pytest.mark.parametrize(
    ("approver", "answer", "count"),
    [
        (lambda question: question.rules == ("r1",), ("approved", "callback"), 1),
        (approve_async, ("approved", "callback"), 1),
        (lambda question: False, ("denied", "callback"), 0),
        (lambda question: "yes", ("unavailable", "approver"), 0),
        (lambda question: question.nothing, ("unavailable", "approver"), 0),
    ],
    ids=["plain", "async", "no", "rubbish", "raises"],
)
def test_function_as_approver_decides_the_call(approver: Any, answer: tuple[str, str], count: int, clock: Any) -> None:
    assert run(approver, clock())[:2] == ([answer], count)


def test_blocking_function_times_out() -> None:
    """It is asked in a thread, given up when its time is over, and the program ends without it."""
    never = threading.Event()
    before = time.monotonic()
    assert run(lambda question: never.wait(300), None, limit=50)[:2] == ([("timed_out", "clock")], 0)
    assert time.monotonic() - before < 60
    never.set()


def test_function_cannot_change_the_arguments_it_approves() -> None:
    def sly(question: Any) -> bool:
        question.value["q"] = "all of it"
        return True

    journals, pay = MemoryJournals(), stub("paid")
    agentrun.run(
        ASKING_AGENT,
        "Pay.",
        model=scripted(*PAY),
        tools={"pay": pay},
        approver=sly,
        journals=journals,
        clock=StepClock(),
    )
    assert [call.arguments for call in pay.calls] == [{"q": "x"}]


def test_run_without_approver_waits_and_the_first_answer_wins() -> None:
    """A run that can be resumed waits; the first answer wins, and it is for its own question."""
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT)
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    assert (waiting.exit_code, home.pay.count) == (8, 0)
    (question,) = waiting.questions
    other = type(question)("c1.0", "sha256:other", "pay", {}, (), None)
    for asked, by in ((other, "eve"), (question, "ada"), (question, "bob")):
        with nullcontext() if by == "ada" else pytest.raises(AgentrunError, match=r"run\.invalid_state"):
            handle.answer(asked, "approved", by=by)
    home.wait(home.runtime.resume("r1"))
    assert (home.pay.count, answers(home.journals, "r1")) == (1, [("approved", "ada")])


def test_resume_rules_again_on_a_deferred_call() -> None:
    """When the run is resumed, by the rules that it has then."""

    def agent(ruling: str) -> Any:
        return seal_package(
            package(tools={"pay": writing()}, policy={"default": "allow", "rules": [rule(ruling, "pay")]})
        )

    home = Home(*PAY)
    assert home.run(agent("defer")).status == "suspended"
    assert home.wait(home.runtime.resume("r1")).status == "suspended"
    assert home.pay.count == 0
    home.wait(home.runtime.resume("r1", with_package=agent("allow")))
    assert home.pay.count == 1
    assert [fact.ruling for fact in home.facts() if isinstance(fact, Ruled)] == ["defer", "defer", "allow"]
