"""Puts a question to a person.

Rule 1  It never hangs: without an answer in time there is an answer that says so.
Rule 2  What is asked about is not the approver's to change: it is given a copy.
Rule 3  Only an answer that says so approves. What is none, and what raises, is the lack of one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from inspect import isawaitable
from typing import Any, TypeAlias, get_args

from msgspec.structs import asdict

from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.facts import ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Record
from agentrun.core.outcome import Question
from agentrun.core.package import Package, Sink
from agentrun.core.package_lookup import find_tool, matches_pattern, tool_command
from agentrun.core.package_tools import Tool
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout
from agentrun.engine.ports import Approver, Clock
from agentrun.errors import CassetteError

APPROVAL_ANSWERS: tuple[str, ...] = get_args(ApprovalAnswer)
HOW_TO_ANSWER = "answer at a terminal, or in advance: --approve all, none or FILE"
"""What can be done where there is nobody to ask."""
NO_ANSWER: tuple[ApprovalAnswer, str] = ("unavailable", "nobody")
"""There is no answer. An answer in advance may also say `unavailable`, but then somebody gave it."""
APPROVAL_STAGES = ("input", "output")
"""Subjects of questions that are neither calls nor deliveries."""

CallbackAnswer: TypeAlias = ApprovalAnswer | bool
ApprovalCallback: TypeAlias = Callable[[Question], CallbackAnswer | Awaitable[CallbackAnswer]]
"""A function as an approver, plain or async: `approved`, `approved_for_session`, `denied`, or yes and no as a bool."""


_BY_CAUTION: tuple[ApprovalAnswer, ...] = ("approved", "unavailable", "denied")
"""The answers that can be given in advance, the most careful last."""


class DetailedQuestion(Question, frozen=True, kw_only=True):
    """A question with all that is known of what would go ahead: for an approver that shows it to somebody."""

    agent: str
    tool: Tool | None
    """The tool that would run. Null: it is no call."""
    sink: Sink | None
    """The sink that would get it. Null: it is no delivery."""
    program: str | None
    """The file of the command that would run. Null: it is none."""
    limit: int
    """How long an answer may take, in milliseconds."""


class NoApprover:
    """There is nobody to ask, and there never will be."""

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:  # noqa: ARG002  # whatever it is
        return NO_ANSWER


class PresetApprover:
    """Answers that were given in advance, by tool, sink or stage; `*` stands for any. About others it says nothing."""

    def __init__(self, answers: Mapping[str, ApprovalAnswer], by: str) -> None:
        self._answers = answers
        self._by = by

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        found = self.preset_answer(question.target)
        return NO_ANSWER if found is None else (found, self._by)

    def preset_answer(self, target: str) -> ApprovalAnswer | None:
        """An exact name wins over a pattern, and of several patterns the most careful answer."""
        if target in self._answers:
            return self._answers[target]
        fitting = [answer for name, answer in self._answers.items() if matches_pattern(name, target)]
        return max(fitting, key=_BY_CAUTION.index) if fitting else None


class ApproverChain:
    """Asks one after the other until somebody has an answer."""

    def __init__(self, *approvers: Approver) -> None:
        self._approvers = approvers
        self.keeps_time = any(map(keeps_time, approvers))

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        for approver in self._approvers:
            reply = await approver.answer(question)
            if reply != NO_ANSWER:
                return reply
        return NO_ANSWER

    def preset_answer(self, target: str) -> ApprovalAnswer | None:
        """The answer that is known before the question is asked. None: there is none."""
        found = (
            each.preset_answer(target) for each in self._approvers if isinstance(each, PresetApprover | ApproverChain)
        )
        return next((answer for answer in found if answer is not None), None)


class CallbackApprover:
    """A function that answers."""

    def __init__(self, function: ApprovalCallback, clock: Clock) -> None:
        self._function = function
        self._clock = clock

    async def answer(self, question: Question) -> tuple[Any, str]:
        reply = await self._clock.aside(lambda: self._function(question))
        if isawaitable(reply):
            reply = await reply
        return ("approved" if reply else "denied") if isinstance(reply, bool) else reply, "callback"


def unanswered_targets(*journals: Iterable[Record]) -> tuple[str, ...]:
    """The tools, sinks and stages about which there was nobody to ask."""
    facts = [record.fact for journal in journals for record in journal]
    targets = {fact.question: fact.target for fact in facts if isinstance(fact, ApprovalAsked)}
    open_ = [fact.question for fact in facts if isinstance(fact, ApprovalAnswered) and fact.answer == "unavailable"]
    return tuple(sorted({targets[question] for question in open_ if question in targets}))


def to_approver(given: Approver | ApprovalCallback | None, clock: Clock) -> Approver | None:
    """Somebody to ask: as given, or the function that answers for them."""
    return CallbackApprover(given, clock) if callable(given) and not hasattr(given, "answer") else given


def keeps_time(approver: Approver) -> bool:
    """Whether an approver says itself that time is over: one that puts questions one after the other must, as the time
    of one that waits for its turn has not begun."""
    return bool(getattr(approver, "keeps_time", False))


async def ask_approver(
    clock: Clock, approver: Approver, package: Package, programs: Mapping[str, str], question: Question
) -> ApprovalAnswered:
    """What somebody says to a question, or that nobody does. `programs`: the file of each command."""
    asked = _add_details(package, programs, question)
    if keeps_time(approver):
        answer, by = await call_approver(approver, asked)
        return ApprovalAnswered(question.subject, question.question, answer, by)
    reply = await call_with_timeout(clock, asked.limit, lambda: call_approver(approver, asked))
    answer, by = "unavailable", "approver"
    match reply:
        case TimedOut():
            answer, by = "timed_out", "clock"
        case RaisedException(CassetteError() as error):
            raise error
        case (given, who):
            answer, by = given, who
    return ApprovalAnswered(question.subject, question.question, answer, by)


def _add_details(package: Package, programs: Mapping[str, str], question: Question) -> DetailedQuestion:
    is_delivery = isinstance(parse_effect_id(question.subject), DeliveryId)
    is_call = not is_delivery and question.subject not in APPROVAL_STAGES  # a tool may be called `input`
    tool = find_tool(package, question.target) if is_call else None
    return DetailedQuestion(
        **deepcopy(asdict(question)),
        agent=package.name,
        tool=deepcopy(tool),
        program=programs.get(tool_command(tool) or "") if tool is not None else None,
        sink=deepcopy(package.sinks.get(question.target)) if is_delivery else None,
        limit=package.policy.approval_timeout,
    )


async def call_approver(approver: Approver, question: Question) -> tuple[ApprovalAnswer, str]:
    """What somebody says to a question. What is no answer, or no person, is nobody."""
    match await call_guarded(lambda: approver.answer(question)):
        case (str() as given, str() as who) if given in APPROVAL_ANSWERS:
            return given, who
        case RaisedException(CassetteError() as error):
            raise error
    return "unavailable", "approver"
