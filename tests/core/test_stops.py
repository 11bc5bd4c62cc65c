"""Runs that are stopped by a cancel request or by the time budget."""

import pytest
from msgspec.structs import replace

from agentrun.core.decide import decide
from agentrun.core.effects import AskHook, Perform, Wait
from agentrun.core.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    DeliveryStarted,
    HookAsked,
    ModelAsked,
    RetryPlanned,
    RunEnding,
    TimePassed,
    ToolStarted,
)
from agentrun.core.messages import Text, ToolResult, Usage
from agentrun.core.model_request import find_history_fault
from agentrun.core.outcome import outcome_of
from agentrun.core.state import pending_effects
from agentrun.core.transitions import is_acceptable

from ..packages import package
from .disturbances import disturbed, length, time_passes
from .script import SINK, Run, calls_reply, hook, rule, session_messages, text_reply, tool
from .shape_parts import ALLOW, TRANSIENT, policy
from .shapes import SHAPES


def run_at_phase(phase: str) -> tuple[Run, str]:
    """A run that has just come to a phase, and the shape it has."""
    for name, make in SHAPES.items():
        run = make()
        while run.state.phase != "stopped":
            if run.state.phase == phase:
                return run, name
            run.step()
    raise AssertionError(phase)


LIVE = ("starting", "thinking", "asking", "failed", "waiting", "answered", "acting", "ending")


@pytest.mark.parametrize("phase", LIVE)
def test_cancel_stops_the_run_at_every_phase(phase: str) -> None:
    run, _ = run_at_phase(phase)
    asked = len(run.effects)
    run.add(CancelRequested("me"))
    run.add(CancelRequested("somebody else"))
    outcome = run.finish()
    assert (outcome.code, outcome.fields, outcome.exit_code) == ("cancelled", {"by": "me"}, 130), "the first one counts"
    assert outcome.retry == "not_retryable"
    assert [effect for effect in run.effects[asked:] if not isinstance(effect, AskHook)] == [], (
        "nothing is begun any more"
    )


@pytest.mark.parametrize("phase", ["stopping"])
def test_cancel_while_stopping_does_not_change_the_outcome(phase: str) -> None:
    run, name = run_at_phase(phase)
    expected = SHAPES[name]().finish()
    run.add(CancelRequested("me"))
    assert run.finish().code == expected.code


def test_cancel_of_a_finished_run_is_refused() -> None:
    run = SHAPES["text"]()
    run.finish()
    assert not is_acceptable(run.state, CancelRequested("me"))


def run_with_a_clock_jump(phase: str, at: int) -> Run:
    """A run with 100 ms in which the clock jumps when it comes to a phase."""
    _, name = run_at_phase(phase)
    run = SHAPES[name]()
    run.agent = run.first = replace(run.agent, budgets=replace(run.agent.budgets, time=100))
    while run.state.phase != phase:
        run.step()
    run.now = at
    run.add(TimePassed())
    return run


@pytest.mark.parametrize("phase", [phase for phase in LIVE if phase != "waiting"])
def test_time_budget_stops_the_run_at_every_phase(phase: str) -> None:
    run = run_with_a_clock_jump(phase, 101)
    outcome = run.finish()
    assert (outcome.code, outcome.fields) == ("budget.time", {"used": 100, "reserved": 0, "limit": 100})
    assert (outcome.exit_code, outcome.retry) == (5, "user")
    run = run_with_a_clock_jump(phase, 100)
    run.step()
    assert "budget.time" not in repr(run.records)


def test_time_budget_ends_a_wait_for_a_retry() -> None:
    agent = package(budgets={"time": 100})
    run = Run(agent, TRANSIENT, text_reply("Yes."))
    run.until(RetryPlanned)
    next = decide(agent, run.state)
    assert isinstance(next, Wait)
    assert next.deadline == 101, "whichever comes first"
    assert run.finish().code == "budget.time"
    assert len(run.requests) == 1


@pytest.mark.parametrize("kind", [ModelAsked, ToolStarted, HookAsked, DeliveryStarted])
def test_wait_has_the_deadline_of_the_time_budget(kind: type) -> None:
    agent = package(
        tools={"a": tool()},
        policy=ALLOW,
        budgets={"time": 100},
        hooks=[hook("on_output")],
        sinks={"first": SINK},
    )
    run = Run(agent, calls_reply("a"), text_reply("Done."))
    run.until(kind)
    next = decide(agent, run.state)
    assert isinstance(next, Wait)
    assert (next.inflight, next.deadline) == (pending_effects(run.state), 101)
    assert decide(replace(agent, budgets=package().budgets), run.state) == Wait(inflight=next.inflight)


def test_perform_has_the_deadline_of_the_time_budget() -> None:
    next = decide(package(budgets={"time": 100}), Run(package()).state)
    assert isinstance(next, Perform)
    assert next.deadline == 101


def test_no_deadline_while_only_an_approval_is_pending() -> None:
    agent = package(tools={"a": tool()}, policy=policy(rule("ask")), budgets={"time": 100})
    run = Run(agent, calls_reply("a"), text_reply("Done."))
    run.until(ApprovalAsked)
    next = decide(agent, run.state)
    assert isinstance(next, Wait)
    assert (len(next.questions), next.deadline) == (1, None)


def test_deadline_moves_by_the_time_of_an_approval() -> None:
    agent = package(tools={"a": tool()}, policy=policy(rule("ask")), budgets={"time": 100})
    run = Run(agent, calls_reply("a"), text_reply("Done."))
    asked = run.until(ApprovalAsked)
    assert isinstance(asked, ApprovalAsked)
    run.now = 5000
    run.add(ApprovalAnswered("c1.0", asked.question, "approved", "somebody"))
    run.until(ToolStarted)
    next = decide(agent, run.state)
    assert isinstance(next, Wait)
    assert next.deadline == 5101


def test_time_passed_alone_does_not_change_the_outcome() -> None:
    """A moment that was waited for is over; what is done about it is decided."""
    expected = SHAPES["ruled"]().finish()
    for at in range(1, length("ruled")):
        run = disturbed("ruled", at, time_passes)
        assert replace(outcome_of(run.state), seq=0) == replace(expected, seq=0)


def test_cancelled_request_is_charged_as_reserved() -> None:
    run = Run(package(), text_reply("Yes."))
    asked = run.until(ModelAsked)
    assert isinstance(asked, ModelAsked)
    run.add(CancelRequested("me"))
    outcome = run.finish()
    assert (outcome.tokens, outcome.usage) == (asked.reserved, Usage(0, 0, 0, 0))


def test_run_ending_is_written_before_calls_are_cancelled() -> None:
    """A run that is cut off while its calls are closed still knows why it was to end."""
    for name in ("denied_stop", "tripped", "interrupted", "out_of_calls", "fatal", "abandoned"):
        run = SHAPES[name]()
        run.finish()
        kinds = run.kinds()
        first = kinds.index("run_ending")
        assert set(kinds[first + 1 : -1]) == {"call_cancelled"}
        assert "call_cancelled" not in kinds[:first]


def test_no_run_ending_without_open_calls() -> None:
    run = SHAPES["gave_up"]()
    run.finish()
    assert run.of(RunEnding) == []


def test_cancelled_calls_are_in_the_session_messages() -> None:
    run = SHAPES["tripped"]()
    run.finish()
    *_, last = session_messages(run.state)
    assert last == ToolResult("c1.2", (Text("tool.aborted: the run ended before this call finished"),))
    assert find_history_fault(session_messages(run.state)) is None
