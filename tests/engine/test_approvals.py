"""Questions to people."""

from collections.abc import Callable
from typing import Any

import pytest

from agentrun.core.facts_gates import ApprovalAnswered
from agentrun.core.outcome import Question
from agentrun.engine.approvals import ANSWERS, Nobody, answered
from agentrun.engine.clock import StepClock
from agentrun.engine.ports import Approver

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


def put(approver: Approver, clock: StepClock, limit: int = 120_000) -> tuple[str, str]:
    fact = clock.run(answered(clock, approver, limit, QUESTION))
    assert isinstance(fact, ApprovalAnswered)
    assert (fact.subject, fact.question) == ("c1.0", "sha256:q")
    return fact.answer, fact.by


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers(answer: str) -> None:
    clock = StepClock()
    person = Person(clock, 10, lambda: (answer, "ada"))
    assert put(person, clock) == (answer, "ada")
    assert person.asked == [QUESTION]


@pytest.mark.parametrize(("wait", "answer"), [(120_000, ("approved", "ada")), (120_001, ("timed_out", "clock"))])
def test_time(wait: int, answer: tuple[str, str]) -> None:
    clock = StepClock()
    assert put(Person(clock, wait, lambda: ("approved", "ada")), clock) == answer
    assert clock.now() == 120_000


@pytest.mark.parametrize("rubbish", [None, "approved", ("yes", "ada"), ("approved", 7), ("approved",), True])
def test_what_is_no_answer_approves_nothing(rubbish: object) -> None:
    clock = StepClock()
    assert put(Person(clock, 0, lambda: rubbish), clock) == ("unavailable", "approver")


@pytest.mark.parametrize("error", [OSError("gone"), TimeoutError()])
def test_approver_that_raises(error: Exception) -> None:
    clock = StepClock()

    def fail() -> None:
        raise error

    assert put(Person(clock, 0, fail), clock) == ("unavailable", "approver")


def test_approver_cannot_change_what_it_approves() -> None:
    clock = StepClock()

    class Sly:
        async def answer(self, question: Question) -> Any:
            question.value["amount"] = 10_000
            return "approved", "sly"

    put(Sly(), clock)
    assert QUESTION.value == {"amount": 10}


def test_nobody() -> None:
    assert put(Nobody(), StepClock()) == ("unavailable", "nobody")
