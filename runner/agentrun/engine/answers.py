"""Answers, settlements and other input from outside a run, checked before they become facts.

Rule 1  An answer is for one question: it is bound by a hash to the tool, the arguments, the rules, the package and the
        run. For a question that is closed, stale or altered it is refused with `run.invalid_state`.
Rule 2  The first answer counts, even while it waits for the run to record it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from agentrun.core.decide import asked_questions
from agentrun.core.evolve import fold
from agentrun.core.facts import ApprovalAnswer, ApprovalAnswered, ApprovalAsked, CallSettled, ChildStarted, Fact
from agentrun.core.gate import matches_its_hash
from agentrun.core.messages import Content
from agentrun.core.outcome import Question
from agentrun.core.package import Package
from agentrun.core.state import State, find_call
from agentrun.core.transitions import is_acceptable
from agentrun.engine.argument_checks import check_author, check_choice, check_data, check_text, check_type
from agentrun.engine.driver import RunLog
from agentrun.engine.memory import Journals, stored_package
from agentrun.errors import RequestError
from agentrun.spec.problems import quote_text

CallSettlement: TypeAlias = Literal["retry", "result", "stop"]
"""The decision about a call with an unknown outcome: run it again, use this result, or stop the run."""

MAX_SETTLED_BYTES = 51_200
"""Of a result that a person gives, like the default limit of a tool result."""


def make_answer(question: Question, answer: ApprovalAnswer, by: str, reason: str | None = None) -> ApprovalAnswered:
    check_type("question", question, Question, "a Question")
    check_text("question.subject", question.subject)
    check_text("question.question", question.question)
    check_choice("answer", answer, get_args(ApprovalAnswer))
    check_author(by)
    if reason is None:
        return ApprovalAnswered(question.subject, question.question, answer, by)
    check_text("reason", reason)
    if answer != "denied":
        raise ValueError("`reason` says why something is denied: give it with answer='denied', and only then")
    if len(reason.encode()) > MAX_SETTLED_BYTES:
        raise ValueError(f"`reason` is larger than {MAX_SETTLED_BYTES // 1024} KiB, the limit of a result")
    return ApprovalAnswered(question.subject, question.question, answer, by, reason)


def make_settlement(call: str, how: CallSettlement, by: str, parts: tuple[Content, ...]) -> CallSettled:
    check_text("call", call)
    check_choice("how", how, get_args(CallSettlement))
    check_author(by)
    check_type("parts", parts, tuple, "a tuple of Text, Image and File parts")
    check_data("parts", parts, tuple[Content, ...], "a tuple of Text, Image and File parts")
    if bool(parts) != (how == "result"):
        raise ValueError("`parts` is the result of the call: give it with how='result', and only then")
    if len(msgspec.json.encode(parts)) > MAX_SETTLED_BYTES:
        raise ValueError(f"`parts` is larger than {MAX_SETTLED_BYTES // 1024} KiB, the limit of a result")
    return CallSettled(call, how, by, parts)


def refuse_answer(
    question: Question, fact: Fact, state: State, posted: Sequence[Fact], read: Callable[[], Iterable[Fact]]
) -> None:
    """Raise `run.invalid_state` if the question is not open. `posted`: facts that the run has not recorded yet. `read`:
    the facts of its journal."""
    is_open = is_acceptable(state, fact) and not _answers_to(question, posted)
    if is_open and matches_its_hash(state, question):
        return
    about = f"the question about {quote_text(question.target)} ({question.subject})"
    state_word, message, hint = "altered", f"{about} is not what the run asked", None
    if is_open:
        message += ": its tool, arguments or rules were changed after it was asked"
    else:
        facts = (*read(), *posted)
        answers = _answers_to(question, facts)
        if answers:
            state_word, message = "closed", f"{about} is already answered: {answers[0].answer} by {answers[0].by}"
        elif any(isinstance(each, ApprovalAsked) and each.question == question.question for each in facts):
            state_word, message = "stale", f"{about} is no longer asked: the run went on without an answer"
        else:
            message += ": another tool, other arguments or rules, another package or another run"
            hint = "answer one of the questions that the run waits for now"
    fields = {"run": state.started.run, "subject": question.subject, "expected": "open", "actual": state_word}
    raise RequestError("run.invalid_state", message, hint=hint, fields=fields)


def _answers_to(question: Question, facts: Iterable[Fact]) -> list[ApprovalAnswered]:
    return [fact for fact in facts if isinstance(fact, ApprovalAnswered) and fact.question == question.question]


_UNSETTLED_TEXTS = {
    "started": "is running",
    "asleep": "is a sub-agent that waits: settle the call of the sub-agent instead",
    **dict.fromkeys(("new", "asking", "deferred", "ready"), "has not started"),
    **dict.fromkeys(("denied", "finished", "done"), "has a result"),
    "abandoned": "is already settled",
}


def refuse_settlement(fact: CallSettled, state: State, posted: Sequence[Fact]) -> None:
    """Raise `run.invalid_state` if the outcome of the call is not unknown."""
    is_posted = any(isinstance(each, CallSettled) and each.call == fact.call for each in posted)
    if is_acceptable(state, fact) and not is_posted:
        return
    call = find_call(state, fact.call)
    status = "missing" if call is None else call.status
    text = "is already settled" if is_posted else _UNSETTLED_TEXTS.get(status, "is not open in this run")
    message = f"the call {quote_text(fact.call)} {text}; only a call whose outcome is not known can be settled"
    fields: dict[str, Any] = {"run": state.started.run, "call": fact.call, "expected": "lost", "actual": status}
    raise RequestError("run.invalid_state", message, fields=fields)


def settle_call(log: RunLog, fact: CallSettled) -> None:
    """Settle a call of a run that no process works on. Raises `run.invalid_state`."""
    call = find_call(log.state, fact.call)
    if call is not None and call.status == "started":
        log.take_over(log.state.package)
    refuse_settlement(fact, log.state, ())
    log.commit(fact)


def open_questions(journals: Journals, run: str) -> tuple[Question, ...]:
    return asked_questions(package_of_run(journals, run), fold(journals.records(run)))


def package_of_run(journals: Journals, run: str) -> Package:
    """The package of a run. That of a sub-agent is part of its parent's. Raises `run.not_found`."""
    started = fold(journals.records(run)).started
    if started.parent is None:
        return stored_package(journals, run).agent
    facts = (record.fact for record in journals.records(started.parent.run))
    tool = next(fact.tool for fact in facts if isinstance(fact, ChildStarted) and fact.run == run)
    return package_of_run(journals, started.parent.run).agents[tool]
