"""Run shapes without a focus on calls: replies, repairs, retries, deliveries and compaction."""

from typing import Any

from agentrun.core.facts import HookFailure, Inject, MessageQueued, Modify
from agentrun.core.fault import Fault
from agentrun.core.messages import user_message

from ..packages import ROUTE, package, typed
from .script import SINK, Run, calls_reply, hook, rule, text_reply, tool
from .shape_parts import ALLOW, BAD, GOOD, LONG, OVERFLOW, TALKATIVE, TRANSIENT, policy, queued, shape


@shape
def text() -> Run:
    return Run(package(), text_reply("Call the fire brigade."))


@shape
def repaired() -> Run:
    return Run(typed(), text_reply(BAD), text_reply(GOOD))


@shape
def unrepaired() -> Run:
    return Run(typed(output={"repairs": 1}), text_reply(BAD), text_reply(BAD))


@shape
def retried() -> Run:
    return Run(package(), TRANSIENT, TRANSIENT, text_reply("Yes."))


@shape
def fell_back() -> Run:
    routes = [ROUTE, {**ROUTE, "name": "second"}]
    return Run(package(model={"routes": routes}), Fault("provider.fatal", "no"), TRANSIENT, text_reply("Yes."))


@shape
def gave_up() -> Run:
    return Run(package(), Fault("provider.fatal", "no"))


@shape
def continued() -> Run:
    return Run(
        package(), text_reply("One ", finish="length"), text_reply("two ", finish="length"), text_reply("three.")
    )


@shape
def escalated() -> Run:
    agent = package(limits={"on_truncated": "escalate"}, model={"max_output_tokens": 10})
    return Run(agent, text_reply("One", finish="length"), text_reply("One two."))


@shape
def hook_failed() -> Run:
    fault = Fault("policy.denied", "it broke")
    return Run(package(hooks=[hook("on_input"), hook("on_stop", id="last")]), hooks={"watch": HookFailure(fault)})


@shape
def injected() -> Run:
    """An answer that a hook does not take, once."""
    agent = package(hooks=[hook("on_output")])
    answers: Any = {"watch": lambda effect: Inject("Shorter.") if effect.value == "Long." else Modify("S.")}
    return Run(agent, text_reply("Long."), text_reply("Short."), hooks=answers)


@shape
def delivered() -> Run:
    sinks = {
        "first": SINK,
        "second": SINK | {"delivery": "optional"},
        "third": SINK | {"delivery": "optional"},
        "off": SINK | {"delivery": "disabled"},
    }
    rules = policy(rule("deny", "second", on="delivery"), rule("modify", "third", on="delivery", mask=["[0-9]+"]))
    failed = Fault("delivery.failed", "no", {"sink": "third"})
    return Run(package(sinks=sinks, policy=rules), text_reply("42 of them."), sinks={"third": failed})


@shape
def undelivered() -> Run:
    failed = Fault("delivery.failed", "no", {"sink": "first"})
    agent = package(sinks={"first": SINK, "second": SINK}, hooks=[hook("on_stop")])
    return Run(agent, text_reply("Yes."), sinks={"first": failed})


@shape
def asked_everywhere() -> Run:
    """A person is asked about the input, the answer and a delivery."""
    rules = policy(rule("ask", on="input"), rule("ask", on="output"), rule("ask", on="delivery"))
    people: Any = {"input": "approved", "output": "approved_for_session", "first": "approved"}
    return Run(package(policy=rules, sinks={"first": SINK}), text_reply("Yes."), people=people)


@shape
def output_ruled() -> Run:
    """A mask breaks the contract, and the model repairs it."""
    agent = typed(policy=policy(rule("modify", on="output", mask=["hardware"]), rule("allow", on="input")))
    return Run(agent, text_reply(GOOD), text_reply(GOOD.replace("hardware", "other")))


@shape
def requests_ruled() -> Run:
    agent = package(tools={"a": tool()}, policy=policy(rule("modify", on="model_request", mask=["burns", "tickets"])))
    return Run(agent, calls_reply("a"), text_reply("Done."))


@shape
def nudged() -> Run:
    agent = package(tools={"done": tool(terminal=True)}, policy=ALLOW, guards={"empty_outcome": 1})
    return Run(agent, text_reply("Hm."), calls_reply("done"))


@shape
def empty() -> Run:
    return Run(package(guards={"empty_outcome": 1}), text_reply("Hm."), text_reply("Hm!"))


@shape
def wrapped_up() -> Run:
    agent = package(budgets={"turns": 2, "grace": 2, "on_turns": "stop"}, tools={"a": tool()}, policy=ALLOW)
    return Run(agent, calls_reply("a"), calls_reply(("a", '{"q": "b"}'), text="So far."))


@shape
def followed_up() -> Run:
    """Messages that come while the model is asked, and when there is an answer already."""
    run = queued(2)(
        Run(package(hooks=[hook("on_output")]), text_reply("One."), text_reply("Two."), text_reply("Three."))
    )
    run.disturb[8] = lambda run: run.add(MessageQueued("q2", user_message("Still?")))
    return run


@shape
def compacted() -> Run:
    routes = [{**ROUTE, "context_window": 350}]
    agent = package(
        tools={"a": tool()}, policy=ALLOW, model={"routes": routes}, context={"overflow": "compact", "keep": 1}
    )
    answers = [calls_reply("a"), text_reply("Sum.", finish="stop"), text_reply("Done.")]
    return Run(agent, *answers, tools={"a": LONG}, started=TALKATIVE)


@shape
def compaction_failed() -> Run:
    agent = package(tools={"a": tool()}, policy=ALLOW, context={"overflow": "compact", "keep": 1, "failures": 2})
    return Run(agent, calls_reply("a"), OVERFLOW, text_reply(" "), text_reply(LONG * 3), tools={"a": "x" * 60})


@shape
def overflowed() -> Run:
    agent = package(tools={"a": tool()}, policy=ALLOW, context={"overflow": "compact", "keep": 1})
    return Run(
        agent, calls_reply("a"), OVERFLOW, text_reply("Sum."), text_reply("Done."), tools={"a": LONG}, started=TALKATIVE
    )


@shape
def gave_up_late() -> Run:
    """A fault after another, and a hook that hears of it."""
    return Run(package(hooks=[hook("on_stop")]), TRANSIENT, Fault("provider.fatal", "no"))


@shape
def warned_late() -> Run:
    agent = package(budgets={"turns": 2, "grace": 1}, tools={"a": tool()}, policy=ALLOW)
    return Run(agent, calls_reply("a"), calls_reply(("a", '{"q": "b"}'), text="So far."))
