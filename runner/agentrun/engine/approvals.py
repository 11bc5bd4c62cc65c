"""Ask for approvals.

Rule 1  The approver gets a copy of the question, so it cannot change the call.
Rule 2  Only an explicit answer approves. An exception or an invalid answer counts as `unavailable`.
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
from agentrun.core.package import Package, Sink, find_tool, matches_pattern, tool_command
from agentrun.core.package_tools import Tool
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout
from agentrun.engine.ports import Approver, Clock
from agentrun.errors import CassetteError

APPROVAL_ANSWERS: tuple[str, ...] = get_args(ApprovalAnswer)
HOW_TO_ANSWER = "answer at a terminal, or in advance: --approve all, none or FILE"
NO_ANSWER: tuple[ApprovalAnswer, str] = ("unavailable", "nobody")
"""No approver gave an answer. A preset answer can also be `unavailable`, but has another author."""
APPROVAL_STAGES = ("input", "output")
"""The subjects of questions that are neither calls nor deliveries."""

CallbackAnswer: TypeAlias = ApprovalAnswer | bool
ApprovalCallback: TypeAlias = Callable[[Question], CallbackAnswer | Awaitable[CallbackAnswer]]
"""A function as approver, plain or async. It returns `approved`, `approved_for_session`, `denied` or a bool."""

_BY_CAUTION: tuple[ApprovalAnswer, ...] = ("approved", "unavailable", "denied")
"""The answers that can be preset, the most careful last."""


class DetailedQuestion(Question, frozen=True, kw_only=True):
    """A question with what an approver shows to a person: the tool or sink, and the file of the command."""

    agent: str
    tool: Tool | None
    sink: Sink | None
    program: str | None
    limit: int
    """Milliseconds."""


class NoApprover:
    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:  # noqa: ARG002  # the same for all
        return NO_ANSWER


class PresetApprover:
    """Preset answers by tool, sink or stage, with `*` as wildcard. It does not answer other questions."""

    def __init__(self, answers: Mapping[str, ApprovalAnswer], by: str) -> None:
        self._answers = answers
        self._by = by

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        answer = self.preset_answer(question.target)
        return NO_ANSWER if answer is None else (answer, self._by)

    def preset_answer(self, target: str) -> ApprovalAnswer | None:
        """An exact name takes precedence over patterns. Of several patterns the most careful answer wins."""
        if target in self._answers:
            return self._answers[target]
        answers = [answer for name, answer in self._answers.items() if matches_pattern(name, target)]
        return max(answers, key=_BY_CAUTION.index) if answers else None


class ApproverChain:
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
        """The answer that is known before the question is asked, or None."""
        presets = (each for each in self._approvers if isinstance(each, PresetApprover | ApproverChain))
        answers = (each.preset_answer(target) for each in presets)
        return next((answer for answer in answers if answer is not None), None)


class CallbackApprover:
    def __init__(self, function: ApprovalCallback, clock: Clock) -> None:
        self._function = function
        self._clock = clock

    async def answer(self, question: Question) -> tuple[Any, str]:
        reply = await self._clock.aside(lambda: self._function(question))
        if isawaitable(reply):
            reply = await reply
        if isinstance(reply, bool):
            reply = "approved" if reply else "denied"
        return reply, "callback"


def unanswered_targets(*journals: Iterable[Record]) -> tuple[str, ...]:
    facts = [record.fact for journal in journals for record in journal]
    targets = {fact.question: fact.target for fact in facts if isinstance(fact, ApprovalAsked)}
    open_ = [fact.question for fact in facts if isinstance(fact, ApprovalAnswered) and fact.answer == "unavailable"]
    return tuple(sorted({targets[question] for question in open_ if question in targets}))


def to_approver(approver: Approver | ApprovalCallback | None, clock: Clock) -> Approver | None:
    return CallbackApprover(approver, clock) if callable(approver) and not hasattr(approver, "answer") else approver


def keeps_time(approver: Approver) -> bool:
    """Whether the approver itself applies the time limit, because the time starts when it shows the question."""
    return bool(getattr(approver, "keeps_time", False))


def lifts_deferrals(approver: Approver) -> bool:
    """Whether the approver also answers for the person who lifts a deferral. Only a cassette does: a recording does not
    wait for days, and a case says what the person answers."""
    return bool(getattr(approver, "lifts_deferrals", False))


async def ask_approver(
    clock: Clock,
    approver: Approver,
    package: Package,
    programs: Mapping[str, str],
    question: Question,
    *,
    suspends: bool = False,
) -> ApprovalAnswered | None:
    """`suspends`: return None if no one answers, so that the question stays open. That of a deferral always does."""
    if question.deferred and not lifts_deferrals(approver):
        return None
    detailed = add_details(package, programs, question)
    if keeps_time(approver):
        answer, by = await call_approver(approver, detailed)
    else:
        answer, by = await _answer_in_time(clock, approver, detailed)
    if suspends and (answer, by) == NO_ANSWER:
        return None
    return ApprovalAnswered(question.subject, question.question, answer, by)


async def _answer_in_time(clock: Clock, approver: Approver, question: DetailedQuestion) -> tuple[ApprovalAnswer, str]:
    reply = await call_with_timeout(clock, question.limit, lambda: call_approver(approver, question))
    answer: ApprovalAnswer
    answer, by = "unavailable", "approver"
    match reply:
        case TimedOut():
            answer, by = "timed_out", "clock"
        case RaisedException(CassetteError() as error):
            raise error
        case (answer, by):
            pass
    return answer, by


def add_details(package: Package, programs: Mapping[str, str], question: Question) -> DetailedQuestion:
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
    match await call_guarded(lambda: approver.answer(question)):
        case (str() as answer, str() as by) if answer in APPROVAL_ANSWERS:
            return answer, by
        case RaisedException(CassetteError() as error):
            raise error
    return "unavailable", "approver"
