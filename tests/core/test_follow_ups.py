"""Turns after the model has stopped: queued messages, injecting hooks and the empty-outcome guard."""

from collections.abc import Iterator
from typing import Any

import pytest

from agentrun.core.effects import Deliver
from agentrun.core.facts import (
    AnswerReached,
    Continue,
    DeliveryFinished,
    DeliveryStarted,
    Deny,
    HookAnswer,
    HookAnswered,
    HookAsked,
    Inject,
    MessageQueued,
    ModelAsked,
    ModelReplied,
    ModelTold,
    RunStarted,
    ToolStarted,
)
from agentrun.core.messages import Reply, user_message
from agentrun.core.transitions import is_acceptable

from ..packages import package
from .script import RUN_STARTED, SINK, Run, calls_reply, hook, text_reply, tool
from .shape_parts import ALLOW


def queue_message(run: Run, text: str) -> None:
    run.add(MessageQueued(f"q{len(run.records)}", user_message(text)))


@pytest.mark.parametrize("kind", [RunStarted, ModelAsked, ModelReplied])
def test_queued_messages_are_sent_when_the_model_stops(kind: type) -> None:
    run = Run(package(), text_reply("One."), text_reply("Two."))
    if kind is not RunStarted:
        run.until(kind)
    queue_message(run, "And now?")
    queue_message(run, "And then?")
    outcome = run.finish()
    assert (outcome.answer, outcome.turns) == ("Two.", 2)
    (fact,) = run.of(ModelTold)
    assert (fact.why, fact.messages) == ("follow_up", (user_message("And now?"), user_message("And then?")))
    messages = tuple(run.requests[1].request.messages)
    assert messages == (
        RUN_STARTED.input,
        text_reply("One.").message,
        user_message("And now?"),
        user_message("And then?"),
    )


def test_message_queued_during_calls_waits_for_the_next_text_reply() -> None:
    run = Run(package(tools={"a": tool()}, policy=ALLOW), calls_reply("a"), text_reply("One."), text_reply("Two."))
    run.until(ToolStarted)
    queue_message(run, "And now?")
    run.finish()
    assert [len(request.request.messages) for request in run.requests] == [1, 3, 5]


def test_message_queued_after_the_answer_starts_another_turn() -> None:
    run = Run(package(sinks={"first": SINK}, hooks=[hook("on_output")]), text_reply("One."), text_reply("Two."))
    run.until(AnswerReached)
    queue_message(run, "And now?")
    assert run.finish().answer == "Two."
    assert [effect.text for effect in run.effects if isinstance(effect, Deliver)] == ["Two."], "only the last word"


def test_message_queued_during_on_output_replaces_the_answer() -> None:
    run = Run(package(hooks=[hook("on_output")]), text_reply("One."), text_reply("Two."))
    asked = run.until(HookAsked)
    assert isinstance(asked, HookAsked)
    queue_message(run, "And now?")
    run.until(ModelTold)
    late = HookAnswered(asked.effect, "watch", "on_output", "output", Deny("no"), closes=True)
    assert not is_acceptable(run.state, late), "its answer is about what is no longer the answer"
    assert run.finish().answer == "Two."


def test_message_is_rejected_once_delivery_started() -> None:
    run = Run(package(sinks={"first": SINK}), text_reply("One."))
    run.until(DeliveryStarted)
    late = MessageQueued("q1", user_message("And now?"))
    assert not is_acceptable(run.state, late)
    run.until(DeliveryFinished)
    assert not is_acceptable(run.state, late)
    run.finish()
    assert not is_acceptable(run.state, late)


def test_queued_message_is_not_sent_after_a_terminal_tool() -> None:
    run = Run(package(tools={"final": tool(terminal=True)}, policy=ALLOW), calls_reply("final"), text_reply("Never."))
    run.until(ToolStarted)
    queue_message(run, "And now?")
    assert (run.finish().answer, len(run.requests)) == ("done", 1)


def test_queued_message_without_a_turn_left() -> None:
    for on_turns, code in (("fail", "budget.turns"), ("stop", None)):
        run = Run(package(budgets={"turns": 1, "on_turns": on_turns}), text_reply("One."))
        queue_message(run, "And now?")
        outcome = run.finish()
        assert (outcome.code, outcome.turns) == (code, 1)
        assert (outcome.answer, outcome.label) == ((None, None) if code else ("One.", "budget.turns"))


def test_hook_injects_a_message_after_the_answer() -> None:
    given: Iterator[HookAnswer] = iter([Inject("Shorter."), Continue()])
    run = Run(
        package(hooks=[hook("on_output")]),
        text_reply("Long."),
        text_reply("S."),
        hooks={"watch": lambda effect: next(given)},
    )
    outcome = run.finish()
    assert (outcome.answer, outcome.turns) == ("S.", 2)
    assert tuple(run.requests[1].request.messages) == (
        RUN_STARTED.input,
        text_reply("Long.").message,
        user_message("Shorter."),
    )


def test_hook_that_always_injects_ends_with_the_turn_budget() -> None:
    run = Run(
        package(budgets={"turns": 3}, hooks=[hook("on_output")]),
        *[text_reply("x")] * 3,
        hooks={"watch": Inject("More.")},
    )
    outcome = run.finish()
    assert (outcome.code, len(run.requests)) == ("budget.turns", 3)


def test_hook_injects_a_message_after_a_terminal_tool() -> None:
    agent = package(tools={"final": tool(terminal=True)}, policy=ALLOW, hooks=[hook("on_output")])
    given: Iterator[HookAnswer] = iter([Inject("And?"), Continue()])
    run = Run(agent, calls_reply("final"), text_reply("That is all."), hooks={"watch": lambda effect: next(given)})
    assert run.finish().answer == "That is all."
    messages = tuple(run.requests[1].request.messages)
    assert [type(message).__name__ for message in messages] == ["User", "Assistant", "ToolResult", "User"]


# only a terminal tool is success


def run_with_terminal_tool(budget: int, *replies: Reply, **changes: Any) -> Run:
    agent = package(
        tools={"a": tool(), "final": tool(terminal=True)}, policy=ALLOW, guards={"empty_outcome": budget, **changes}
    )
    return Run(agent, *replies)


@pytest.mark.parametrize("budget", [0, 1, 2])
def test_empty_outcome_guard_nudges_up_to_its_budget(budget: int) -> None:
    words = [text_reply(str(place)) for place in range(budget + 1)]
    run = run_with_terminal_tool(budget, *words[:budget], calls_reply("final"))
    assert (run.finish().answer, [fact.why for fact in run.of(ModelTold)]) == ("done", ["nudge"] * budget)
    run = run_with_terminal_tool(budget, *words)
    outcome = run.finish()
    assert (outcome.code, outcome.fields) == ("guard.empty_outcome", {"observed": budget + 1, "budget": budget})
    assert (outcome.exit_code, outcome.retry) == (5, "not_retryable")


def test_nudge_has_the_text_of_the_spec() -> None:
    run = run_with_terminal_tool(1, text_reply("Hm."), calls_reply("final"))
    run.finish()
    (fact,) = run.of(ModelTold)
    assert fact.messages == (user_message("Go on."),)
    assert run.requests[1].request.messages.since(1) == (text_reply("Hm.").message, user_message("Go on."))


def test_tool_calls_reset_the_empty_outcome_count() -> None:
    run = run_with_terminal_tool(1, text_reply("1"), calls_reply("a"), text_reply("2"), calls_reply("final"))
    assert run.finish().answer == "done"


def test_nudged_text_counts_for_stagnation() -> None:
    """The same text again and again, whatever the budget for empty stops says."""
    run = run_with_terminal_tool(10, *[text_reply("Hm.")] * 3, stagnation=2)
    outcome = run.finish()
    assert (outcome.code, outcome.fields["count"], outcome.fields["limit"]) == ("guard.stagnation", 3, 2)
    assert (
        run_with_terminal_tool(10, *[text_reply("Hm.")] * 2, calls_reply("final"), stagnation=2).finish().answer
        == "done"
    )


def test_queued_message_is_sent_before_the_empty_outcome_guard() -> None:
    run = run_with_terminal_tool(0, text_reply("One."), calls_reply("final"))
    queue_message(run, "And now?")
    assert run.finish().answer == "done"
