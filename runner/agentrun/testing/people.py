"""People who are asked, and answer as they were told to.

approving("approved")                                  # to everything
approving({"refund": "denied", "search": "approved"})  # by tool
approving(["denied", "approved"])                      # one after the other; then there is nobody
approving(lambda question: "approved" if question.value["amount"] < 100 else "denied")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from agentrun.core.facts_gates import Answer
from agentrun.core.outcome import Question
from agentrun.engine.ports import Clock

Answers: TypeAlias = Answer | Mapping[str, Answer] | list[Answer] | Callable[[Question], Answer]


class Person:
    """An approver, and what they were asked."""

    def __init__(self, answers: Answers, by: str, delay: int, clock: Clock | None) -> None:
        self._answers = answers
        self._by = by
        self._delay = delay
        self._clock = clock
        self.questions: list[Question] = []

    async def answer(self, question: Question) -> tuple[Answer, str]:
        self.questions.append(question)
        if self._clock is not None:
            await self._clock.sleep_until(self._clock.now() + self._delay)
        return self._answer(question), self._by

    def _answer(self, question: Question) -> Answer:
        if isinstance(self._answers, str):
            return self._answers
        if isinstance(self._answers, Mapping):
            return self._answers.get(question.target, "unavailable")
        if isinstance(self._answers, list):
            number = len(self.questions) - 1
            return self._answers[number] if number < len(self._answers) else "unavailable"
        return self._answers(question)


def approving(
    answers: Answers = "approved", *, by: str = "a test", delay: int = 0, clock: Clock | None = None
) -> Person:
    """Somebody who gives these answers, `delay` milliseconds after being asked."""
    if delay and clock is None:
        raise ValueError("a person who takes a while needs the clock on which it passes")
    return Person(answers, by, delay, clock)
