"""Hooks at every point of a run, with every answer they may give."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core.decide import decide
from agentrun.core.effects import AskHook, Deliver, RunTool, Wait
from agentrun.core.facts import (
    CallRefused,
    CancelRequested,
    Continue,
    Deny,
    EarlierRuns,
    HookAnswered,
    HookAsked,
    HookFailure,
    Inject,
    ModelReplied,
    Modify,
    OutputRefused,
    RunEnding,
    RunStopped,
    ToolFinished,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Image, Reasoning, Refusal, Text, ToolResult, User, user_message
from agentrun.core.state import pending_effects

from ..packages import package, typed
from .script import RUN_STARTED, SINK, Run, calls_reply, hook, rule, text_reply, tool
from .shape_parts import ALLOW, BAD, GOOD, policy
from .shapes_calls import POINTS


def run_of(*hooks: dict[str, Any], answers: Any = None, **changes: Any) -> Run:
    """A run with one call and an answer."""
    agent = package(**{"tools": {"a": tool()}, "policy": ALLOW, **changes, "hooks": list(hooks)})
    return Run(
        agent,
        calls_reply(("a", '{"q": "x"}'), text="Let me see."),
        text_reply("Yes."),
        hooks=answers,
        tools={"a": "found"},
    )


SUBJECTS = {
    "on_input": ("input", "input", "It burns."),
    "before_model": ("request", "request", "It burns."),
    "after_model": ("reply", "reply", "Let me see."),
    "before_tool": ("c1.0", "a", {"q": "x"}),
    "after_tool": ("c1.0", "a", "found"),
    "on_output": ("output", "output", "Yes."),
    "on_stop": ("stop", "stop", {"status": "completed", "code": None}),
}


@pytest.mark.parametrize("point", POINTS)
def test_hook_gets_point_subject_target_and_value(point: Any) -> None:
    run = run_of(hook(point))
    assert run.finish().answer == "Yes."
    effect = next(effect for effect in run.effects if isinstance(effect, AskHook))
    subject, target, value = SUBJECTS[point]
    assert (effect.hook, effect.point) == (run.agent.hooks[0], point)
    assert (effect.subject, effect.target, effect.value) == (subject, target, value)
    assert len(run.of(HookAsked)) == (2 if point in ("before_model", "after_model") else 1)


@pytest.mark.parametrize("point", POINTS)
def test_hooks_are_asked_in_their_order(point: Any) -> None:
    """The package has them in the order in which they are asked."""
    run = run_of(hook(point, id="b", order=0), hook(point, id="a", order=1), hook(point, id="c", order=1))
    run.finish()
    assert [fact.hook for fact in run.of(HookAsked)][:3] == ["b", "a", "c"]


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_decided_while_a_hook_is_pending(point: Any) -> None:
    """Between the question and its answer nothing else is decided."""
    run = run_of(hook(point))
    run.until(HookAsked)
    next = decide(run.agent, run.state)
    assert isinstance(next, Wait)
    assert next.inflight == pending_effects(run.state)
    assert len(next.inflight) == 1


@pytest.mark.parametrize("point", ["on_input", "before_model", "after_model", "on_output"])
def test_deny_ends_the_run(point: Any) -> None:
    run = run_of(hook(point), hook(point, id="other", order=1), answers={"watch": Deny("not today")})
    outcome = run.finish()
    subject, target, _ = SUBJECTS[point]
    assert (outcome.code, outcome.exit_code, outcome.retry) == ("policy.denied", 4, "user")
    assert outcome.fields == {"subject": subject, "target": target, "rules": [], "hook": "watch"}
    assert outcome.fault is not None
    assert outcome.fault.message == f"the hook watch denied {target}: not today"
    assert "other" not in [fact.hook for fact in run.of(HookAsked)], "the next one is not asked any more"


@pytest.mark.parametrize(("point", "ran"), [("before_tool", 0), ("after_tool", 1)])
def test_hook_denial_of_a_call_is_sent_to_the_model(point: Any, ran: int) -> None:
    run = run_of(hook(point), answers={"watch": Deny("not today")})
    assert run.finish().answer == "Yes."
    (refused,) = run.of(CallRefused)
    assert (refused.code, refused.told) == ("tool.denied", "tool.denied: the hook watch denied a: not today")
    fields = {"subject": "c1.0", "target": "a", "rules": [], "hook": "watch", "tool": "a", "reason": "policy.denied"}
    assert refused.fields == fields
    assert len(run.ran) == ran
    run = run_of(hook(point), answers={"watch": Deny("not today")}, tools={"a": tool(on_denied="stop")})
    assert run.finish().code == "tool.denied"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("on_failure", ["deny", "continue"])
def test_failed_hook_denies_unless_on_failure_is_continue(point: Any, on_failure: str) -> None:
    """A failure is a no, unless the hook was declared otherwise; at the end it changes nothing."""
    fault = Fault("policy.denied", "it broke", {"hook": "watch"})
    run = run_of(hook(point, on_failure=on_failure), answers={"watch": HookFailure(fault)})
    outcome = run.finish()
    goes_on = (on_failure == "continue" and point != "before_tool") or point == "on_stop"
    assert run.of(HookAnswered)[0].closes is not goes_on
    if goes_on:
        assert (outcome.answer, len(run.ran)) == ("Yes.", 1)
    elif point in ("before_tool", "after_tool"):
        assert run.of(CallRefused)[0].told == "tool.denied: the hook watch denied a: the hook failed"
    else:
        assert outcome.code == "policy.denied"


@pytest.mark.parametrize("point", POINTS)
def test_illegal_hook_answer_is_a_failure(point: Any) -> None:
    wrong = Modify("text") if point == "before_tool" else Modify({"q": "x"})
    for answer in (wrong, "nonsense", None):
        run = run_of(hook(point), answers={"watch": lambda effect, answer=answer: answer})
        run.finish()
        first = run.of(HookAnswered)[0]
        assert isinstance(first.answer, HookFailure)
        assert first.answer.fault.fields == {"hook": "watch", "point": point}


def test_modified_input_reaches_the_next_hook_and_the_model() -> None:
    run = run_of(hook("on_input"), hook("on_input", id="next", order=1), answers={"watch": Modify("It smokes.")})
    run.finish()
    assert run.requests[0].request.messages.until(1) == (user_message("It smokes."),)
    values = [effect.value for effect in run.effects if isinstance(effect, AskHook)]
    assert values == ["It burns.", "It smokes."], "the next hook sees what the first made of it"


def test_input_can_be_modified_after_an_injected_message() -> None:
    first, second = hook("on_input"), hook("on_input", id="next", order=1)
    run = run_of(first, second, answers={"watch": Inject("Hurry."), "next": Modify("It smokes.")})
    run.finish()
    assert run.requests[0].request.messages.until(2) == (user_message("It smokes."), user_message("Hurry."))


def test_modified_input_keeps_earlier_messages_and_images() -> None:
    picture = Image("image/png", "sha256:1", 3)
    earlier = EarlierRuns(messages=(user_message("Hello."), text_reply("Hi.").message))
    started = replace(RUN_STARTED, input=User((picture, Text("What?"))), earlier=earlier)
    agent = package(hooks=[hook("on_input")])
    run = Run(agent, text_reply("A cat."), hooks={"watch": Modify("Who?")}, started=started)
    run.finish()
    assert tuple(run.requests[0].request.messages) == (*earlier.messages, User((Text("Who?"), picture)))


def test_modify_without_an_input_adds_a_message() -> None:
    earlier = EarlierRuns(messages=(user_message("Hello."),))
    agent = package(hooks=[hook("on_input")])
    run = Run(
        agent,
        text_reply("Hi."),
        hooks={"watch": Modify("Now.")},
        started=replace(RUN_STARTED, input=None, earlier=earlier),
    )
    run.finish()
    assert tuple(run.requests[0].request.messages) == (user_message("Hello."), user_message("Now.")), (
        "what was said before stays"
    )
    (effect,) = [effect for effect in run.effects if isinstance(effect, AskHook)]
    assert effect.value == ""


def test_before_model_hook_injects_into_every_request() -> None:
    given = iter(["One.", "Two."])
    run = run_of(hook("before_model"), answers={"watch": lambda effect: Inject(next(given))})
    run.finish()
    first, second = (tuple(request.request.messages) for request in run.requests)
    assert first == (RUN_STARTED.input, user_message("One."))
    assert second[-1] == user_message("Two.")
    values = [effect.value for effect in run.effects if isinstance(effect, AskHook)]
    assert values == ["It burns.", "found"], "what is new since the last request"


def test_modified_reply_keeps_its_calls() -> None:
    run = run_of(hook("after_model"), answers={"watch": lambda effect: Modify(effect.value.upper())})
    assert run.finish().answer == "YES."
    (assistant,) = [message for message in run.requests[1].request.messages if isinstance(message, Assistant)]
    assert (assistant.text, len(assistant.calls)) == ("LET ME SEE.", 1)
    assert run.of(ModelReplied)[0].reply.message.text == "Let me see.", "the original stays"


def test_modified_reply_replaces_all_text_and_refusal_parts() -> None:
    run = Run(package(hooks=[hook("after_model")]), hooks={"watch": Modify("All.")})
    run.answers = [text_reply(Reasoning("x", "openai/gpt"), "One", Refusal("two"))]
    assert (run.finish().answer, run.state.ending.label) == ("All.", None)
    assert run.state.reply.message == Assistant((Reasoning("x", "openai/gpt"), Text("All.")))


def test_modified_arguments_reach_the_tool() -> None:
    run = run_of(hook("before_tool"), answers={"watch": Modify({"q": "y"})})
    run.finish()
    (effect,) = [effect for effect in run.effects if isinstance(effect, RunTool)]
    assert effect.arguments == {"q": "y"}
    (assistant,) = [message for message in run.state.conversation.transcript if isinstance(message, Assistant)]
    assert assistant.calls[0].arguments == '{"q": "x"}', "the original stays"


def test_modified_arguments_are_validated_and_ruled_on() -> None:
    run = run_of(hook("before_tool"), answers={"watch": Modify({"q": 5})})
    run.finish()
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.invalid_arguments"]
    rules = policy(rule("deny", "a", when="args.q == 'y'"))
    run = run_of(hook("before_tool"), answers={"watch": Modify({"q": "y"})}, policy=rules)
    run.finish()
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.denied"]


def test_modified_result_reaches_the_model() -> None:
    run = run_of(hook("after_tool"), answers={"watch": Modify("lost")})
    run.finish()
    assert run.requests[1].request.messages.since(2) == (ToolResult("c1.0", (Text("lost"),)),)
    assert run.of(ToolFinished)[0].parts == (Text("found"),), "the original stays"


def test_modified_answer_is_delivered() -> None:
    run = run_of(hook("on_output"), answers={"watch": Modify("No.")}, sinks={"first": SINK})
    assert run.finish().answer == "No."
    assert [effect.text for effect in run.effects if isinstance(effect, Deliver)] == ["No."]


def test_answer_made_invalid_by_a_hook_is_repaired() -> None:
    agent = typed(hooks=[hook("on_output")])
    given: Any = {"watch": lambda effect: Modify(BAD) if effect.value == GOOD else Continue()}
    run = Run(agent, text_reply(GOOD), text_reply(OTHER), hooks=given)
    assert run.finish().output == {"queue": "other", "urgent": True}
    (refused,) = run.of(OutputRefused)
    assert refused.turn == 1
    run = Run(typed(hooks=[hook("on_output")], output={"repairs": 0}), text_reply(GOOD), hooks=given)
    assert run.finish().code == "output.invalid"


OTHER = GOOD.replace("hardware", "other")


def test_answer_made_invalid_by_a_mask_is_repaired() -> None:
    agent = typed(policy=policy(rule("modify", on="output", mask=["hardware"])))
    run = Run(agent, text_reply(GOOD), text_reply(OTHER))
    assert run.finish().output == {"queue": "other", "urgent": True}
    assert len(run.of(OutputRefused)) == 1


@pytest.mark.parametrize("ends", ["completed", "failed"])
def test_on_stop_hook_gets_status_and_code(ends: str) -> None:
    answer = text_reply("Yes.") if ends == "completed" else Fault("provider.fatal", "no")
    run = Run(package(hooks=[hook("on_stop")]), answer)
    outcome = run.finish()
    (effect,) = [effect for effect in run.effects if isinstance(effect, AskHook)]
    assert effect.value == {"status": ends, "code": outcome.code}
    assert run.kinds()[-4:] == ["run_ending", "hook_asked", "hook_answered", "run_stopped"]
    assert run.of(RunEnding)[0].stop == run.of(RunStopped)[0]


def test_cancel_during_on_stop_does_not_change_the_outcome() -> None:
    run = Run(package(hooks=[hook("on_stop")]), text_reply("Yes."))
    run.until(HookAsked)
    run.add(CancelRequested("me"))
    assert run.finish().answer == "Yes."
