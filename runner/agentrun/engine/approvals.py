"""Puts a question to a person. It never hangs: without an answer in time there is an answer that says so."""

from __future__ import annotations

from copy import deepcopy
from typing import get_args

from msgspec.structs import replace

from agentrun.core.facts_gates import Answer, ApprovalAnswered
from agentrun.core.outcome import Question
from agentrun.engine.attempt import Late, attempt
from agentrun.engine.ports import Approver, Clock

ANSWERS: tuple[str, ...] = get_args(Answer)


class Nobody:
    """There is nobody to ask, and there never will be."""

    async def answer(self, question: Question) -> tuple[Answer, str]:  # noqa: ARG002  # whatever it is
        return "unavailable", "nobody"


async def answered(clock: Clock, approver: Approver, limit: int, question: Question) -> ApprovalAnswered:
    """What somebody says to a question, or that nobody does."""
    copied = replace(question, value=deepcopy(question.value))  # what would go ahead is not the approver's to change
    said = await attempt(clock, limit, lambda: approver.answer(copied))
    answer: Answer = "unavailable"
    by = "approver"
    match said:
        case Late():
            answer, by = "timed_out", "clock"
        case (str() as given, str() as who) if given in ANSWERS:
            answer, by = given, who
    return ApprovalAnswered(question.subject, question.question, answer, by)
