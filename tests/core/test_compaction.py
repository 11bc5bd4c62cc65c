"""Context overflow, compaction, and the consistency of the message history."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core import compaction
from agentrun.core.budget import estimate_tokens
from agentrun.core.compaction import count_fitting_messages
from agentrun.core.facts import CompactionFailed, ContextCompacted, EarlierRuns, ModelAsked
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Message, Reply, Text, ToolCall, ToolResult, Transcript, Usage
from agentrun.core.messages import user_message as user
from agentrun.core.model_request import find_history_fault
from agentrun.core.model_texts import SUMMARY_PREFIX
from agentrun.core.package import Package
from agentrun.core.state import ConversationState, State

from ..packages import ROUTE, package
from .script import RUN_STARTED, Run, calls_reply, text_reply, tool

LONG = "x" * 300
OVERFLOW = Fault("provider.context_overflow", "too long", {"status": 400})


def agent(window: int | None = None, *, cap: int | None = None, overflow: str = "compact", **changes: Any) -> Package:
    return package(
        model={"routes": [{**ROUTE, "context_window": window}], "max_output_tokens": cap},
        tools={"search": tool()},
        policy={"default": "allow"},
        context={"overflow": overflow, "keep": 2, **changes},
    )


def searches(count: int) -> list[Reply]:
    return [calls_reply(("search", f'{{"q":"{n}"}}')) for n in range(count)]


def sizes(count: int, **changes: Any) -> list[int]:
    """What the requests of a run of so many searches are estimated at."""
    run = Run(agent(**changes), *searches(count), text_reply("Yes."), tools={"search": LONG})
    run.finish()
    return [fact.reserved for fact in run.of(ModelAsked)]


def play(given: Package, *answers: Reply | Fault, **changes: Any) -> Run:
    run = Run(given, *answers, tools={"search": LONG}, **changes)
    run.finish()
    return run


def purposes(run: Run) -> list[str]:
    return [request.purpose for request in run.requests]


# the window


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_request_larger_than_the_window_fails(turn: int) -> None:
    """An estimate as large as the window passes, one more does not."""
    window = sizes(2)[turn]
    answers = [*searches(turn), text_reply("Yes.")]
    assert play(agent(window, overflow="fail"), *answers).state.phase == "stopped"
    run = Run(agent(window - 1, overflow="fail"), *answers, tools={"search": LONG})
    outcome = run.finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("context.overflow", 5, "repair")
    assert outcome.fields == {"context": window - 1, "estimated": window}
    assert outcome.fault is not None
    assert outcome.fault.hint == "set context.overflow: compact"
    assert len(run.requests) == turn, "nothing is sent"


def test_max_output_tokens_do_not_count_for_the_window() -> None:
    (window,) = sizes(0)
    assert play(agent(window, cap=10_000, overflow="fail"), text_reply("Yes.")).requests


def test_overflow_reported_by_the_provider_fails_the_run() -> None:
    outcome = Run(agent(overflow="fail"), OVERFLOW).finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("provider.context_overflow", 6, "repair")
    assert outcome.fields == {"status": 400, "turn": 1, "attempts": 1}


# compaction


def test_compaction_replaces_all_but_the_latest_call() -> None:
    window = sizes(3)[3]
    run = play(agent(window - 1), *searches(3), text_reply("Found nothing yet."), text_reply("Yes."))
    assert purposes(run) == ["answer", "answer", "answer", "compact", "answer"]
    (compacted,) = run.of(ContextCompacted)
    before = tuple(run.requests[3].request.messages)[:-1]
    assert compacted.replaced == len(before) == 5, "all but the latest call and its result"
    assert compacted.summary == user(SUMMARY_PREFIX + "Found nothing yet.")
    assert compacted.before == sum(map(estimate_tokens, before))
    assert compacted.after == estimate_tokens(compacted.summary) < compacted.before
    summary, call, result = run.requests[4].request.messages
    assert summary == compacted.summary
    assert isinstance(call, Assistant)
    assert isinstance(result, ToolResult)
    assert call.calls[0].id == result.call == "c3.0", "pairs stay together"
    assert run.state.conversation.estimate == sum(map(estimate_tokens, run.state.conversation.transcript))


def test_summary_request_has_the_prompt_and_no_tools() -> None:
    run = play(agent(sizes(2)[2] - 1), *searches(2), text_reply("Nothing yet."), text_reply("Yes."))
    (asked,) = [request for request in run.requests if request.purpose == "compact"]
    assert tuple(asked.request.messages)[-1] == user(RUN_STARTED.prompts["compact"])
    assert asked.request.tools == ()
    assert asked.request.output is None
    assert asked.request.instructions == RUN_STARTED.instructions
    assert asked.id.startswith("k")


def test_summary_costs_tokens_but_is_no_turn() -> None:
    given = agent(sizes(2)[2] - 1)
    given = replace(given, budgets=replace(given.budgets, turns=3))
    run = play(given, *searches(2), text_reply("Nothing yet.", usage=Usage(500, 70, 0, 0)), text_reply("Yes."))
    assert run.state.turns == 3
    assert run.state.meter.tokens == 3 * 25 + 570


@pytest.mark.parametrize(("short", "made"), [(0, 1), (1, 0)])
def test_summary_request_is_reserved_in_the_budget(short: int, made: int) -> None:
    first, second = searches(2)
    answers = [first, replace(second, usage=Usage(400, 100, 0, 0)), text_reply("S"), text_reply("Yes.")]
    given = agent(sizes(2)[2] - 1)
    asked = next(fact for fact in play(given, *answers).of(ModelAsked) if fact.purpose == "compact")
    poor = replace(given, budgets=replace(given.budgets, tokens=525 + asked.reserved - short))
    run = Run(poor, *answers, tools={"search": LONG})
    assert run.finish().code == "budget.tokens"
    assert purposes(run).count("compact") == made


def test_overflow_reported_by_the_provider_starts_compaction() -> None:
    """Whatever the window is thought to be: the history is summed up, and the turn goes on."""
    run = play(agent(), *searches(2), OVERFLOW, text_reply("Nothing yet."), text_reply("Yes."))
    assert purposes(run) == ["answer", "answer", "answer", "compact", "answer"]
    assert run.state.turns == 3
    assert [request.id for request in run.requests[2:]] == ["m3.1", "k3.2", "m3.3"]


def test_summary_can_be_compacted_again() -> None:
    run = play(agent(), *searches(2), OVERFLOW, text_reply("One."), OVERFLOW, text_reply("2."), text_reply("Yes."))
    first, second = run.of(ContextCompacted)
    assert (first.replaced, second.replaced) == (3, 1), "a summary can be summed up"
    assert second.after < second.before == first.after


def test_repeated_overflow_ends_the_run() -> None:
    """It ends: what is summed up gets shorter each time, and a summary that cannot be had is a fault."""
    run = Run(agent(), *[OVERFLOW] * 50)
    outcome = run.finish()
    assert outcome.code == "provider.context_overflow", "there is nothing to sum up"
    assert len(run.requests) == 1
    run = Run(agent(keep=0), *[OVERFLOW] * 50)
    outcome = run.finish()
    assert outcome.code == "provider.context_overflow"
    assert len(run.requests) < 5


@pytest.mark.parametrize(
    ("useless", "reason"),
    [
        (text_reply("x" * 2000), "not_smaller"),
        (text_reply(" \n"), "empty"),
        (text_reply(), "empty"),
        (calls_reply("search", text="S"), "calls"),
    ],
)
@pytest.mark.parametrize("failures", [1, 3])
def test_run_fails_after_the_allowed_compaction_failures(useless: Reply, reason: str, failures: int) -> None:
    given = agent(sizes(2)[2] - 1, failures=failures)
    run = Run(
        given, *searches(2), *[useless] * (failures - 1), text_reply("S"), text_reply("Yes."), tools={"search": LONG}
    )
    assert run.finish().status == "completed"
    assert [fact.failures for fact in run.of(CompactionFailed)] == list(range(1, failures))
    run = Run(given, *searches(2), *[useless] * failures, tools={"search": LONG})
    outcome = run.finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("context.failed", 7, "repair")
    assert outcome.fields == {"part": "history", "reason": "compaction"}
    assert {fact.reason for fact in run.of(CompactionFailed)} == {reason}


def test_failed_compactions_after_a_provider_overflow_end_the_run() -> None:
    run = Run(agent(), *searches(2), OVERFLOW, *[text_reply("")] * 3, tools={"search": LONG})
    assert run.finish().code == "context.failed"
    assert purposes(run) == ["answer"] * 3 + ["compact"] * 3


def test_successful_compaction_resets_the_failure_count() -> None:
    given = agent(failures=2)
    summaries = (OVERFLOW, text_reply(""), text_reply("One."), OVERFLOW, text_reply(""), text_reply("2."))
    run = play(given, *searches(2), *summaries, text_reply("Yes."))
    assert [fact.failures for fact in run.of(CompactionFailed)] == [1, 1]


def test_summary_must_be_smaller_than_what_it_replaces() -> None:
    """As long as what it replaces is not shorter; three letters less is."""
    base = play(agent(), *searches(2), OVERFLOW, text_reply("S"), text_reply("Yes."))
    before = base.of(ContextCompacted)[0].before
    longest = (before - estimate_tokens(user(SUMMARY_PREFIX))) * 3
    run = play(agent(), *searches(2), OVERFLOW, text_reply("x" * (longest - 3)), text_reply("Yes."))
    assert run.of(ContextCompacted)[0].after == before - 1
    run = play(agent(), *searches(2), OVERFLOW, text_reply("x" * longest), text_reply("S"), text_reply("Yes."))
    assert run.of(CompactionFailed) == [CompactionFailed("not_smaller", 1)]


def test_planted_compaction_separates_a_call_from_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that only counts messages tears a call from its result."""
    monkeypatch.setattr(
        compaction, "count_fitting_messages", lambda package, state, room: len(state.conversation.transcript) - 1
    )
    run = play(agent(), *searches(2), OVERFLOW, text_reply("S"), text_reply("Yes."))
    assert find_history_fault(run.requests[-1].request.messages) is not None


def test_overflow_without_a_history_to_compact_fails() -> None:
    outcome = Run(agent(10), text_reply("Yes.")).finish()
    assert (outcome.code, outcome.fields["context"]) == ("context.overflow", 10)
    assert outcome.fault is not None
    assert outcome.fault.hint == "lower context.compaction.keep"


def test_long_history_is_compacted_in_parts_that_fit_the_window() -> None:
    """A history longer than the window is summed up in parts, each of which fits."""
    history = tuple(user(letter * 300) for letter in "abcdefgh")
    earlier = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, messages=history))
    given = agent(400)
    run = play(given, *[text_reply("S")] * 2, text_reply("Yes."), started=earlier)
    assert purposes(run) == ["compact"] * 2 + ["answer"]
    assert [fact.replaced for fact in run.of(ContextCompacted)] == [3, 4]
    for request in run.of(ModelAsked):
        assert request.reserved <= 400
    huge = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, messages=(user("x" * 3000), *history)))
    assert Run(given, text_reply("S"), started=huge).finish().code == "context.overflow", (
        "a message larger than the window"
    )


# how many messages


def state_of(messages: list[Message]) -> State:
    return State(conversation=ConversationState(transcript=Transcript(messages)))


@pytest.mark.parametrize(("keep", "count"), [(0, 5), (1, 4), (2, 1), (3, 1), (4, 1), (5, 0), (9, 0)])
def test_compaction_keeps_the_latest_messages_and_whole_call_pairs(keep: int, count: int) -> None:
    """Of user, calls, result, result, user: never between calls and their results."""
    messages: list[Message] = [user("a"), ask("1", "2"), result("1"), result("2"), user("b")]
    assert count_fitting_messages(agent(keep=keep), state_of(messages), None) == count


def test_compaction_takes_as_many_messages_as_fit() -> None:
    messages: list[Message] = [user("abc"), user("abc"), user("abc")]
    assert estimate_tokens(messages[0]) == 5
    assert [count_fitting_messages(agent(keep=0), state_of(messages), room) for room in (-1, 4, 5, 9, 10, 14, 15)] == [
        *(0, 0, 1, 1, 2, 2, 3)
    ]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    found: list[Message] = []
    for _ in range(draw(st.integers(0, 5))):
        found.append(user(draw(st.text(max_size=9))))
        calls = draw(st.integers(0, 3))
        ids = [f"c{len(found)}.{n}" for n in range(calls)]
        found.append(Assistant(tuple(ToolCall(id, "a", "{}") for id in ids) or (Text("t"),)))
        found += [ToolResult(id, ()) for id in draw(st.permutations(ids))]
    return found


@given(conversations(), st.integers(0, 12), st.none() | st.integers(0, 60))
def test_calls_and_results_stay_together(messages: list[Message], keep: int, room: int | None) -> None:
    count = count_fitting_messages(agent(keep=keep), state_of(messages), room)
    assert count <= max(len(messages) - keep, 0)
    assert room is None or sum(map(estimate_tokens, messages[:count])) <= room
    assert find_history_fault(messages[:count]) is None
    assert find_history_fault(messages[count:]) is None


# histories


def ask(*ids: str) -> Assistant:
    return Assistant(tuple(ToolCall(id, "a", "{}") for id in ids))


def result(id: str) -> ToolResult:
    return ToolResult(id, (Text("x"),))


@pytest.mark.parametrize(
    ("history", "calls"),
    [
        ((ask("1"), user("x")), ["1"]),
        ((ask("1", "2"), result("2"), user("x")), ["1"]),
        ((ask("1", "2"),), ["1", "2"]),
        ((ask("1"), ask("2"), result("1"), result("2")), ["1"]),
        ((ask("1"), result("1"), result("1")), ["1"]),
        ((result("1"),), ["1"]),
        ((user("x"), result("1")), ["1"]),
        ((ask("1"), result("2")), ["2"]),
        ((ask("1"), result("1"), user("x"), result("1")), ["1"]),
    ],
)
def test_inconsistent_history_fails_before_a_request(history: tuple[Message, ...], calls: list[str]) -> None:
    started = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, messages=history))
    run = Run(package(), text_reply("Yes."), started=started)
    outcome = run.finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("provider.inconsistent_history", 6, "repair")
    assert outcome.fields == {"calls": calls}
    assert outcome.fault is not None
    assert outcome.fault.hint is not None
    assert run.requests == [], "nothing is sent"


@given(conversations())
def test_consistent_history_is_sent(messages: list[Message]) -> None:
    assert find_history_fault(messages) is None
    started = replace(RUN_STARTED, earlier=EarlierRuns(runs=1, messages=tuple(messages)))
    run = Run(package(), text_reply("Yes."), started=started)
    assert run.finish().status == "completed"
    assert tuple(run.requests[0].request.messages) == (*messages, RUN_STARTED.input)


@given(conversations().filter(lambda messages: any(isinstance(each, ToolResult) for each in messages)), st.data())
def test_dropped_or_doubled_result_is_an_inconsistent_history(messages: list[Message], data: st.DataObject) -> None:
    places = [place for place, message in enumerate(messages) if isinstance(message, ToolResult)]
    place = data.draw(st.sampled_from(places))
    assert find_history_fault([*messages[:place], *messages[place + 1 :]]) is not None
    assert find_history_fault([*messages[: place + 1], *messages[place:]]) is not None
