"""The canonical form does not depend on interruptions or on the completion order of calls."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import effect_id_of
from agentrun.core.facts import (
    CallCancelled,
    CallSettled,
    CancelRequested,
    ChildStarted,
    ChildSuspended,
    Continue,
    DeliveryFinished,
    DeliveryStarted,
    Fact,
    HookAnswered,
    HookAsked,
    MessageQueued,
    ModelAsked,
    ResultsGiven,
    Ruled,
    RunEnding,
    RunResumed,
    RunStopped,
    TimePassed,
    ToolFinished,
    ToolStarted,
    WorkLost,
)
from agentrun.core.messages import Text, user_message
from agentrun.core.spend import BudgetShare
from agentrun.journal import canonical as journal_order
from agentrun.journal.canonical import canonical

from .journals import RUN_STOPPED, allowed_call, journal, model_asked, replied, run_started


def text(facts: Sequence[Fact]) -> str:
    return canonical(journal(*facts).records())


# --- interruptions -----------------------------------------------------------------------------------------

ALL_FACTS: tuple[Fact, ...] = (
    run_started(),
    model_asked(),
    replied("", "search", "billing"),
    *allowed_call("c1.0", "search"),
    ChildStarted("c1.1", "billing", "run-1/c1.1", BudgetShare()),
    ToolFinished("c1.1", (Text("Paid."),)),
    ResultsGiven(1),
    model_asked(2),
    replied("Hello", turn=2),
    HookAsked("h1", "audit", "on_output", "output"),
    HookAnswered("h1", "audit", "on_output", "output", Continue()),
    DeliveryStarted("mail"),
    DeliveryFinished("mail"),
    RUN_STOPPED,
)
EFFECTS = {1: "m1.1", 4: "c1.0", 6: "c1.1", 9: "m2.1", 11: "h1", 13: "deliver:mail"}
"""Where each effect of the run above is begun."""


def interrupted(at: int, times: int = 1) -> list[Fact]:
    """The run above, with an effect that is lost and begun again."""
    facts: list[Fact] = [*ALL_FACTS[:at]]
    for attempt in range(1, times + 1):
        begun = _attempt(ALL_FACTS[at], attempt)
        effect = begun.effect if isinstance(begun, ModelAsked) else EFFECTS[at]
        facts += [begun, RunResumed("sha256:1"), WorkLost(effect)]
        facts += [CallSettled("c1.0", "retry", "me")] if at == 4 else []
    last, result = _attempt(ALL_FACTS[at], times + 1), ALL_FACTS[at + 1]
    if isinstance(last, ModelAsked):
        given: Any = result
        result = replied(given.reply.message.text, *_tools(given), turn=last.turn, attempt=times + 1)
    return [*facts, last, result, *ALL_FACTS[at + 2 :]]


def _attempt(fact: Fact, attempt: int) -> Fact:
    return model_asked(fact.turn, attempt) if isinstance(fact, ModelAsked) else fact


def _tools(fact: Any) -> list[str]:
    return [call.tool for call in fact.reply.message.calls]


@pytest.mark.parametrize("at", EFFECTS)
@pytest.mark.parametrize("times", [1, 2])
def test_repeated_lost_work_leaves_no_trace(at: int, times: int) -> None:
    assert text(interrupted(at, times)) == text(ALL_FACTS)


def test_resumes_and_time_leave_no_trace() -> None:
    facts: list[Fact] = [ALL_FACTS[0]]
    for fact in ALL_FACTS[1:]:
        facts += [RunResumed("sha256:other"), TimePassed(), fact]
    assert text(facts) == text(ALL_FACTS)


@pytest.mark.parametrize("at", EFFECTS)
def test_work_lost_before_a_cancel_is_shown_as_started(at: int) -> None:
    """A run that ended after it lost something is not one that never began it."""
    end = (CancelRequested("me"), RunStopped("failed"))
    lost = (ALL_FACTS[at], RunResumed("sha256:1"), WorkLost(EFFECTS[at]))
    assert (
        text([*ALL_FACTS[:at], *lost, *end])
        == text([*ALL_FACTS[:at], ALL_FACTS[at], *end])
        != text([*ALL_FACTS[:at], *end])
    )


def test_settlement_with_result_or_stop_is_shown_and_retry_is_not() -> None:
    """Run again leaves no trace; a result that somebody gave, and a stop, do."""
    lost = [*ALL_FACTS[:5], RunResumed("sha256:1"), WorkLost("c1.0")]
    told = text([*lost, CallSettled("c1.0", "result", "me", (Text("search ran"),)), *ALL_FACTS[6:]])
    assert "- tool_started:" in told
    assert "    how: result\n    by: me\n" in told
    assert "how: stop" in text([*lost, CallSettled("c1.0", "stop", "me")])
    assert text([*lost, CallSettled("c1.0", "retry", "me"), *ALL_FACTS[4:]]) == text(ALL_FACTS)


def test_suspension_of_a_child_that_continued_leaves_no_trace() -> None:
    slept = (ALL_FACTS[6], ChildSuspended("c1.1", ("c1.0",)))
    assert text([*ALL_FACTS[:6], *slept, RunResumed("sha256:1"), *ALL_FACTS[6:]]) == text(ALL_FACTS)
    assert text([*ALL_FACTS[:6], *slept, *slept, RunResumed("sha256:1"), *ALL_FACTS[6:]]) == text(ALL_FACTS)
    asleep = text([*ALL_FACTS[:6], *slept])
    assert asleep.endswith("- child_suspended:\n    call: c1.1\n    waits_for:\n      - c1.0\n")
    assert "- child_started:" in asleep


def test_repeated_defer_is_shown_once() -> None:
    """How often somebody looked whether the rule still defers does not count; that it did does."""
    defer, allow = Ruled("input", "input", "defer", ("later",)), Ruled("input", "input", "allow", ())
    looked: list[Fact] = [RunResumed("sha256:1"), defer]
    once = text([run_started(), defer, RunResumed("sha256:1"), allow, RUN_STOPPED])
    assert text([run_started(), defer, *looked, *looked, RunResumed("sha256:1"), allow, RUN_STOPPED]) == once
    assert text([run_started(), allow, RUN_STOPPED]) != once
    timed = [Ruled("input", "input", "defer", ("later",), until=until) for until in (5, 9)]
    assert text([run_started(), timed[0], RunResumed("sha256:1"), timed[1]]).count("- ruled:") == 1
    assert text([run_started(), timed[1], RunResumed("sha256:1"), allow, RUN_STOPPED]) == once, "the time is left out"
    other = Ruled("input", "input", "defer", ("later", "much later"))
    assert text([run_started(), defer, RunResumed("sha256:1"), other]).count("- ruled:") == 2
    assert text([run_started(), defer, allow, defer]).count("- ruled:") == 3


def test_lost_summary_request_is_not_replaced_by_an_answer_request() -> None:
    """A lost request for a summary is not made good by the next request for an answer, nor by another turn's."""
    summary = ModelAsked("m1.1", 1, 1, "openai/gpt-4.1-mini", 100, purpose="compact")
    told = text([run_started(), summary, WorkLost("m1.1"), model_asked(1, 2), replied("Hi", attempt=2), model_asked(2)])
    assert told.count("- model_asked:") == 3


def test_queued_messages_and_cancel_requests_are_shown() -> None:
    queued, cancelled = MessageQueued("q1", user_message("Hurry.")), CancelRequested("me")
    told = text([*ALL_FACTS[:2], queued, cancelled, *ALL_FACTS[2:]])
    assert "- message_queued:\n    message:\n" in told
    assert "- cancel_requested:\n    by: me\n" in told


# --- batches -----------------------------------------------------------------------------------------------


def batch(calls: int) -> list[tuple[Fact, ...]]:
    return [allowed_call(f"c1.{place}", f"tool{place}") for place in range(calls)]


def batch_in_a_run(batch: Sequence[Fact], calls: int) -> list[Fact]:
    tools = [f"tool{place}" for place in range(calls)]
    return [
        run_started(),
        model_asked(),
        replied("", *tools),
        *batch,
        ResultsGiven(1),
        model_asked(2),
        replied("Done", turn=2),
        RUN_STOPPED,
    ]


@st.composite
def interleaved(draw: st.DrawFn, calls: int) -> list[Fact]:
    """The facts of some calls in any order that keeps each call's own."""
    rows = [list(row) for row in batch(calls)]
    facts = []
    while rows:
        row = draw(st.sampled_from(rows))
        facts.append(row.pop(0))
        rows = [row for row in rows if row]
    return facts


@given(st.integers(1, 12).flatmap(lambda calls: st.tuples(st.just(calls), interleaved(calls))))
def test_any_completion_order_gives_one_form(drawn: tuple[int, list[Fact]]) -> None:
    calls, facts = drawn
    in_order = [fact for row in batch(calls) for fact in row]
    assert text(batch_in_a_run(facts, calls)) == text(batch_in_a_run(in_order, calls))


def test_all_completion_orders_of_five_calls_give_one_form() -> None:
    ends = [row[-1] for row in batch(5)]
    begins = [fact for row in batch(5) for fact in row[:-1]]
    assert len({text(batch_in_a_run([*begins, *order], 5)) for order in permutations(ends)}) == 1


def test_calls_are_sorted_by_number() -> None:
    told = text(batch_in_a_run([row[1] for row in reversed(batch(12))], 12))
    assert [line.strip() for line in told.splitlines() if line.startswith("    call: ")] == [
        f"call: c1.{place}" for place in range(12)
    ]


def test_facts_without_a_call_come_before_the_calls() -> None:
    rows = batch(2)
    queued, cancel = MessageQueued("q", user_message("Hurry.")), CancelRequested("me")
    ends: list[Fact] = [CallCancelled("c1.1", "not waited for"), RunEnding(RUN_STOPPED), RUN_STOPPED]
    begin: list[Fact] = [run_started(), model_asked(), replied("", "tool0", "tool1")]
    one = [*begin, *rows[0], queued, rows[1][0], cancel, *ends]
    two = [*begin, rows[1][0], queued, *rows[0], cancel, *ends]
    assert text(one) == text(two) == text([*begin, queued, cancel, *rows[0], rows[1][0], *ends])


def test_other_facts_keep_their_order() -> None:
    """Outside of batches order is meaning."""
    one, two = MessageQueued("q", user_message("One.")), MessageQueued("q", user_message("Two."))
    assert text([run_started(), one, two]) != text([run_started(), two, one])
    batches = [*batch_in_a_run([fact for row in batch(2) for fact in row], 2)][:-1]
    assert text([*batches, one, RUN_STOPPED]) != text([*batches[:5], one, *batches[5:], RUN_STOPPED])


def test_two_turns_do_not_mix() -> None:
    first = batch_in_a_run(allowed_call("c1.0", "tool0"), 1)[:-2]
    second: list[Fact] = [
        replied("", "a", "b", turn=2),
        ToolStarted("c2.1", "b", "k"),
        ToolStarted("c2.0", "a", "k"),
    ]
    told = text([*first, *second])
    assert told.index("call: c1.0") < told.index("results_given") < told.index("call: c2.0") < told.index("call: c2.1")


# --- planted -----------------------------------------------------------------------------------------------


def test_planted_unsorted_calls_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_order, "_call_index", lambda fact, places: 0)
    assert text(batch_in_a_run([fact for row in reversed(batch(2)) for fact in row], 2)) != text(
        batch_in_a_run([fact for row in batch(2) for fact in row], 2)
    )


def test_planted_comparison_by_effect_id_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is sent again has another id: by ids alone it would be told twice."""
    monkeypatch.setattr(journal_order, "_work_key", effect_id_of)
    assert text(interrupted(1)) != text(ALL_FACTS)
