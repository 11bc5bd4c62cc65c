"""Resume after a crash: lost work is recorded, no harmful call runs twice, and the outcome is the same."""

from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import run_end, tool_calls
from agentrun.core.effects import Commit, Deliver, RunTool, Wait
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallCancelled,
    CallRefused,
    CallSettled,
    DeliveryStarted,
    HookAsked,
    ModelAsked,
    ModelFailed,
    ResultsGiven,
    RetryPlanned,
    RouteSwitched,
    RunStopped,
    ToolFinished,
    ToolStarted,
    WorkLost,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, ToolResult, Usage
from agentrun.core.outcome import suspended_outcome
from agentrun.core.state import State
from agentrun.core.transitions import is_acceptable

from ..packages import ROUTE, package
from .disturbances import crash, length
from .script import SINK, Run, RunWaits, calls_reply, hook, rule, text_reply, tool, writing
from .shape_parts import ALLOW, TRANSIENT, policy
from .shapes import SHAPES
from .untraced import untraced

OWN_CRASHES = ("abandoned", "settled_again", "tool_gone", "other_rules", "followed_up")
"""Shapes that are disturbed already: another disturbance would move theirs."""
TIMED = ("deferred", "deferred_until")
"""Shapes in which it matters when something happens."""
ALONE = [name for name in SHAPES if name not in OWN_CRASHES + TIMED]


def outcome_without_retries(run: Run) -> Any:
    """How a run ended, without what lost requests cost and how its fault counts attempts."""
    outcome = run.finish()
    return (
        outcome.status,
        outcome.answer,
        outcome.output,
        outcome.label,
        outcome.code,
        outcome.turns,
        outcome.tool_calls,
    )


def no_harmful_call_ran_twice(run: Run) -> bool:
    """Whether no call that can harm was started twice."""
    harmful = [
        effect.id
        for effect in run.effects
        if isinstance(effect, RunTool) and getattr(effect.tool, "effect", "") == "at_most_once"
    ]
    return len(harmful) == len(set(harmful))


@pytest.mark.parametrize("name", ALONE)
def test_crash_after_any_record_gives_the_same_outcome(name: str) -> None:
    """A crash after any record, also between the facts of one commit, changes nothing about the end."""
    expected = outcome_without_retries(SHAPES[name]())
    for at in range(1, length(name)):
        run = SHAPES[name]()
        run.disturb[at] = crash
        assert outcome_without_retries(run) == expected, f"crashed after record {at}: {run.kinds()}"
        assert no_harmful_call_ran_twice(run)


@pytest.mark.parametrize("name", ["writes", "hooked", "with_child", "ruled", "delivered", "fell_back"])
def test_two_crashes_give_the_same_outcome(name: str) -> None:
    expected = outcome_without_retries(SHAPES[name]())
    with untraced():
        for at in range(1, length(name), 3):
            for later in range(at + 2, length(name) + 4, 3):
                run = SHAPES[name]()
                run.disturb = {at: crash, later: crash}
                assert outcome_without_retries(run) == expected
                assert no_harmful_call_ran_twice(run)


def test_planted_rerun_of_lost_calls_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that runs a lost call again, whatever it may do, is noticed."""
    monkeypatch.setattr(tool_calls, "_may_run", lambda call, tool: call.status in ("ready", "lost"))
    runs = []
    for at in range(1, length("writes")):
        run = SHAPES["writes"]()
        run.disturb[at] = crash
        with suppress(AssertionError):
            run.finish()
        runs.append(run)
    assert not all(no_harmful_call_ran_twice(run) for run in runs)


def test_planted_stop_without_its_reason_changes_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that closed its calls before it wrote down why would go on after a crash in between."""

    def hasty(package: Any, state: State, stopped: Any) -> Commit:
        closed = (CallCancelled(call.call.id, "x") for call in state.calls if call.status not in ("finished", "done"))
        return Commit((*closed, stopped))

    expected = outcome_without_retries(SHAPES["denied_stop"]())
    for module in (run_end, tool_calls):
        monkeypatch.setattr(
            module, "fail", lambda package, state, fault: hasty(package, state, RunStopped("failed", fault=fault))
        )
    run = SHAPES["denied_stop"]()
    run.answers = [text_reply("Went on.")]
    run.answers.insert(0, SHAPES["denied_stop"]().answers[0])
    run.disturb[8] = crash
    assert outcome_without_retries(run) != expected


def test_lost_request_is_charged() -> None:
    run = Run(package(model={"max_output_tokens": 100}), text_reply("Yes."))
    run.until(ModelAsked)
    asked = run.of(ModelAsked)[0]
    run.crash()
    assert run.of(WorkLost) == [WorkLost("m1.1")]
    assert (run.state.phase, run.state.meter.tokens) == ("thinking", asked.reserved)
    outcome = run.finish()
    assert [request.id for request in run.requests] == ["m1.1", "m1.2"]
    assert (outcome.turns, outcome.tokens) == (1, asked.reserved + 25)
    assert outcome.usage == Usage(20, 5, 0, 0), "usage is what was reported"


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_lost_idempotent_call_runs_again_with_the_same_key(effect: str) -> None:
    agent = package(tools={"a": tool(effect=effect)}, policy=ALLOW)
    run = Run(agent, calls_reply(("a", '{"q": "x"}')), text_reply("Done."))
    run.until(ToolStarted)
    run.crash()
    assert run.finish().tool_calls == 1, "it counts once"
    first, second = run.of(ToolStarted)
    assert first == second, "the same key"
    assert run.of(WorkLost) == [WorkLost("c1.0")]


def run_with_lost_call(**changes: Any) -> Run:
    """A run in which a call that must not run twice was lost."""
    agent = package(tools={"refund": writing(**changes), "a": writing()}, policy=ALLOW)
    run = Run(agent, calls_reply("refund", "a"), text_reply("Done."))
    run.until(ToolStarted)
    run.crash()
    return run


def test_lost_at_most_once_call_suspends_the_run() -> None:
    run = run_with_lost_call()
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert caught.value.wait == Wait(waits_for=("c1.0",))
    run.crash()
    with pytest.raises(RunWaits):
        run.finish()
    assert run.ran == ["c1.0"], "and again after another crash"
    waiting = suspended_outcome(run.state, (), ("c1.0",))
    assert (waiting.run, waiting.agent, waiting.waits_for, waiting.exit_code) == ("run-1", "triage", ("c1.0",), 8)


def test_lost_call_settled_with_retry_runs_again() -> None:
    run = run_with_lost_call()
    run.add(CallSettled("c1.0", "retry", "somebody"))
    assert run.finish().tool_calls == 2
    assert run.ran == ["c1.0", "c1.0", "c1.1"]
    assert run.of(ToolStarted)[0] == run.of(ToolStarted)[1]


def test_lost_call_settled_with_a_result_does_not_run_again() -> None:
    run = run_with_lost_call()
    run.add(CallSettled("c1.0", "result", "somebody", (Text("it went through"),)))
    run.finish()
    assert run.ran == ["c1.0", "c1.1"]
    (_, result, _) = run.requests[-1].request.messages.since(1)
    assert result == ToolResult("c1.0", (Text("it went through"),))


def test_lost_call_settled_with_stop_ends_the_run() -> None:
    run = run_with_lost_call()
    run.add(CallSettled("c1.0", "stop", "somebody"))
    outcome = run.finish()
    assert (outcome.code, outcome.fields) == ("tool.indeterminate", {"call": "c1.0", "tool": "refund"})
    assert (outcome.exit_code, outcome.retry) == (8, "user")
    assert run.ran == ["c1.0"]


def test_lost_call_is_settled_once() -> None:
    run = run_with_lost_call()
    run.add(CallSettled("c1.0", "retry", "somebody"))
    assert not is_acceptable(run.state, CallSettled("c1.0", "stop", "somebody else"))


@pytest.mark.parametrize("point", ["on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output"])
def test_lost_hook_is_asked_again(point: str) -> None:
    agent = package(tools={"a": tool()}, policy=ALLOW, hooks=[hook(point), hook("on_stop", id="last")])
    run = Run(agent, calls_reply("a"), text_reply("Done."))
    first = run.until(HookAsked)
    run.crash()
    assert is_acceptable(run.state, first)
    again = run.until(HookAsked)
    assert first == again
    assert run.finish().status == "completed"


def test_lost_on_stop_hook_is_asked_again() -> None:
    run = Run(package(hooks=[hook("on_stop")]), text_reply("Done."))
    run.until(HookAsked)
    run.crash()
    assert run.finish().answer == "Done."
    assert len(run.of(HookAsked)) == 2


def test_lost_delivery_is_made_again_under_the_same_key() -> None:
    run = Run(package(sinks={"a": SINK, "b": SINK}), text_reply("Done."))
    run.until(DeliveryStarted)
    run.crash()
    assert run.of(WorkLost) == [WorkLost("deliver:a")]
    run.finish()
    first, again, other = [effect for effect in run.effects if isinstance(effect, Deliver)]
    assert first == again
    assert first.key != other.key


def test_pending_approval_survives_a_crash() -> None:
    agent = package(tools={"a": tool()}, policy=policy(rule("ask")))
    run = Run(agent, calls_reply("a"), text_reply("Done."))
    asked = run.until(ApprovalAsked)
    run.crash()
    assert (run.of(WorkLost), run.state.calls[0].status) == ([], "asking")
    run.people = {"a": "approved"}
    run.finish()
    assert run.of(ApprovalAsked) == [asked], "the question stands"


def test_epochs_do_not_change_the_state() -> None:
    run = SHAPES["ruled"]()
    run.finish()
    later = [replace(record, epoch=place) for place, record in enumerate(run.records)]
    assert fold(later) == run.state


def test_late_result_of_a_lost_call_is_refused() -> None:
    run = run_with_lost_call()
    assert not is_acceptable(run.state, ToolFinished("c1.0", (Text("late"),)))
    run = run_with_lost_call()
    run.add(CallSettled("c1.0", "retry", "somebody"))
    run.until(ToolStarted)
    assert is_acceptable(run.state, ToolFinished("c1.0", (Text("now"),)))


def run_waiting_for_approval() -> Run:
    """A run that waits for a person to approve a refund."""
    agent = package(tools={"refund": writing()}, policy=policy(rule("ask", "refund")))
    run = Run(agent, calls_reply("refund"), text_reply("Done."))
    run.until(ApprovalAsked)
    return run


def test_resume_with_another_package_asks_a_new_question() -> None:
    run = run_waiting_for_approval()
    first = run.of(ApprovalAsked)[0]
    run.crash(run.agent)
    answer = ApprovalAnswered("c1.0", first.question, "approved", "somebody")
    assert not is_acceptable(run.state, answer), "the answer is to the question of the package before"
    second = run.until(ApprovalAsked)
    assert isinstance(second, ApprovalAsked)
    assert (second.question != first.question, second.grant != first.grant) == (True, True)
    run.people = {"refund": "approved"}
    assert run.finish().tool_calls == 1


def test_resume_with_another_package_drops_an_unused_approval() -> None:
    run = run_waiting_for_approval()
    question = run.of(ApprovalAsked)[0].question
    run.add(ApprovalAnswered("c1.0", question, "approved", "somebody"))
    assert run.state.calls[0].status == "ready"
    run.crash(replace(run.agent, policy=package().policy))
    assert run.finish().tool_calls == 0
    assert run.of(CallRefused)[0].code == "tool.denied"


def test_resume_with_another_package_drops_session_approvals() -> None:
    agent = package(tools={"a": tool()}, policy=policy(rule("ask", "a")))
    for other in (None, agent):
        run = Run(agent, calls_reply("a"), calls_reply("a"), text_reply("Done."), people={"a": "approved_for_session"})
        run.until(ResultsGiven)
        run.crash(other)
        run.finish()
        assert len(run.of(ApprovalAsked)) == (1 if other is None else 2)


def test_resume_with_another_package_rules_on_calls_not_yet_started() -> None:
    agent = package(tools={"a": tool(), "b": writing()}, policy=ALLOW)
    run = Run(agent, calls_reply("a", "b", "b"), text_reply("Done."))
    run.until(ToolFinished)
    run.until(ToolStarted)
    assert [call.status for call in run.state.calls] == ["finished", "started", "ready"]
    run.crash(replace(agent, policy=package().policy))
    assert [call.status for call in run.state.calls] == ["finished", "lost", "new"]
    run.add(CallSettled("c1.1", "retry", "somebody"))
    assert run.finish().tool_calls == 2
    assert [refused.call for refused in run.of(CallRefused)] == ["c1.2"]


@pytest.mark.parametrize("kind", [ModelFailed, RetryPlanned])
def test_resume_with_another_package_starts_at_its_first_route(kind: type) -> None:
    routes = [ROUTE, {**ROUTE, "name": "second"}]
    run = Run(package(model={"routes": routes}), Fault("provider.fatal", "no"), TRANSIENT, text_reply("Yes."))
    run.until(RouteSwitched)
    run.until(kind)
    other = package(hooks=[hook("before_model")])
    run.crash(other)
    assert (run.state.phase, run.state.requests.route, run.state.requests.tries) == ("thinking", 0, 0)
    assert run.finish().status == "completed"
    assert run.requests[-1].request.route == other.model.routes[0]


def test_resume_with_a_package_without_the_tool_refuses_the_call() -> None:
    run = run_with_lost_call()
    run.crash(package())
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert caught.value.wait.waits_for == ("c1.0",), "somebody must still say what became of it"
    run.add(CallSettled("c1.0", "retry", "somebody"))
    assert run.finish().status == "completed"
    assert [(refused.call, refused.code) for refused in run.of(CallRefused)] == [
        ("c1.1", "tool.unknown"),
        ("c1.0", "tool.unknown"),
    ]
