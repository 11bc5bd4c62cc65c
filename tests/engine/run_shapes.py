"""Agents and settings of runs that together call every port; models answer by request, so a run can be resumed."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from agentrun.core.effects import ModelRequest, RunTool, ToolReturn
from agentrun.core.messages import Image, Text, ToolResult, User, text_of
from agentrun.core.package import Package
from agentrun.engine.ports import Clock, Executor
from agentrun.testing import after, approving, call, fails, hook, replies, reply, sink, stub, text
from agentrun.testing.doubles import ScriptItem
from agentrun.testing.laws import Setting

from ..core import script
from ..core.script import SINK, agent_tool, rule, tool, writing
from ..packages import ROUTE, package, typed
from ..scripted_service import BAD, GOOD

ALLOW = {"default": "allow"}
POINTS = ("on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop")
LONG = "line\n" * 50


class Shape(NamedTuple):
    agent: Package
    setting: Callable[[Clock, Callable[[], None]], Setting]
    """What the run meets on a clock. The function cancels the run."""
    code: str | None = None
    """How it ends when nothing goes wrong."""
    pictures: tuple[bytes, ...] = ()


def has_result(request: ModelRequest) -> bool:
    return any(isinstance(message, ToolResult) for message in request.messages)


def model_that_calls(*calls: Any, clock: Clock) -> Callable[[ModelRequest], ScriptItem]:
    """A model that asks for calls, and answers when it has their results."""

    def answer(request: ModelRequest) -> ScriptItem:
        return reply("Done.", pieces=("Do", "ne.")) if has_result(request) else after(3, reply("", *calls), clock)

    return answer


def plain(clock: Clock, cancel: Callable[[], None]) -> Setting:
    return Setting(model=replies(lambda request: reply("Hello.", pieces=("Hel", "lo."))), message="Hi.")


def parallel(clock: Clock, cancel: Callable[[], None]) -> Setting:
    calls = (call("look", q="1"), call("look", q="2"), call("read", q="3"))
    return Setting(
        model=replies(model_that_calls(*calls, clock=clock)),
        tools={"look": stub("found", delay=20, clock=clock), "read": stub(LONG, delay=5, clock=clock)},
        hooks={point: hook() for point in POINTS},
        message="Hi.",
    )


def approval(clock: Clock, cancel: Callable[[], None]) -> Setting:
    return Setting(
        model=replies(model_that_calls(call("pay", q="1"), call("look", q="1"), clock=clock)),
        tools={"pay": stub("paid", delay=5, clock=clock), "look": stub("found", delay=50, clock=clock)},
        approver=approving("approved", delay=10, clock=clock),
        message="Hi.",
    )


def child(clock: Clock, cancel: Callable[[], None]) -> Setting:
    def answer(request: ModelRequest) -> ScriptItem:
        if has_result(request):
            return text("Done. " + LONG)
        inner = request.instructions == "Inner."
        return after(3, reply("", call("look", q="1") if inner else call("billing", message="Go.")), clock)

    tools = {"look": stub("found", delay=5, clock=clock)}
    return Setting(model=replies(answer), tools=tools, message="Hi.")


def sinks(clock: Clock, cancel: Callable[[], None]) -> Setting:
    return Setting(
        model=replies(lambda request: text("Done.")), sinks={"report": sink(), "copy": sink()}, message="Hi."
    )


def compaction(clock: Clock, cancel: Callable[[], None]) -> Setting:
    def answer(request: ModelRequest) -> ScriptItem:
        said = [text_of(message.parts) for message in request.messages if isinstance(message, User)]
        if said[-1] == "Sum up.":
            return text("A lot was found.")
        summed_up = any("Summary" in message for message in said)
        return text("Done.") if summed_up else reply("", call("look", q="1"))

    return Setting(model=replies(answer), tools={"look": stub("found " * 200)}, message="Hi.")


def fallback(clock: Clock, cancel: Callable[[], None]) -> Setting:
    models = {
        "openai": replies(lambda request: fails("provider.overloaded")),
        "other": replies(lambda request: text("Hello.")),
    }
    return Setting(model=models, message="Hi.")


def repair(clock: Clock, cancel: Callable[[], None]) -> Setting:
    return Setting(model=replies(lambda request: text(BAD if len(request.messages) == 1 else GOOD)), message="Hi.")


class Canceller:
    """A tool during which somebody cancels the run."""

    def __init__(self, clock: Clock, cancel: Callable[[], None]) -> None:
        self._clock, self._cancel = clock, cancel

    async def run(self, call: RunTool) -> ToolReturn:
        await self._clock.sleep_until(self._clock.now() + 5)
        self._cancel()
        self._cancel()
        await self._clock.sleep_until(self._clock.now() + 20_000)
        return ToolReturn((Text("never"),))


def cancelled(clock: Clock, cancel: Callable[[], None]) -> Setting:
    tools: Mapping[str, Executor] = {"stop": Canceller(clock, cancel), "look": stub("x", delay=25_000, clock=clock)}
    return Setting(
        model=replies(model_that_calls(call("look", q="1"), call("stop"), call("billing", message="Go."), clock=clock)),
        tools=tools,
        message="Hi.",
    )


def late(clock: Clock, cancel: Callable[[], None]) -> Setting:
    return Setting(
        model=replies(model_that_calls(call("look", q="1"), call("look", q="2"), clock=clock)),
        tools={"look": stub("x", delay=5000, clock=clock)},
        message="Hi.",
    )


def route(**changes: Any) -> dict[str, Any]:
    return ROUTE | changes


INNER = package(instructions=["Inner."], tools={"look": tool()}, policy=ALLOW, limits={"output_lines": 4})
OUTER: dict[str, Any] = {"tools": {"billing": agent_tool()}, "agents": {"billing": msgspec.to_builtins(INNER)}}

SHAPES = {
    "text": Shape(package(), plain, pictures=(b"a picture",)),
    "parallel": Shape(
        package(
            tools={"look": tool(), "read": tool()},
            policy=ALLOW,
            hooks=[script.hook(point, id=point) for point in POINTS],
            limits={"output_lines": 4},
        ),
        parallel,
    ),
    "approval": Shape(
        package(
            tools={"pay": writing(), "look": tool()},
            policy={"default": "allow", "rules": [rule("ask", "pay")]},
        ),
        approval,
    ),
    "child": Shape(package(**OUTER, policy=ALLOW, limits={"output_lines": 4}), child),
    "sinks": Shape(package(sinks={"report": SINK, "copy": SINK | {"delivery": "optional"}}), sinks),
    "compaction": Shape(
        package(
            tools={"look": tool()},
            policy=ALLOW,
            model={"routes": [route(context_window=500)]},
            context={"overflow": "compact", "keep": 0},
        ),
        compaction,
    ),
    "fallback": Shape(package(model={"routes": [ROUTE, route(provider="other")]}), fallback),
    "repair": Shape(typed(), repair),
    "cancelled": Shape(
        package(
            tools={**OUTER["tools"], "look": tool(), "stop": tool()},
            agents=OUTER["agents"],
            policy=ALLOW,
        ),
        cancelled,
        "cancelled",
    ),
    "late": Shape(package(tools={"look": tool()}, policy=ALLOW, budgets={"time": 1000}), late, "budget.time"),
}


def pictures(put: Callable[[bytes], str], shape: Shape) -> tuple[Image, ...]:
    return tuple(Image("image/png", put(data), len(data)) for data in shape.pictures)
