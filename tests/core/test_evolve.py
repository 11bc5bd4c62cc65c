"""`evolve`: the same facts give the same state, in one pass or two, and in any order within a batch."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import evolve as evolve_module
from agentrun.core.budget import estimate_tokens
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallRefused,
    CancelRequested,
    ContextCompacted,
    EarlierRuns,
    Fact,
    MessageQueued,
    ModelAsked,
    Record,
    RetryPlanned,
    TimePassed,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, user_message
from agentrun.core.spend import ChildSpend
from agentrun.core.state import CallState, State
from agentrun.core.tally import fnv1a

from ..packages import package
from .script import RUN_STARTED, Run, calls_reply, hook, records, rule, text_reply, tool
from .shape_parts import ALLOW, TRANSIENT, policy
from .shapes import SHAPES

ORDERS = list(permutations(range(5)))
CALLS = [(name, f'{{"q": "{name}"}}') for name in "abcde"]


def run_with_five_parallel_calls(**changes: Any) -> Run:
    """A run with five calls that may run together."""
    agent = package(**{"tools": {name: tool() for name in "abcde"}, "policy": ALLOW, **changes})
    results: Any = {"b": Fault("tool.execution", "broken", {"tool": "b"}), "c": ("text", ChildSpend(5, 6, 1))}
    return Run(agent, calls_reply(*CALLS, text="All at once."), text_reply("Done."), tools=results)


def state_after_order(run: Run, order: Iterable[int]) -> State:
    """The end, when the effects of calls are done in this order, as far as they are under way."""
    wanted = [f"c1.{place}" for place in order]

    def pick(count: int) -> int:
        ids = [effect.id for effect in run.under_way]
        return min(range(count), key=lambda place: _rank(ids[place], wanted))

    run.pick = pick
    run.finish()
    return run.state


def _rank(effect: str, wanted: list[str]) -> int:
    return next((place for place, call in enumerate(wanted) if call in effect), len(wanted))


def test_every_completion_order_gives_the_same_state() -> None:
    """All 120 orders in which five calls can be done."""
    states = [state_after_order(run_with_five_parallel_calls(), order) for order in ORDERS]
    assert len(states) == 120
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize("order", ORDERS[::7])
def test_completion_order_does_not_matter_with_hooks_and_rules(order: tuple[int, ...]) -> None:
    rules = policy(
        rule("modify", "a", set={"q": "other"}),
        rule("deny", "b"),
        rule("deny", "d", when="calls.c > 0"),
        rule("modify", "*", on="tool_result", mask=["e"], when="spend.tool_calls > 3"),
    )
    hooks = [hook("before_tool"), hook("after_tool", id="late")]
    assert state_after_order(run_with_five_parallel_calls(policy=rules, hooks=hooks), order) == state_after_order(
        run_with_five_parallel_calls(policy=rules, hooks=hooks), range(5)
    )


def test_result_rules_do_not_depend_on_completion_order() -> None:
    """A rule on a result sees the calls before it, not those that happened to be ruled on already."""
    agent = package(
        tools={"a": tool()},
        policy=policy(rule("deny", "a", on="tool_result", when="calls.a > 1")),
        hooks=[hook("before_tool")],
    )

    def refused(*order: str) -> list[str]:
        run = Run(agent, calls_reply(("a", '{"q": "1"}'), ("a", '{"q": "2"}')), text_reply("Done."))
        left = list(order)

        def pick(count: int) -> int:
            ids = [effect.id for effect in run.under_way]
            return ids.index(left.pop(0)) if len(ids) > 1 or (left and left[0] in ids) else 0

        run.pick = pick
        run.finish()
        return [each.call for each in run.of(CallRefused)]

    one, two = "h.watch.c1.0.1", "h.watch.c1.1.1"
    assert refused(one, two, "c1.0", "c1.1") == refused(one, "c1.0", two, "c1.1") == ["c1.1"]


def test_planted_order_dependent_state_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that remembers which call was done last is noticed."""
    real = evolve_module._evolve_call_state

    def forgetful(call: CallState, fact: Any) -> CallState:
        moved = real(call, fact)
        return (
            replace(moved, parts=(*moved.parts, Text(str(next(counter))))) if isinstance(fact, ToolFinished) else moved
        )

    counter = iter(range(10_000))
    monkeypatch.setattr(evolve_module, "_evolve_call_state", forgetful)
    run, other = run_with_five_parallel_calls(), run_with_five_parallel_calls()
    for each, order in ((run, ORDERS[0]), (other, ORDERS[-1])):
        with suppress(AssertionError):
            state_after_order(each, order)
    assert run.state.conversation.transcript != other.state.conversation.transcript


@pytest.mark.parametrize("name", SHAPES)
def test_fold_in_two_steps(name: str) -> None:
    """A fold may stop anywhere and go on later: that is what a resume does."""
    run = SHAPES[name]()
    run.finish()
    for cut in range(len(run.records)):
        state = fold(run.records[:cut])
        for record in run.records[cut:]:
            state = evolve(state, record)
        assert state == run.state


@pytest.mark.parametrize("name", SHAPES)
def test_evolve_does_not_change_its_argument(name: str) -> None:
    """States share what they have in common; going on from one twice leaves it as it was."""
    run = SHAPES[name]()
    run.finish()
    state = State()
    for record in run.records:
        before = repr(state)
        one, two = evolve(state, record), evolve(state, record)
        assert (one, repr(state)) == (two, before)
        state = two
    assert state == run.state


def test_new_states_share_no_transcript() -> None:
    fold(records([RUN_STARTED]))
    assert len(State().conversation.transcript) == 0


def test_state_after_run_started_has_the_earlier_runs() -> None:
    earlier = EarlierRuns(2, 5, (user_message("Hello"), text_reply("Hi.").message), {fnv1a("x"): 2}, {"y": 1}, ("g",))
    state = fold([Record(1, 7, 1, "", replace(RUN_STARTED, earlier=earlier))])
    assert (state.phase, state.began, state.now, state.elapsed, state.package) == ("starting", 7, 7, 0, "sha256:0")
    assert tuple(state.conversation.transcript) == (*earlier.messages, RUN_STARTED.input)
    assert state.conversation.estimate == sum(estimate_tokens(message) for message in state.conversation.transcript)
    assert (state.detector.texts.count("x"), state.detector.batches.count("y"), state.grants) == (2, 1, ("g",))


def test_run_can_start_without_input() -> None:
    earlier = EarlierRuns(messages=(user_message("Hello"),))
    run = Run(package(), text_reply("Hi."), started=replace(RUN_STARTED, input=None, earlier=earlier))
    assert run.finish().answer == "Hi."
    assert tuple(run.requests[0].request.messages) == earlier.messages


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("compacted", "overflowed")])
def test_token_estimate_matches_the_transcript(name: str) -> None:
    run = SHAPES[name]()
    run.finish()
    for length in range(1, len(run.records)):
        talk = fold(run.records[:length]).conversation
        assert talk.estimate == sum(estimate_tokens(message) for message in talk.transcript), run.kinds()[length - 1]


def test_token_estimate_matches_the_transcript_after_compaction() -> None:
    for name in ("compacted", "overflowed"):
        run = SHAPES[name]()
        run.until(ContextCompacted)
        assert run.state.conversation.estimate == sum(
            estimate_tokens(message) for message in run.state.conversation.transcript
        )


# time


def run_waiting_for_approval(at: int) -> Run:
    """A run that waits for a person since 100, in which 100 ms were used."""
    agent = package(tools={"a": tool()}, policy=policy(rule("ask")), budgets={"time": 1000})
    run = Run(agent, calls_reply("a"), text_reply("Done."), takes=100)
    run.until(ApprovalAsked)
    assert run.state.elapsed == 100
    run.now = at
    return run


def answer(run: Run) -> None:
    question = run.of(ApprovalAsked)[0].question
    run.add(ApprovalAnswered("c1.0", question, "approved", "somebody"))


def test_waiting_for_approval_does_not_count_as_time() -> None:
    run = run_waiting_for_approval(1_000_000)
    answer(run)
    assert (run.state.paused, run.state.elapsed) == (999_900, 100)
    assert run.finish().status == "completed"
    assert run.state.elapsed == 300


@pytest.mark.parametrize(
    "fact", [MessageQueued("q1", user_message("Hurry.")), CancelRequested("me")], ids=["sent", "cancelled"]
)
def test_facts_during_an_approval_do_not_count_as_time(fact: Fact) -> None:
    run = run_waiting_for_approval(1_000_000)
    run.add(fact)
    assert run.state.elapsed == 100
    assert run.state.phase == "acting"


def test_time_between_crash_and_resume_does_not_count() -> None:
    run = Run(package(budgets={"time": 1000}), text_reply("Done."))
    run.until(ModelAsked)
    run.now = 1_000_000
    run.crash()
    assert run.state.elapsed == 0, "a request was under way, and nobody was there to wait for it"
    assert run.finish().status == "completed"


def test_waiting_for_approval_counts_while_another_call_runs() -> None:
    agent = package(tools={"a": tool(), "b": tool()}, policy=policy(rule("ask", "a")))
    run = Run(agent, calls_reply("a", "b"), text_reply("Done."))
    run.until(ToolStarted)
    run.now = 500
    answer(run)
    assert (run.state.paused, run.state.elapsed) == (0, 500), "another call was running meanwhile"


def test_waiting_for_a_retry_counts_as_time() -> None:
    run = Run(package(), TRANSIENT, text_reply("Yes."))
    planned = run.until(RetryPlanned)
    assert isinstance(planned, RetryPlanned)
    run.now = 200
    run.add(MessageQueued("q1", user_message("Hurry.")))
    assert (run.state.paused, run.state.elapsed) == (0, 200)
    run.until(TimePassed)
    assert run.state.elapsed == planned.wait


def test_backward_clock_gives_no_negative_pause() -> None:
    run = run_waiting_for_approval(50)
    answer(run)
    assert run.state.paused == 0
