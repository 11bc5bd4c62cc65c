"""Asking an approver, with its answers and timeout, and functions as approvers."""

from collections.abc import Callable
from typing import Any

import pytest

from agentrun.core.facts import ApprovalAnswered
from agentrun.core.outcome import Question
from agentrun.engine.approvals import (
    APPROVAL_ANSWERS,
    ApproverChain,
    DetailedQuestion,
    NoApprover,
    PresetApprover,
    ask_approver,
    to_approver,
)
from agentrun.engine.clock import StepClock
from agentrun.engine.ports import Approver

from ..core.script import SINK, tool
from ..packages import package


def repr_of(value: object) -> str:
    return type(value).__name__


AGENT = package(tools={"refund": tool(), "input": tool()}, sinks={"report": SINK})
QUESTION = Question("c1.0", "sha256:q", "refund", {"amount": 10}, ("big",), None)


class Person:
    """Answers after a while."""

    def __init__(self, clock: StepClock, wait: int, say: Callable[[], Any]) -> None:
        self.clock = clock
        self.wait = wait
        self.say = say
        self.asked: list[Question] = []

    async def answer(self, question: Question) -> Any:
        self.asked.append(question)
        await self.clock.sleep_until(self.clock.now() + self.wait)
        return self.say()


def ask_approval(approver: Approver, clock: StepClock) -> tuple[str, str]:
    fact = clock.run(ask_approver(clock, approver, AGENT, {}, QUESTION))
    assert isinstance(fact, ApprovalAnswered)
    assert (fact.subject, fact.question) == ("c1.0", "sha256:q")
    return fact.answer, fact.by


@pytest.mark.parametrize("answer", APPROVAL_ANSWERS)
def test_every_answer_is_recorded_with_its_approver(answer: str) -> None:
    clock = StepClock()
    person = Person(clock, 10, lambda: (answer, "ada"))
    assert ask_approval(person, clock) == (answer, "ada")
    (asked,) = person.asked
    assert isinstance(asked, DetailedQuestion)
    assert Question(**{name: getattr(asked, name) for name in QUESTION.__struct_fields__}) == QUESTION
    assert (asked.agent, asked.tool, asked.sink, asked.limit) == ("triage", AGENT.tools["refund"], None, 120_000)


@pytest.mark.parametrize(("wait", "answer"), [(120_000, ("approved", "ada")), (120_001, ("timed_out", "clock"))])
def test_answer_after_the_approval_timeout_is_timed_out(wait: int, answer: tuple[str, str]) -> None:
    clock = StepClock()
    assert ask_approval(Person(clock, wait, lambda: ("approved", "ada")), clock) == answer
    assert clock.now() == 120_000


@pytest.mark.parametrize("rubbish", [None, "approved", ("yes", "ada"), ("approved", 7), ("approved",), True])
def test_invalid_answer_is_unavailable(rubbish: object) -> None:
    clock = StepClock()
    assert ask_approval(Person(clock, 0, lambda: rubbish), clock) == ("unavailable", "approver")


@pytest.mark.parametrize("error", [OSError("gone"), TimeoutError()])
def test_approver_that_raises_is_unavailable(error: Exception) -> None:
    clock = StepClock()

    def fail() -> None:
        raise error

    assert ask_approval(Person(clock, 0, fail), clock) == ("unavailable", "approver")


def test_approver_cannot_change_what_it_approves() -> None:
    clock = StepClock()

    class Sly:
        async def answer(self, question: Question) -> Any:
            question.value["amount"] = 10_000
            return "approved", "sly"

    ask_approval(Sly(), clock)
    assert QUESTION.value == {"amount": 10}


def test_no_approver_answers_unavailable() -> None:
    assert ask_approval(NoApprover(), StepClock()) == ("unavailable", "nobody")


# --- what a question is about


@pytest.mark.parametrize(
    ("subject", "target", "about"),
    [("c1.0", "refund", "tool"), ("input", "input", None), ("deliver:report", "report", "sink"), ("c1.0", "no", None)],
)
def test_question_names_its_tool_or_sink(subject: str, target: str, about: str | None) -> None:
    """A tool that is called as a stage is not shown for it."""
    seen: list[Any] = []

    class Looks:
        async def answer(self, question: Question) -> Any:
            seen.append(question)
            return "denied", "me"

    clock = StepClock()
    clock.run(ask_approver(clock, Looks(), AGENT, {}, Question(subject, "sha256:q", target, "x", (), None)))
    (asked,) = seen
    assert [name for name in ("tool", "sink") if getattr(asked, name) is not None] == ([about] if about else [])


def test_an_approver_cannot_change_a_tool() -> None:
    clock = StepClock()

    class Sly:
        async def answer(self, question: Question) -> Any:
            assert isinstance(question, DetailedQuestion)
            assert question.tool is not None
            question.tool.args["properties"] = {}  # type: ignore[union-attr]  # it has arguments
            return "approved", "sly"

    before = repr(AGENT)
    ask_approval(Sly(), clock)
    assert repr(AGENT) == before


# --- functions


async def approve_async(question: Question) -> str:
    return "approved" if question.value["amount"] == 10 else "denied"


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (lambda question: "approved", "approved"),
        (lambda question: "approved_for_session", "approved_for_session"),
        (lambda question: "denied", "denied"),
        (lambda question: True, "approved"),
        (lambda question: False, "denied"),
        (approve_async, "approved"),
    ],
    ids=["approved", "session", "denied", "true", "false", "async"],
)
def test_function_as_approver_answers(function: Any, answer: str) -> None:
    clock = StepClock()
    approver = to_approver(function, clock)
    assert approver is not None
    assert ask_approval(approver, clock) == (answer, "callback")


@pytest.mark.parametrize("rubbish", [None, "yes", 1, 0, "", ("approved", "me"), ["approved"], object()], ids=repr_of)
def test_function_with_an_invalid_answer_is_unavailable(rubbish: object) -> None:
    """One is no True: only what says so approves."""
    clock = StepClock()
    approver = to_approver(lambda question: rubbish, clock)  # type: ignore[arg-type, return-value]  # wrong, that is the point
    assert approver is not None
    assert ask_approval(approver, clock) == ("unavailable", "approver")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0), TimeoutError()], ids=repr_of)
def test_function_that_raises_is_unavailable(error: BaseException) -> None:
    clock = StepClock()

    def fails(question: Question) -> bool:
        raise error

    approver = to_approver(fails, clock)
    assert approver is not None
    assert ask_approval(approver, clock) == ("unavailable", "approver")


def test_function_gets_a_copy_of_the_question() -> None:
    clock = StepClock()

    def sly(question: Question) -> bool:
        question.value["amount"] = 10_000
        return True

    approver = to_approver(sly, clock)
    assert approver is not None
    ask_approval(approver, clock)
    assert QUESTION.value == {"amount": 10}


def test_to_approver_leaves_approver_objects_unchanged() -> None:
    somebody = NoApprover()
    assert to_approver(somebody, StepClock()) is somebody
    assert to_approver(None, StepClock()) is None


# --- one after the other


def test_approver_that_keeps_time_has_no_timeout() -> None:
    clock = StepClock()
    slow = Person(clock, 500_000, lambda: ("approved", "ada"))
    assert ask_approval(slow, StepClock()) == ("timed_out", "clock")
    slow.keeps_time = True  # type: ignore[attr-defined]  # what an approver may say of itself
    assert ask_approval(ApproverChain(PresetApprover({}, "a file"), slow), clock) == ("approved", "ada")
