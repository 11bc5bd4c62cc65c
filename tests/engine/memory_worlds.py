"""Worlds in memory for tests, and effects to perform in them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from agentrun.core.effects import AskHook, AskModel, Deliver, ModelRequest, RunChild, RunTool
from agentrun.core.facts import Parent
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Message, Reply, Text, ToolCall, Transcript, Usage
from agentrun.core.package import Hook, Package, StdoutSink
from agentrun.core.package_tools import PythonTool, Tool
from agentrun.core.spend import BudgetShare
from agentrun.engine.clock import StepClock
from agentrun.engine.crew_registry import CrewRegistry
from agentrun.engine.memory import MemoryBlobs, MemoryJournals
from agentrun.engine.perform import make_crew
from agentrun.engine.ports import ReplyDelta
from agentrun.engine.world import World

from ..packages import package

USAGE = Usage(20, 5, 0, 0)
COMMON: dict[str, Any] = {
    "description": "Does something.",
    "parallel": False,
    "timeout": 1000,
    "visible": None,
    "observation": False,
    "terminal": False,
    "aborts_siblings": False,
    "on_denied": "tell",
}
PYTHON: dict[str, Any] = {
    **COMMON,
    "kind": "python",
    "effect": "at_most_once",
    "args": {"type": "object"},
    "actions": {},
    "module": "shop",
    "function": "f",
    "source": "sha256:0",
    "isolation": "thread",
}
MCP: dict[str, Any] = {
    **COMMON,
    "kind": "mcp",
    "effect": "at_most_once",
    "command": ["server"],
    "url": None,
    "env": {},
    "headers": {},
    "pinned": {"search": {"description": "Finds.", "args": {"type": "object"}, "digest": "sha256:0"}},
    "effects": {},
    "private_network": False,
    "requests": [],
    "start_timeout": 1000,
}
AGENT: dict[str, Any] = {**COMMON, "kind": "agent", "args": {"type": "object"}, "params": {}}
HOOK: dict[str, Any] = {
    "id": "careful",
    "at": "before_tool",
    "module": "shop",
    "function": "f",
    "source": "sha256:0",
    "order": 0,
    "timeout": 1000,
    "on_failure": "deny",
}


class Place:
    """A world whose clock is moved by hand, and all that was seen in it."""

    def __init__(self, width: int = 4, **parts: Any) -> None:
        self.clock = StepClock(1_000_000)
        self.blobs = MemoryBlobs()
        self.journals = MemoryJournals()
        self.heard: list[tuple[str, Any]] = []
        self.world = World(
            **{
                "clock": self.clock,
                "blobs": self.blobs,
                "journals": self.journals,
                "crews": CrewRegistry(parts.get("clock", self.clock), width),
                "crew": make_crew,
                "listen": lambda run, news: self.heard.append((run, news)),
                **parts,
            }
        )

    def deltas(self) -> list[str | None]:
        return [news.text for _, news in self.heard if isinstance(news, ReplyDelta)]

    def facts(self, run: str) -> list[Any]:
        return [record.fact for record in self.journals.records(run)]


class Model:
    """A provider that answers from a list. An exception is raised, a number is a wait before the next."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[AskModel] = []
        self.clock: StepClock | None = None

    async def ask(self, effect: AskModel, delta: Callable[[str], None]) -> Reply | Fault:
        self.asked.append(effect)
        while True:
            answer = self.answers.pop(0)
            if isinstance(answer, int):
                assert self.clock is not None
                await self.clock.sleep_until(self.clock.now() + answer)
            elif isinstance(answer, str):
                delta(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                assert isinstance(answer, Reply | Fault)
                return answer


def reply(text: str, usage: Usage | None = USAGE) -> Reply:
    return Reply(Assistant((Text(text),)), "stop", usage, None, None)


def calls(*wanted: tuple[str, Mapping[str, Any]]) -> Reply:
    """A reply that asks for calls."""
    parts = tuple(ToolCall("", tool, msgspec.json.encode(args).decode()) for tool, args in wanted)
    return Reply(Assistant(parts), "tool_calls", USAGE, None, None)


def tool(**changes: Any) -> Tool:
    return msgspec.convert({**PYTHON, **changes}, Tool)  # type: ignore[no-any-return]  # a union is no type to mypy


def ask(messages: Sequence[Message] = (), **changes: Any) -> AskModel:
    agent = package()
    route = changes.pop("route", agent.model.routes[0])
    transcript = changes.pop("transcript", None) or Transcript(messages)
    request = ModelRequest(route, agent.model, "", transcript, None)
    return AskModel(
        **{"id": "m1.1", "turn": 1, "attempt": 1, "reserved": 100, "cost": 77, "time": 500, **changes}, request=request
    )


def run(name: str = "refund", arguments: dict[str, Any] | None = None, **changes: Any) -> RunTool:
    made = changes.pop("tool", None) or msgspec.convert(PYTHON, PythonTool)
    return RunTool(
        "c1.0",
        name,
        made,
        {} if arguments is None else arguments,
        "key",
        **{"max_lines": 10, "max_bytes": 100, **changes},
    )


def child(agent: Package | None = None, message: str | None = "hello", **changes: Any) -> RunChild:
    parent = Parent("root", "c1.0", 1, changes.pop("share", BudgetShare()))
    limits = {"max_lines": 10, "max_bytes": 100, **changes}
    return RunChild("c1.0", "billing", "root.c1.0", agent or package(), {}, message, parent, **limits)


def hook(**changes: Any) -> AskHook:
    value = changes.pop("value", {"amount": 10})
    made = msgspec.convert({**HOOK, **changes}, Hook)
    return AskHook("h.1", made, made.at, "c1.0", "refund", value)


def delivery(output: Any = UNSET, **changes: Any) -> Deliver:
    sink = StdoutSink(**{"delivery": "required", "timeout": 1000, **changes})
    return Deliver("deliver:out", "out", sink, "the answer", output, "key")
