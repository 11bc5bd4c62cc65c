"""Policy rulings at every stage of a run: allow, deny, ask, defer, modify and interrupt."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.decide import asked_questions
from agentrun.core.effects import Deliver, RunTool, Wait
from agentrun.core.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallRefused,
    CancelRequested,
    Ruled,
    TimePassed,
    ToolFinished,
)
from agentrun.core.messages import Assistant, Image, Text, ToolResult, User, user_message

from ..packages import package
from .script import RUN_STARTED, SINK, Run, RunWaits, calls_reply, hook, rule, text_reply, tool, writing
from .shape_parts import policy


def run_of(*rules: dict[str, Any], **given: Any) -> Run:
    agent = package(tools={"a": tool()}, policy=policy(*rules), sinks={"first": SINK}, hooks=given.pop("asked", []))
    return Run(agent, calls_reply(("a", '{"q": "x"}')), text_reply("Yes."), **given)


STAGES = ("input", "model_request", "tool_call", "tool_result", "output", "delivery")
SUBJECTS = {
    "input": ("input", "input"),
    "model_request": ("request", "request"),
    "tool_call": ("c1.0", "a"),
    "tool_result": ("c1.0", "a"),
    "output": ("output", "output"),
    "delivery": ("deliver:first", "first"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_allow_is_recorded_at_every_stage(stage: Any) -> None:
    run = run_of(rule("allow", on=stage))
    assert run.finish().answer == "Yes."
    ruled = [fact for fact in run.of(Ruled) if fact.stage == stage]
    assert {(fact.subject, fact.ruling, fact.rules) for fact in ruled} == {(SUBJECTS[stage][0], "allow", ("r1",))}


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "tool_call"])
def test_without_a_rule_only_tool_calls_are_ruled_on(stage: str) -> None:
    run = run_of()
    run.finish()
    assert [fact.stage for fact in run.of(Ruled)] == ["tool_call"]


@pytest.mark.parametrize("stage", STAGES)
def test_interrupt_stops_the_run_at_every_stage(stage: Any) -> None:
    run = run_of(rule("interrupt", on=stage, reason="stop here"))
    outcome = run.finish()
    subject, target = SUBJECTS[stage]
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("policy.interrupted", 4, "user")
    assert outcome.fields == {"subject": subject, "target": target, "rules": ["r1"]}
    assert outcome.fault is not None
    assert outcome.fault.message == f"the policy rule r1 stopped the run because of {target}: stop here"


@pytest.mark.parametrize("stage", [stage for stage in STAGES if not stage.startswith("tool_")])
def test_deny_outside_of_tools_ends_the_run(stage: Any) -> None:
    outcome = run_of(rule("deny", on=stage)).finish()
    subject, target = SUBJECTS[stage]
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("policy.denied", 4, "user")
    assert outcome.fields == {"subject": subject, "target": target, "rules": ["r1"]}


@pytest.mark.parametrize("stage", ["tool_call", "tool_result"])
def test_model_reads_a_denied_call_or_result(stage: Any) -> None:
    run = run_of(rule("deny", on=stage, reason="secret"))
    assert run.finish().answer == "Yes."
    (refused,) = run.of(CallRefused)
    assert (refused.code, refused.told) == ("tool.denied", "tool.denied: the policy rule r1 denied a: secret")
    fields = {"subject": "c1.0", "target": "a", "rules": ["r1"], "tool": "a", "reason": "policy.denied"}
    assert refused.fields == fields
    assert len(run.ran) == (stage == "tool_result")


@pytest.mark.parametrize("stage", ["tool_call", "tool_result"])
def test_deny_ends_the_run_with_on_denied_stop(stage: Any) -> None:
    agent = package(tools={"a": tool(on_denied="stop"), "b": writing()}, policy=policy(rule("deny", "a", on=stage)))
    run = Run(agent, calls_reply("a", "b"))
    outcome = run.finish()
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("tool.denied", 4, "not_retryable")
    assert outcome.fields == {"subject": "c1.0", "target": "a", "rules": ["r1"], "tool": "a", "call": "c1.0"}
    assert "c1.1" not in run.ran


def test_denial_by_default_names_no_rule() -> None:
    agent = package(tools={"a": tool()})
    run = Run(agent, calls_reply("a"), text_reply("Well."))
    run.finish()
    (refused,) = run.of(CallRefused)
    assert refused.told == "tool.denied: the policy denied a by default"
    assert refused.fields["rules"] == []


@pytest.mark.parametrize("stage", ["input", "tool_call", "output", "delivery"])
def test_defer_suspends_the_run_until_a_resume_allows_it(stage: Any) -> None:
    subject, target = SUBJECTS[stage]
    run = run_of(rule("defer", target, on=stage, when="spend.time < 100"))
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert caught.value.wait == Wait(waits_for=(subject,))
    run.crash()
    with pytest.raises(RunWaits):
        run.finish()
    assert [fact.ruling for fact in run.of(Ruled) if fact.stage == stage] == ["defer", "defer"]
    run.now += 100
    run.add(TimePassed())
    run.crash()
    assert run.finish().answer == "Yes."
    assert [fact.ruling for fact in run.of(Ruled) if fact.stage == stage] == ["defer", "defer", "allow"]


def test_modified_arguments_are_ruled_on_again() -> None:
    """The original stays in the transcript; the rewritten ones are ruled on again, without rules that rewrite."""
    run = run_of(rule("modify", "a", set={"q": "y"}), rule("deny", "a", when="args.q == 'x'"))
    run.finish()
    assert run.ran == [], "deny is stronger"
    run = run_of(rule("modify", "a", set={"q": "y"}), rule("ask", "a", when="args.q == 'y'"), people={"a": "approved"})
    run.finish()
    first, second = run.of(Ruled)
    assert (first.ruling, first.rules, first.arguments) == ("modify", ("r1",), {"q": "y"})
    assert (second.ruling, second.rules) == ("ask", ("r2",))
    (effect,) = [effect for effect in run.effects if isinstance(effect, RunTool)]
    assert effect.arguments == {"q": "y"}
    (assistant,) = [message for message in run.state.conversation.transcript if isinstance(message, Assistant)]
    assert assistant.calls[0].arguments == '{"q": "x"}'


def test_modified_arguments_are_validated_again() -> None:
    run = run_of(rule("modify", "a", set={"q": 5}))
    run.finish()
    (refused,) = run.of(CallRefused)
    assert (refused.code, refused.fields) == ("tool.invalid_arguments", {"tool": "a", "field": "q"})
    assert run.ran == []


def test_two_rules_that_set_the_same_argument_deny_the_call() -> None:
    run = run_of(rule("modify", "a", set={"q": "y"}), rule("modify", "a", set={"q": "z"}))
    run.finish()
    (ruled,) = run.of(Ruled)
    assert (ruled.ruling, ruled.rules, ruled.reason) == ("deny", ("r1", "r2"), "two rules set the argument q")


def test_mask_on_a_result_changes_only_what_the_model_reads() -> None:
    run = run_of(rule("modify", "a", on="tool_result", mask=["[0-9]+"]), tools={"a": "pin 1234"})
    run.finish()
    (finished,) = run.of(ToolFinished)
    assert finished.parts == (Text("pin 1234"),), "the original stays"
    assert ToolResult("c1.0", (Text("pin ***"),)) in tuple(run.requests[1].request.messages)


def test_mask_without_a_match_leaves_the_result() -> None:
    run = run_of(rule("modify", "a", on="tool_result", mask=["[0-9]+"]))
    run.finish()
    ruled = run.of(Ruled)[-1]
    assert (ruled.ruling, ruled.text) == ("modify", UNSET)


def test_mask_on_the_output_changes_answer_and_delivery() -> None:
    run = run_of(rule("modify", on="output", mask=["es"]))
    assert run.finish().answer == "Y***."
    (delivery,) = [effect for effect in run.effects if isinstance(effect, Deliver)]
    assert delivery.text == "Y***."


def test_mask_on_a_delivery_leaves_the_answer() -> None:
    run = run_of(rule("modify", "first", on="delivery", mask=["es"]))
    assert run.finish().answer == "Yes."
    (delivery,) = [effect for effect in run.effects if isinstance(effect, Deliver)]
    assert (delivery.text, delivery.output) == ("Y***.", UNSET)


def test_mask_on_a_request_covers_instructions_and_messages() -> None:
    """Instructions and what is new in the conversation, once; what the model said stays as it said it."""
    run = run_of(rule("modify", on="model_request", mask=["burns", "tickets", "done", "x"]), tools={"a": "done"})
    run.finish()
    first, second = (request.request for request in run.requests)
    assert (first.instructions, second.instructions) == ("Sort ***.", "Sort ***.")
    assert tuple(first.messages) == (user_message("It ***."),)
    assert second.messages.until(1) == (user_message("It ***."),)
    assert tuple(second.messages)[2] == ToolResult("c1.0", (Text("***"),))
    (assistant,) = [message for message in second.messages if isinstance(message, Assistant)]
    assert assistant.calls[0].arguments == '{"q": "x"}'
    one, two = [fact for fact in run.of(Ruled) if fact.stage == "model_request"]
    assert ([each.index for each in one.messages], [each.index for each in two.messages]) == ([0], [2])
    assert (one.text, two.text) == ("Sort ***.", UNSET)


def test_hooks_come_before_policy_and_policy_before_approval() -> None:
    for point, stage in (("on_input", "input"), ("on_output", "output")):
        agent = package(policy=policy(rule("ask", on=stage)), hooks=[hook(point)])
        run = Run(agent, text_reply("Yes."), people={stage: "approved"})
        run.finish()
        kinds = [kind for kind in run.kinds() if kind.startswith(("hook", "ruled", "approval"))]
        assert kinds == ["hook_asked", "hook_answered", "ruled", "approval_asked", "approval_answered"]


def test_images_are_not_masked() -> None:
    picture = Image("image/png", "sha256:1", 3)
    started = replace(RUN_STARTED, input=User((picture, Text("It burns."))))
    agent = package(policy=policy(rule("modify", on="model_request", mask=["burns"])))
    run = Run(agent, text_reply("Yes."), started=started)
    run.finish()
    assert tuple(run.requests[0].request.messages) == (User((picture, Text("It ***."))),)


# --- how long a rule defers ---------------------------------------------------------------------------------------


STAGES_WITH_DEFER = ("input", "tool_call", "output", "delivery")


def resume(run: Run, at: int) -> None:
    run.now = at
    run.crash()


def deferrals(run: Run, stage: str) -> list[Any]:
    return [(fact.ruling, fact.until) for fact in run.of(Ruled) if fact.stage == stage]


@pytest.mark.parametrize("stage", STAGES_WITH_DEFER)
@pytest.mark.parametrize("end", ["wait", "until"])
def test_resume_asks_the_rule_again_from_the_time_on_and_not_before(stage: Any, end: str) -> None:
    subject, target = SUBJECTS[stage]
    run = run_of(rule("defer", target, on=stage, **{end: 5000}))
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert caught.value.wait == Wait(waits_for=(subject,))
    until = run.of(Ruled)[-1].until
    assert until == 5000, "all records before have the time 0"
    resume(run, until - 1)
    with pytest.raises(RunWaits):
        run.finish()
    assert deferrals(run, stage) == [("defer", until)], "the rule is not asked"
    resume(run, until)
    assert run.finish().answer == "Yes."
    assert deferrals(run, stage) == [("defer", until), ("allow", UNSET)]


def test_wait_is_counted_from_the_ruling() -> None:
    run = run_of(rule("defer", "a", wait=50), takes=1000)
    with pytest.raises(RunWaits):
        run.finish()
    (ruled,) = run.of(Ruled)
    assert ruled.until == run.state.calls[0].gate.until == 1050


def test_rule_does_not_defer_from_its_time_on() -> None:
    for now, ruling in ((1999, "defer"), (2000, "allow")):
        run = run_of(rule("defer", "a", until=2000), takes=now)
        run.until(Ruled)
        assert run.of(Ruled)[0].ruling == ruling


def test_wait_defers_each_call_once_and_other_rules_are_asked_then() -> None:
    agent = package(
        tools={"a": tool()}, policy=policy(rule("defer", "a", wait=10), rule("deny", "a", when="spend.turns > 1"))
    )
    run = Run(agent, calls_reply("a"), calls_reply("a"), text_reply("Done."))
    with pytest.raises(RunWaits):
        run.finish()
    resume(run, 10)
    run.finish()
    assert [(fact.subject, fact.ruling) for fact in run.of(Ruled)] == [
        ("c1.0", "defer"),
        ("c1.0", "allow"),
        ("c2.0", "deny"),
    ]


def test_latest_time_counts_and_a_person_is_asked_last() -> None:
    ends: list[dict[str, Any]] = [{"wait": 10}, {"until": 30}, {"person": True}, {"when": "spend.time > 0"}]
    rules = [rule("defer", "a", **end) for end in ends]
    run = run_of(*rules)
    with pytest.raises(RunWaits):
        run.finish()
    resume(run, 29)
    resume(run, 30)
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert [(fact.rules, fact.until, fact.person) for fact in run.of(Ruled)] == [
        (("r1", "r2"), 30, UNSET),
        (("r3",), UNSET, True),
    ]
    (question,) = caught.value.wait.questions
    assert (question.subject, question.rules, question.deferred) == ("c1.0", ("r3",), True)


@pytest.mark.parametrize("stage", STAGES_WITH_DEFER)
@pytest.mark.parametrize("answer", ["approved", "denied"])
def test_only_the_answer_of_a_person_ends_a_deferral_to_a_person(stage: Any, answer: Any) -> None:
    subject, target = SUBJECTS[stage]
    run = run_of(rule("defer", target, on=stage, person=True))
    for at in (0, 10**9):
        resume(run, at)
        with pytest.raises(RunWaits) as caught:
            run.finish()
        assert caught.value.wait.waits_for == (subject,)
        assert [(each.subject, each.target, each.deferred) for each in caught.value.wait.questions] == [
            (subject, target, True)
        ]
    (asked,) = run.of(ApprovalAsked)
    run.add(ApprovalAnswered(subject, asked.question, answer, "ann"))
    outcome = run.finish()
    code = None if answer == "approved" or stage == "tool_call" else "approval.denied"
    assert (outcome.code, [fact.ruling for fact in run.of(Ruled) if fact.stage == stage]) == (code, ["defer"])
    if stage == "tool_call":
        assert (run.ran != []) == (answer == "approved")


def test_other_package_asks_the_rules_again_before_the_time() -> None:
    for end in ({"wait": 1000}, {"person": True}):
        run = run_of(rule("defer", "a", **end))
        with pytest.raises(RunWaits):
            run.finish()
        run.crash(package(tools={"a": tool()}, policy=policy()))
        run.finish()
        assert [fact.ruling for fact in run.of(Ruled)] == ["defer", "allow"]


def test_deferral_that_a_person_approved_for_the_session_is_not_asked_again() -> None:
    held = rule("defer", "a", person=True)
    agent = package(tools={"a": tool()}, policy=policy(held))
    run = Run(agent, calls_reply("a"), calls_reply("a"), text_reply("Done."), people={"a": "approved_for_session"})
    run.finish()
    assert [fact.granted for fact in run.of(Ruled)] == [False, True]
    assert (len(run.of(ApprovalAsked)), len(run.ran)) == (1, 2)


def test_conditions_see_the_time_of_the_last_record() -> None:
    later = rule("deny", "a", when="now >= timestamp('1970-01-01T00:00:05.250Z') && now.getMilliseconds() == 250")
    for takes, ruling in ((5249, "allow"), (5250, "deny")):
        run = run_of(later, takes=takes)
        run.until(Ruled)
        assert run.of(Ruled)[0].ruling == ruling


@pytest.mark.parametrize("stage", ["input", "tool_call", "output", "delivery"])
@pytest.mark.parametrize("ruling", ["ask", "defer"])
def test_asked_questions_are_those_that_the_run_waits_for(stage: Any, ruling: Any) -> None:
    _, target = SUBJECTS[stage]
    person = {"person": True} if ruling == "defer" else {}
    run = run_of(rule(ruling, target, on=stage, **person), people={})
    assert asked_questions(run.agent, run.state) == ()
    with pytest.raises(RunWaits) as caught:
        run.finish()
    assert asked_questions(run.agent, run.state) == caught.value.wait.questions
    run.add(CancelRequested("ann"))
    assert asked_questions(run.agent, run.state) == (), "the run ends, whatever the answer is"


def test_question_can_be_answered_while_the_run_has_something_else_to_do() -> None:
    """The process was killed between the rulings on two calls."""
    agent = package(tools={"a": tool(), "b": tool()}, policy=policy(rule("ask", "a")))
    run = Run(agent, calls_reply("a", "b"), text_reply("Yes."), people={})
    run.until(ApprovalAsked)
    assert [each.subject for each in asked_questions(agent, run.state)] == ["c1.0"]
    run = Run(agent, calls_reply("a", "b"), text_reply("Yes."), people={})
    run.until(Ruled)
    assert asked_questions(agent, run.state) == (), "it is not asked yet"


@pytest.mark.parametrize("on_denied", ["tell", "stop"])
def test_model_reads_why_a_person_denied_a_call(on_denied: str) -> None:
    agent = package(tools={"a": tool(on_denied=on_denied)}, policy=policy(rule("ask", "a")))
    run = Run(agent, calls_reply("a"), text_reply("Yes."), people={})
    with pytest.raises(RunWaits):
        run.finish()
    (asked,) = run.of(ApprovalAsked)
    run.add(ApprovalAnswered("c1.0", asked.question, "denied", "ann", "Not today."))
    outcome = run.finish()
    text = "a was not approved: the request was denied: Not today."
    if on_denied == "stop":
        assert outcome.fault is not None
        assert (outcome.code, outcome.fault.message) == ("approval.denied", text)
        fields = outcome.fields
    else:
        (refused,) = run.of(CallRefused)
        assert refused.told == f"tool.denied: {text}"
        fields = refused.fields
    assert (fields["by"], fields["answer_reason"]) == ("ann", "Not today.")


def test_reason_of_a_denial_is_forgotten_with_another_package() -> None:
    agent = package(tools={"a": tool()}, policy=policy(rule("ask", "output", on="output")))
    run = Run(agent, text_reply("Yes."), people={})
    with pytest.raises(RunWaits):
        run.finish()
    (asked,) = run.of(ApprovalAsked)
    run.add(ApprovalAnswered("output", asked.question, "denied", "ann", "Not today."))
    reasons = [run.state.gate.answer_reason]
    run.crash(package(tools={"a": tool()}, policy=policy()))
    assert [*reasons, run.state.gate.answer_reason] == ["Not today.", None]
