"""Whole runs under a policy, with one tool call, an approval answer and a delivery, and their results."""

from __future__ import annotations

from typing import Any, NamedTuple

import agentrun
from agentrun.core.effects import Deliver
from agentrun.core.facts import ApprovalAnswered, CallRefused, Fact, Ruled, RunStopped
from agentrun.core.fault import Fault
from agentrun.core.messages import ToolResult, text_of
from agentrun.core.package import Package
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import StepClock, approving, calls, scripted, stub, text

from ..core.script import SINK, TOOL, agent_tool, mcp_tool, pins, rule
from ..packages import package

CONDITIONS = {"": None, "if true": "args.n == 1", "if false": "args.n == 2", "if error": "args.nothing == 1"}
"""What a condition gives for the call of these runs."""
ARGS: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "q": {"type": "string"}},
    "required": ["n"],
}
OWN = {key: value for key, value in TOOL.items() if key not in ("module", "function", "source", "isolation")}
HTTP: dict[str, Any] = {
    "kind": "http",
    "url": "https://api.example.com/{{ args.n }}",
    "method": "POST",
    "query": {},
    "headers": {},
    "body": None,
    "auth": None,
    "result": None,
    "hosts": ["api.example.com"],
    "private_network": False,
    "max_bytes": 1000,
}
SHELL: dict[str, Any] = {
    "kind": "shell",
    "argv": ["pay", "{{ args.n }}"],
    "env": {},
    "cwd": ".",
    "stdin": None,
    "exits": [0],
    "dash_args": False,
    "grace": 1000,
}
TOOLS: dict[str, dict[str, Any]] = {
    "python": TOOL | {"args": ARGS},
    "http": OWN | HTTP | {"args": ARGS},
    "shell": OWN | SHELL | {"args": ARGS},
    "mcp": mcp_tool(pinned=pins("pay", args=ARGS)),
    "agent": agent_tool(args=ARGS | {"properties": {**ARGS["properties"], "message": {"type": "string"}}}),
}
"""A tool of each kind."""


class SinkRecorder:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def deliver(self, delivery: Deliver) -> Fault | None:
        self.texts.append(delivery.text)
        return None


class RunResult(NamedTuple):
    """What came of a run."""

    ran: list[dict[str, Any]]
    """The arguments of each execution."""
    exit: int
    code: str | None
    """Why the run failed. Null: it did not."""
    read: str | None
    """Why the model was refused the call, or null."""
    rulings: list[str]
    """`ask[money]: reason`, in the order of the journal."""
    answers: list[str]
    sent: list[str]
    answer: str | None
    results: list[str]
    """What the model read of its calls."""
    requests: int
    facts: list[Fact]


def agent_with_rules(*rules: dict[str, Any], default: str = "allow", kind: str = "python", **changes: Any) -> Package:
    """An agent with one tool, one sink and these rules."""
    name = "srv" if kind == "mcp" else "pay"
    params = {"n": {"type": "integer"}, "q": {"type": "string", "default": ""}}
    child = package(name="child", params=params, instructions=["Pay {{ q }}."], input="Pay {{ n }}.")
    return package(
        tools={name: TOOLS[kind] | changes},
        agents={"pay": child} if kind == "agent" else {},
        policy={"default": default, "rules": list(rules)},
        sinks={"report": SINK},
    )


def called_name(agent: Package) -> str:
    return "srv.pay" if "srv" in agent.tools else "pay"


def run_with_policy(agent: Package, answer: Any = "approved", args: dict[str, Any] | None = None) -> RunResult:
    """Run it: the model makes one call and then gives an answer."""
    clock, journals, tool, sink = StepClock(), MemoryJournals(), stub("paid 77"), SinkRecorder()
    own = scripted(calls(called_name(agent), **(args or {"n": 1})), text("Done 77."))
    child = scripted(text("paid 77"))
    model = _Both(own, child)
    delay = 200_000 if answer == "late" else 0
    people = approving("approved" if delay else answer, delay=delay, clock=clock)
    common: dict[str, Any] = {"approver": people, "clock": clock, "journals": journals, "sinks": {"report": sink}}
    try:
        ended = agentrun.run(agent, "Pay 77.", model=model, tools={called_name(agent): tool}, **common)
    except agentrun.AgentrunError as error:
        return RunResult([], error.exit_code, error.code, None, [], [], [], None, [], len(own.requests), [])
    facts = [record.fact for record in journals.records(ended.run)]
    ran = [call.arguments for call in tool.calls]
    if child.requests:
        ran = [{"n": 1} for _ in child.requests]
    last = own.requests[-1].messages if own.requests else ()
    return RunResult(
        ran=ran,
        exit=ended.exit_code,
        code=ended.code if ended.is_finished else "suspended",
        read=next((str(fact.fields.get("reason")) for fact in facts if isinstance(fact, CallRefused)), None),
        rulings=[_format_ruling(fact) for fact in facts if isinstance(fact, Ruled)],
        answers=[fact.answer for fact in facts if isinstance(fact, ApprovalAnswered)],
        sent=sink.texts,
        answer=ended.answer,
        results=[text_of(message.parts) for message in last if isinstance(message, ToolResult)],
        requests=len(own.requests),
        facts=facts,
    )


class _Both:
    """The models of an agent and of its child."""

    def __init__(self, own: Any, child: Any) -> None:
        self._own = own
        self._child = child

    async def ask(self, effect: Any, delta: Any) -> Any:
        tools = effect.request.tools
        return await (self._own if tools else self._child).ask(effect, delta)


def _format_ruling(fact: Ruled) -> str:
    reason = f": {fact.reason}" if fact.reason else ""
    return f"{fact.ruling}[{', '.join(fact.rules)}]{reason}"


def one(ruling: str, condition: str = "", **changes: Any) -> dict[str, Any]:
    """A rule on the tool, called as its ruling."""
    given: dict[str, Any] = {"id": ruling, "when": CONDITIONS[condition], "reason": "so it is"} | changes
    if ruling == "modify":
        given = {"set": {"q": "rewritten"}} | given
    return rule(ruling, **given)


def terminal(came: RunResult) -> list[Fact]:
    return [fact for fact in came.facts if isinstance(fact, RunStopped)]
