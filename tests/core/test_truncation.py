"""Replies that were truncated at max_output_tokens: continue or escalate."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import model_reply
from agentrun.core.effects import Commit
from agentrun.core.facts import (
    AnswerLabel,
    CallRefused,
    CancelRequested,
    ModelTold,
    OutputRefused,
    ReplyDiscarded,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import FinishReason, Refusal, Reply

from ..packages import package, typed
from .script import RUN_STARTED, Run, calls_reply, session_messages, text_reply, tool
from .shape_parts import ALLOW, GOOD


def cut_reply(text: str) -> Reply:
    return text_reply(text, finish="length")


def test_truncated_replies_are_continued_and_joined() -> None:
    run = Run(package(), cut_reply("One "), cut_reply("two "), text_reply("three."))
    outcome = run.finish()
    assert (outcome.answer, outcome.label, outcome.turns) == ("One two three.", None, 3)
    assert [fact.why for fact in run.of(ModelTold)] == ["continue", "continue"]
    messages = tuple(run.requests[2].request.messages)
    go_on = run.of(ModelTold)[0].messages[0]
    assert messages == (RUN_STARTED.input, cut_reply("One ").message, go_on, cut_reply("two ").message, go_on)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_answer_is_labelled_truncated_after_the_allowed_continuations(limit: int) -> None:
    agent = package(limits={"truncations": limit})
    outcome = Run(agent, *[cut_reply("x")] * limit, text_reply("y")).finish()
    assert (outcome.answer, outcome.label) == ("x" * limit + "y", None)
    run = Run(agent, *[cut_reply("x")] * (limit + 1))
    outcome = run.finish()
    assert (outcome.answer, outcome.label, outcome.turns) == ("x" * (limit + 1), "truncated", limit + 1)
    assert len(run.of(ModelTold)) == limit


def test_planted_endless_continuation_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_reply, "_continue_truncated", lambda package, state: Commit((ModelTold("continue", ()),)))
    run = Run(package(budgets={"turns": 9}), *[cut_reply("x")] * 9)
    assert run.finish().code == "budget.turns"
    assert len(run.of(ModelTold)) > 3


def test_tool_calls_reset_the_truncation_count() -> None:
    """What comes between begins the count again."""
    agent = package(limits={"truncations": 1}, tools={"a": tool()}, policy=ALLOW)
    run = Run(agent, cut_reply("x"), calls_reply("a"), cut_reply("y"), text_reply("z"))
    assert (run.finish().answer, len(run.of(ModelTold))) == ("yz", 2)
    assert run.state.ending.label is None


def test_joined_answer_is_checked_against_the_schema() -> None:
    run = Run(typed(), cut_reply(GOOD[:10]), text_reply(GOOD[10:]))
    outcome = run.finish()
    assert (outcome.answer, outcome.output) == (GOOD, {"queue": "hardware", "urgent": True})
    run = Run(typed(), cut_reply(GOOD[:10]), text_reply("no"), text_reply(GOOD))
    assert run.finish().answer == GOOD, "a repair begins from nothing"


def test_truncated_answer_that_is_invalid_is_repaired() -> None:
    run = Run(typed(limits={"truncations": 0}), cut_reply(GOOD[:10]), text_reply(GOOD))
    assert run.finish().answer == GOOD
    assert len(run.of(OutputRefused)) == 1


def test_truncated_reply_with_calls_is_not_continued() -> None:
    agent = package(tools={"a": tool()}, policy=ALLOW)
    reply = replace(calls_reply(("a", '{"q": "x"}'), ("a", '{"q')), finish="length")
    run = Run(agent, reply, text_reply("Done."))
    run.finish()
    assert run.ran == ["c1.0"]
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.invalid_arguments"]


def escalating(*replies: Reply | Fault, cap: int | None = 10, **limits: Any) -> Run:
    agent = package(
        limits={"on_truncated": "escalate", **limits},
        model={"max_output_tokens": cap},
        tools={"a": tool()},
        policy=ALLOW,
    )
    return Run(agent, *replies)


def test_escalate_repeats_the_request_with_a_doubled_limit() -> None:
    """The reply is discarded, and the request sent again with more room."""
    run = escalating(cut_reply("One"), cut_reply("One two"), text_reply("One two three."))
    outcome = run.finish()
    assert (outcome.answer, outcome.label, outcome.turns) == ("One two three.", None, 1)
    assert [fact.cap for fact in run.of(ReplyDiscarded)] == [20, 40]
    assert [request.request.settings.max_output_tokens for request in run.requests] == [10, 20, 40]
    assert [request.id for request in run.requests] == ["m1.1", "m1.2", "m1.3"]
    assert all(tuple(request.request.messages) == (RUN_STARTED.input,) for request in run.requests)
    assert outcome.tokens == 75, "what was discarded was spent"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_escalate_stops_after_the_allowed_truncations(limit: int) -> None:
    assert escalating(*[cut_reply("x")] * limit, text_reply("y"), truncations=limit).finish().label is None
    run = escalating(*[cut_reply("x")] * (limit + 1), truncations=limit)
    outcome = run.finish()
    assert (outcome.answer, outcome.label) == ("x", "truncated")
    assert len(run.of(ReplyDiscarded)) == limit


def test_escalate_needs_max_output_tokens() -> None:
    run = escalating(cut_reply("One"), cap=None)
    assert (run.finish().label, run.of(ReplyDiscarded)) == ("truncated", [])


def test_calls_of_a_discarded_reply_do_not_run() -> None:
    again = [replace(calls_reply("a"), finish="length")] * 2
    run = escalating(*again, calls_reply("a"), text_reply("Done."))
    run.finish()
    assert run.ran == ["c1.0"]
    assert len(run.of(ToolStarted)) == 1


def test_discarded_reply_is_not_part_of_the_conversation() -> None:
    run = escalating(cut_reply("One"), text_reply("One two."))
    run.until(ReplyDiscarded)
    run.add(CancelRequested("me"))
    run.finish()
    assert session_messages(run.state) == (RUN_STARTED.input,)


def test_escalated_limit_applies_to_one_turn() -> None:
    run = escalating(replace(calls_reply("a"), finish="length"), calls_reply("a"), text_reply("Done."))
    run.finish()
    assert [request.request.settings.max_output_tokens for request in run.requests] == [10, 20, 10]


def test_escalation_beyond_the_token_budget_fails() -> None:
    agent = package(
        limits={"on_truncated": "escalate"}, model={"max_output_tokens": 1000}, budgets={"tokens": 2000, "turns": 3}
    )
    outcome = Run(agent, cut_reply("One")).finish()
    assert (outcome.code, outcome.fields["limit"]) == ("budget.tokens", 2000)


@pytest.mark.parametrize(
    ("finish", "label"),
    [("stop", None), ("tool_calls", None), ("content_filter", "filtered"), ("unknown", "unknown_finish")],
)
def test_finish_reason_sets_the_label(finish: FinishReason, label: AnswerLabel | None) -> None:
    assert Run(package(), text_reply("So far", finish=finish)).finish().label == label
    assert Run(typed(), text_reply(GOOD, finish=finish)).finish().label == label


def test_refusal_is_an_answer_labelled_refused() -> None:
    outcome = Run(package(), text_reply(Refusal("I will not."))).finish()
    assert (outcome.status, outcome.answer, outcome.label) == ("completed", "I will not.", "refused")
    outcome = Run(typed(output={"repairs": 0}), text_reply(Refusal("I will not."))).finish()
    assert outcome.code == "output.invalid"
