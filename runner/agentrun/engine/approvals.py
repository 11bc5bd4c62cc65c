"""Puts a question to a person. It never hangs: without an answer in time there is an answer that says so."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import get_args

from msgspec.structs import replace

from agentrun.core.facts_gates import Answer, ApprovalAnswered
from agentrun.core.names import matches
from agentrun.core.outcome import Question
from agentrun.engine.attempt import Late, Raised, attempt, caught
from agentrun.engine.ports import Approver, Clock
from agentrun.errors import CassetteError

ANSWERS: tuple[str, ...] = get_args(Answer)


class Nobody:
    """There is nobody to ask, and there never will be."""

    async def answer(self, question: Question) -> tuple[Answer, str]:  # noqa: ARG002  # whatever it is
        return "unavailable", "nobody"


class Given:
    """Answers that were given in advance, by tool, sink or stage; `*` stands for any. About others it says nothing."""

    def __init__(self, answers: Mapping[str, Answer], by: str) -> None:
        self._answers = answers
        self._by = by

    async def answer(self, question: Question) -> tuple[Answer, str]:
        # An exact name wins over a pattern, and of two patterns the more careful answer.
        found = self._answers.get(question.target)
        fitting = [answer for name, answer in self._answers.items() if matches(name, question.target)]
        if found is None and fitting:
            found = "approved" if all(answer == "approved" for answer in fitting) else "denied"
        return (found, self._by) if found is not None else ("unavailable", "nobody")


class FirstOf:
    """Asks one after the other until somebody has an answer."""

    def __init__(self, *approvers: Approver) -> None:
        self._approvers = approvers

    async def answer(self, question: Question) -> tuple[Answer, str]:
        for approver in self._approvers:
            said = await approver.answer(question)
            if said[0] != "unavailable":
                return said
        return "unavailable", "nobody"


async def answered(clock: Clock, approver: Approver, limit: int, question: Question) -> ApprovalAnswered:
    """What somebody says to a question, or that nobody does."""
    copied = replace(question, value=deepcopy(question.value))  # what would go ahead is not the approver's to change
    said = await attempt(clock, limit, lambda: said_by(approver, copied))
    answer: Answer = "unavailable"
    by = "approver"
    match said:
        case Late():
            answer, by = "timed_out", "clock"
        case Raised(CassetteError() as error):
            raise error
        case (given, who):
            answer, by = given, who
    return ApprovalAnswered(question.subject, question.question, answer, by)


async def said_by(approver: Approver, question: Question) -> tuple[Answer, str]:
    """What somebody says to a question. What is no answer, or no person, is nobody."""
    match await caught(lambda: approver.answer(question)):
        case (str() as given, str() as who) if given in ANSWERS:
            return given, who
        case Raised(CassetteError() as error):
            raise error
    return "unavailable", "approver"
