"""Runs that are interrupted: agents of several shapes, and an outside world that survives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.effects import Deliver, ModelRequest, RunTool, ToolReturn
from agentrun.core.facts import Inject
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Text, User, text_of
from agentrun.core.package import tool_effect
from agentrun.testing import call, calls, hook, reply, text
from agentrun.testing.doubles import ScriptItem

from ..core import script
from ..core.script import agent_tool, rule, tool, writing
from ..packages import ROUTE, package

ALLOW = {"default": "allow"}
TOOLS = {"look": tool(), "set": tool(effect="idempotent"), "pay": writing()}
ONCE = ("pay",)
"""The tools that may run at most once. A resumed run starts all other calls again without a decision."""
BATCH = (call("look", q="1"), call("set", q="2"), call("pay", q="3"), call("look", q="4"), call("pay", q="5"))


class World:
    """What the tools did. It is outside the process that crashes."""

    def __init__(self) -> None:
        self.effects: Counter[tuple[str, str]] = Counter()
        """How often a change was made, by tool and key."""
        self.results: dict[tuple[str, str], str] = {}
        self.deliveries: dict[str, str] = {}

    async def run(self, call: RunTool) -> ToolReturn:
        effect, change = tool_effect(call.tool, call.name), (call.name, call.key)
        if effect == "at_most_once" or (effect == "idempotent" and change not in self.effects):
            self.effects[change] += 1
        self.results[change] = f"{call.name} {call.arguments['q']}: done"
        return ToolReturn((Text(self.results[change]),))

    async def deliver(self, delivery: Deliver) -> Fault | None:
        self.deliveries[delivery.key] = delivery.text
        return None


class Shape(NamedTuple):
    package: PackageFile
    model: Callable[[ModelRequest], ScriptItem]
    """Answers the same to the same request, so that it need not know about crashes."""


def _first_text(request: ModelRequest) -> str:
    first = request.messages.until(1)[0]
    return text_of(first.parts) if isinstance(first, User) else ""


def _is_first(request: ModelRequest) -> bool:
    return not any(isinstance(each, Assistant) for each in request.messages.until(len(request.messages)))


def plain(request: ModelRequest) -> ScriptItem:
    return text("Hello.")


def batch(request: ModelRequest) -> ScriptItem:
    return reply("", *BATCH) if _is_first(request) else text("Done.")


def child(request: ModelRequest) -> ScriptItem:
    if _first_text(request) != "Hi.":
        return batch(request)
    return calls("billing", message="Refund it.") if len(request.messages) == 1 else text("All done.")


def stream(request: ModelRequest) -> ScriptItem:
    if len(request.messages) == 1:
        return reply("I look.", call("look", q="1"), call("pay", q="2"), pieces=("I ", "look."))
    return reply("It is there.", pieces=("It ", "is ", "there."))


def compaction(request: ModelRequest) -> ScriptItem:
    if not request.tools:
        return text("It was found.")
    asked = len(request.messages) // 2 if _first_text(request) == "Hi." else 2
    return calls("look", q=str(asked) * 400) if asked < 2 else text("Done.")


_BILLING = msgspec.to_builtins(package(name="billing", tools=TOOLS, policy=ALLOW, input=None))
_ASKING = {"default": "deny", "rules": [rule("ask", "pay"), rule("allow", "look", "set", id="r2")]}
_HOOKS = [
    script.hook("on_input", id="greet"),
    script.hook("before_tool", id="watch"),
    script.hook("on_output", id="more"),
]
_SMALL_WINDOW: dict[str, Any] = {
    "model": {"routes": [{**ROUTE, "context_window": 1400}]},
    "context": {"overflow": "compact", "keep": 1},
}

SHAPES = {
    "plain": Shape(seal_package(package()), plain),
    "batch": Shape(seal_package(package(tools=TOOLS, policy=ALLOW)), batch),
    "child": Shape(
        seal_package(package(tools={"billing": agent_tool()}, agents={"billing": _BILLING}, policy=ALLOW)), child
    ),
    "approval": Shape(seal_package(package(tools=TOOLS, policy=_ASKING)), batch),
    "recording": Shape(seal_package(package(tools=TOOLS, policy=_ASKING)), batch),
    "stream": Shape(seal_package(package(tools=TOOLS, policy=ALLOW, model={"stream": True})), stream),
    "hooks": Shape(
        seal_package(package(tools=TOOLS, policy=ALLOW, hooks=_HOOKS, sinks={"report": script.SINK})), batch
    ),
    "compaction": Shape(seal_package(package(tools=TOOLS, policy=ALLOW, **_SMALL_WINDOW)), compaction),
}


def hooks() -> dict[str, Any]:
    return {"greet": hook(Inject("Be kind.")), "watch": hook(), "more": hook()}
