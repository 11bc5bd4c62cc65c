"""Run shapes for the laws: a package and its setting."""

from typing import NamedTuple

import msgspec

from agentrun.core.effects import ModelRequest
from agentrun.core.facts import Continue, Inject
from agentrun.core.messages import User, text_of
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.testing import after, approving, call, calls, fails, hook, replies, scripted, sink, stub, text
from agentrun.testing.doubles import ScriptItem
from agentrun.testing.laws import MakeSetting, Setting

from ..core import script
from ..core.script import agent_tool, rule, tool, writing
from ..packages import ROUTE, TRIAGE, package


class Shape(NamedTuple):
    package: Package
    setting: MakeSetting


ALLOW = {"default": "allow"}
TWO_TOOLS = {"search": tool(), "pay": writing()}
BATCH = calls(call("search", q="1"), call("pay", n=1), call("search", q="2"), call("pay", n=2))
BILLING = package(name="billing", tools=TWO_TOOLS, policy=ALLOW, input=None)
PARENT = package(
    tools={"billing": agent_tool()},
    agents={"billing": msgspec.to_builtins(BILLING)},
    policy=ALLOW,
)


def plain_text(clock: StepClock) -> Setting:
    return Setting(model=scripted("Hello."), message="Hi.")


def parallel_tools(clock: StepClock) -> Setting:
    tools = {"search": stub(lambda q: f"found {q}", delay=20, clock=clock), "pay": stub("paid", delay=5, clock=clock)}
    return Setting(model=scripted(BATCH, text("Done.")), tools=tools, message="Hi.")


def approval(clock: StepClock) -> Setting:
    """Nobody is there: the run is suspended, and answered later."""
    tools = {"search": stub("found"), "pay": stub("paid")}
    return Setting(model=scripted(BATCH, text("Done.")), tools=tools, message="Hi.")


def person(clock: StepClock) -> Setting:
    """Somebody is there, and takes a while."""
    tools = {"search": stub("found"), "pay": stub("paid")}
    there = approving({"pay": "denied", "search": "approved_for_session"}, delay=500, clock=clock)
    return Setting(model=scripted(BATCH, text("Done.")), tools=tools, approver=there, message="Hi.")


def child(clock: StepClock) -> Setting:
    model = scripted(calls("billing", message="Refund it."), calls("pay", n=1), text("Refunded."), text("All done."))
    return Setting(model=model, tools={"search": stub(), "pay": stub("paid", delay=5, clock=clock)}, message="Help.")


def asking_child(clock: StepClock) -> Setting:
    """Nobody is there: the child sleeps, and so does its parent."""
    model = scripted(calls("billing", message="Refund it."), BATCH, text("Refunded."), text("All done."))
    return Setting(model=model, tools={"search": stub("found"), "pay": stub("paid")}, message="Help.")


def children(clock: StepClock) -> Setting:
    """Two at a time: what a model says depends on what it reads, not on who asks first."""

    def answer(request: ModelRequest) -> ScriptItem:
        first, read = request.messages.until(1)[0], len(request.messages)
        asked = text_of(first.parts) if isinstance(first, User) else ""
        if asked == "Help.":
            both = calls(call("billing", message="One."), call("billing", message="Two."))
            return both if read == 1 else text("All done.")
        return calls("search", q=asked) if read == 1 else text(f"{asked} Done.")

    tools = {"search": stub(lambda q: f"found {q}", delay=5, clock=clock), "pay": stub()}
    return Setting(model=replies(answer), tools=tools, message="Help.")


def budget_stop(clock: StepClock) -> Setting:
    model = scripted(*(calls("search", q=str(number)) for number in range(5)))
    return Setting(model=model, tools={"search": stub("found"), "pay": stub()}, message="Search.")


def trouble(clock: StepClock) -> Setting:
    """Retries, a fallback, hooks, a repair of the answer, sinks: all else that can be lost."""
    good = '{"queue": "%s", "urgent": true}'
    return Setting(
        model={
            "openai": scripted(fails("provider.overloaded"), fails("provider.fatal", status=400)),
            "other": scripted(
                after(50, calls("search", q="x"), clock=clock),
                text("no JSON"),
                text(good % "billing"),
                text(good % "other"),
            ),
        },
        tools={"search": stub(fails="tool.execution"), "pay": stub()},
        hooks={
            "greet": hook(Inject("Be kind.")),
            "more": hook(lambda question: Inject("Sure?") if "billing" in question.value else Continue()),
            "bye": hook(),
        },
        sinks={"report": sink(), "broken": sink(fails=ValueError("full"))},
        message="Hi.",
    )


RULES = [rule("ask", "pay"), rule("ask", "search", id="r2", when="args.q == '1'"), rule("allow", "search", id="r3")]
ASKING_AGENT = package(tools=TWO_TOOLS, policy={"default": "deny", "rules": RULES})
ASKING_CHILD = package(
    tools={"billing": agent_tool()},
    agents={"billing": {**msgspec.to_builtins(ASKING_AGENT), "name": "billing"}},
    policy=ALLOW,
)
AGENT_WITH_FAULTS = package(
    tools=TWO_TOOLS,
    policy=ALLOW,
    model={"routes": [ROUTE, ROUTE | {"provider": "other"}]},
    output={"schema": TRIAGE},
    hooks=[
        script.hook("on_input", id="greet"),
        script.hook("on_output", id="more"),
        script.hook("on_stop", id="bye"),
    ],
    sinks={"report": script.SINK, "broken": script.SINK | {"delivery": "optional"}},
)

SHAPES = {
    "plain text": Shape(package(), plain_text),
    "parallel tools": Shape(package(tools=TWO_TOOLS, policy=ALLOW, budgets={"time": 1000}), parallel_tools),
    "approval": Shape(ASKING_AGENT, approval),
    "person": Shape(ASKING_AGENT, person),
    "child": Shape(PARENT, child),
    "asking child": Shape(ASKING_CHILD, asking_child),
    "children": Shape(PARENT, children),
    "budget stop": Shape(package(tools=TWO_TOOLS, policy=ALLOW, budgets={"turns": 3}), budget_stop),
    "trouble": Shape(AGENT_WITH_FAULTS, trouble),
}
