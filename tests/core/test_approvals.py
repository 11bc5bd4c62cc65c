"""Approvals: what a question contains, what each answer does, and how long an approval is valid."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import gate
from agentrun.core.decide import decide
from agentrun.core.effects import Wait
from agentrun.core.facts import (
    ApprovalAsked,
    CallRefused,
    CancelRequested,
    DeliveryStarted,
    EarlierRuns,
    Inject,
    Modify,
    Ruled,
)
from agentrun.core.outcome import Question

from ..packages import package
from .script import RUN_STARTED, SINK, Run, RunWaits, calls_reply, hook, rule, text_reply, tool, writing
from .shape_parts import policy

NO = ("denied", "timed_out", "cancelled", "unavailable")


def run_that_needs_approval(*calls: Any, answer: Any = None, turns: int = 1, **changes: Any) -> Run:
    """A run whose calls need an approval."""
    agent = package(tools={"a": tool(**changes), "b": tool(**changes)}, policy=policy(rule("ask", "*", reason="money")))
    people = {} if answer is None else {"a": answer, "b": answer}
    return Run(agent, *[calls_reply(*(calls or ("a",)))] * turns, text_reply("Done."), people=people)


def test_question_has_arguments_rules_and_reason_and_no_deadline() -> None:
    run = run_that_needs_approval(("a", '{"q": "x"}'))
    asked = run.until(ApprovalAsked)
    assert isinstance(asked, ApprovalAsked)
    assert (asked.subject, asked.target, asked.rules, asked.reason) == ("c1.0", "a", ("r1",), "money")
    next = decide(run.agent, run.state)
    assert isinstance(next, Wait)
    assert next.questions == (Question("c1.0", asked.question, "a", {"q": "x"}, ("r1",), "money"),)
    assert next.deadline is None, "people are waited for as long as it takes"
    with pytest.raises(RunWaits):
        run.finish()
    assert run.ran == []


def test_question_that_was_altered_does_not_match_its_hash() -> None:
    run = run_that_needs_approval(("a", '{"q": "x"}'))
    run.until(ApprovalAsked)
    next = decide(run.agent, run.state)
    assert isinstance(next, Wait)
    (question,) = next.questions
    assert gate.matches_its_hash(run.state, question)
    for change in ({"subject": "c1.1"}, {"target": "b"}, {"value": {"q": "y"}}, {"value": object()}, {"rules": ()}):
        assert not gate.matches_its_hash(run.state, replace(question, **change)), change


def test_approved_call_runs() -> None:
    run = run_that_needs_approval(answer="approved")
    assert run.finish().tool_calls == 1
    (ruled,) = run.of(Ruled)
    assert (ruled.ruling, ruled.granted) == ("ask", False)


@pytest.mark.parametrize("answer", NO)
def test_any_other_answer_refuses_the_call(answer: str) -> None:
    run = run_that_needs_approval(answer=answer)
    assert run.finish().answer == "Done."
    assert run.ran == []
    (refused,) = run.of(CallRefused)
    fields = {"call": "c1.0", "target": "a", "rules": ["r1"], "by": "somebody", "tool": "a"}
    assert (refused.code, refused.fields) == ("tool.denied", {**fields, "reason": f"approval.{answer}"})


@pytest.mark.parametrize("answer", NO)
def test_denial_ends_the_run_with_on_denied_stop(answer: str) -> None:
    run = run_that_needs_approval(answer=answer, on_denied="stop")
    outcome = run.finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == (f"approval.{answer}", 4, "user")
    assert outcome.fields == {"call": "c1.0", "target": "a", "rules": ["r1"], "by": "somebody", "tool": "a"}
    assert run.ran == []


@pytest.mark.parametrize("subject", ["input", "output", "deliver:first"])
@pytest.mark.parametrize("answer", ["approved", "approved_for_session", *NO])
def test_approval_of_input_output_and_delivery(subject: str, answer: Any) -> None:
    stage = subject.partition(":")[0].replace("deliver", "delivery")
    target = subject.partition(":")[2] or subject
    agent = package(policy=policy(rule("ask", on=stage)), sinks={"first": SINK})
    run = Run(agent, text_reply("Yes."), people={target: answer})
    outcome = run.finish()
    (asked,) = run.of(ApprovalAsked)
    assert (asked.subject, asked.target) == (subject, target)
    if answer in NO:
        assert (outcome.code, outcome.exit_code) == (f"approval.{answer}", 4)
        assert outcome.fields == {"call": subject, "target": target, "rules": ["r1"], "by": "somebody"}
        assert run.of(DeliveryStarted) == []
        assert (run.requests == []) == (subject == "input")
    else:
        assert outcome.answer == "Yes."


def test_approval_is_valid_for_one_call() -> None:
    run = run_that_needs_approval("a", answer="approved", turns=2)
    run.finish()
    one, two = run.of(ApprovalAsked)
    assert (one.question != two.question, one.grant) == (True, two.grant)
    run = run_that_needs_approval("a", ("a", '{"q": "x"}'), answer="approved")
    run.finish()
    assert len({asked.question for asked in run.of(ApprovalAsked)}) == 2


def test_approval_for_the_session_is_not_asked_again() -> None:
    run = run_that_needs_approval("a", answer="approved_for_session", turns=2)
    run.finish()
    assert (len(run.of(ApprovalAsked)), len(run.ran)) == (1, 2)
    assert [ruled.granted for ruled in run.of(Ruled)] == [False, True]
    grants = run.state.grants
    later = Run(
        run.agent,
        calls_reply("a"),
        text_reply("Done."),
        started=replace(RUN_STARTED, run="run-2", earlier=EarlierRuns(grants=grants)),
    )
    later.finish()
    assert (later.of(ApprovalAsked), len(later.ran)) == ([], 1), "in a later run of the session too"


@pytest.mark.parametrize(
    "other",
    [("a", '{"q": "other"}'), ("b", "{}")],
    ids=["arguments", "tool"],
)
def test_session_approval_does_not_cover_other_arguments_or_tools(other: tuple[str, str]) -> None:
    run = run_that_needs_approval(answer="approved_for_session")
    run.answers = [calls_reply("a"), calls_reply(other), text_reply("Done.")]
    run.finish()
    assert len(run.of(ApprovalAsked)) == 2


def test_session_approval_does_not_cover_other_rules_or_packages() -> None:
    run = run_that_needs_approval(answer="approved_for_session")
    run.finish()
    earlier = EarlierRuns(grants=run.state.grants)
    other_rules = replace(run.agent, policy=package(policy=policy(rule("allow", "z"), rule("ask"))).policy)
    for agent, fingerprint in ((other_rules, "sha256:0"), (run.agent, "sha256:1")):
        started = replace(RUN_STARTED, run="run-2", package=fingerprint, earlier=earlier)
        later = Run(agent, calls_reply("a"), text_reply("Done."), started=started, people={"a": "approved"})
        later.finish()
        assert len(later.of(ApprovalAsked)) == 1


def test_question_has_the_arguments_as_changed_by_a_hook() -> None:
    run = run_that_needs_approval(("a", '{"q": "x"}'), answer="approved")
    plain = run.until(ApprovalAsked)
    agent = replace(run.agent, hooks=package(hooks=[hook("before_tool")]).hooks)
    run = Run(agent, calls_reply(("a", '{"q": "x"}')), text_reply("Done."), hooks={"watch": Modify({"q": "y"})})
    asked = run.until(ApprovalAsked)
    assert isinstance(asked, ApprovalAsked)
    assert isinstance(plain, ApprovalAsked)
    assert asked.question != plain.question
    next = decide(agent, run.state)
    assert isinstance(next, Wait)
    assert next.questions[0].value == {"q": "y"}


def test_question_has_the_input_as_changed_by_a_hook() -> None:
    agent = package(policy=policy(rule("ask", on="input")), hooks=[hook("on_input"), hook("on_input", id="x", order=1)])
    run = Run(agent, text_reply("Yes."), hooks={"watch": Modify("It smokes."), "x": Inject("Hurry.")})
    run.until(ApprovalAsked)
    next = decide(agent, run.state)
    assert isinstance(next, Wait)
    assert next.questions[0].value == "It smokes."


def test_planted_grant_that_ignores_arguments_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that is not bound to its arguments would be answered by an earlier one."""
    monkeypatch.setattr(gate, "_grant_hash", lambda *_: "sha256:same")
    run = run_that_needs_approval(answer="approved_for_session")
    run.answers = [calls_reply("a"), calls_reply(("a", '{"q": "other"}')), text_reply("Done.")]
    run.finish()
    assert len(run.of(ApprovalAsked)) == 1


def test_parallel_calls_run_while_an_approval_is_pending() -> None:
    agent = package(tools={"a": tool(), "b": tool(), "w": writing()}, policy=policy(rule("ask", "a")))
    run = Run(agent, calls_reply("a", "b", "w"), text_reply("Done."))
    with pytest.raises(RunWaits):
        run.finish()
    assert run.ran == ["c1.1"], "what must run alone waits for all that may run together"


def test_cancel_while_an_approval_is_pending() -> None:
    run = run_that_needs_approval()
    run.until(ApprovalAsked)
    run.add(CancelRequested("me"))
    assert run.finish().code == "cancelled"
    assert run.kinds()[-3:] == ["run_ending", "call_cancelled", "run_stopped"]
