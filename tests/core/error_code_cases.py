"""A run of the pure core for every error code that it can produce."""

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import ANY

from msgspec.structs import replace

from agentrun.core.facts import (
    RULES_VERSION,
    CallSettled,
    CancelRequested,
    EarlierRuns,
    ModelAsked,
    RunResumed,
    ToolStarted,
    WorkLost,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, ToolResult
from agentrun.core.package import Package

from ..packages import ROUTE, package, typed
from .script import RUN_STARTED, SINK, Run, calls_reply, rule, text_reply, tool, writing


class Stop(NamedTuple):
    """A run that ends over a code, with all that its fault says."""

    code: str
    play: Callable[[], Run]
    fields: dict[str, Any]
    hint: str | None = None


class ToolResultCode(NamedTuple):
    """A run that goes on after the model read a code."""

    code: str
    play: Callable[[], Run]
    fields: dict[str, Any]


def agent(**changes: Any) -> Package:
    """An agent with a tool that may run."""
    policy = {"default": "allow", **changes.pop("policy", {})}
    return package(**{"tools": {"search": tool()}, "policy": policy, **changes})


def _failing(code: str, fields: dict[str, Any], requests: int) -> Stop:
    """The model fails in one way, as often as it is asked."""
    fault = Fault(code, "no", fields, "try tomorrow")
    evidence = {**fields, "turn": 1, "attempts": requests}
    return Stop(code, lambda: Run(package(), *[fault] * requests), evidence, "try tomorrow")


PROVIDER = (
    _failing("provider.transient", {"status": 503}, 4),
    _failing("provider.timeout", {"status": None, "limit": 60_000}, 4),
    _failing("provider.overloaded", {"status": 529}, 4),
    _failing("provider.rate_limited", {"status": 429, "retry_after": 2}, 4),
    _failing("provider.zero_output", {}, 4),
    _failing("provider.empty", {"finish": "stop"}, 4),
    _failing("provider.decode", {"offset": 17}, 1),
    _failing("provider.fatal", {"status": 401}, 1),
    _failing("provider.context_overflow", {"status": 400}, 1),
    _failing("context.failed", {"part": "plan.pdf", "reason": "missing"}, 1),
    _failing("internal", {"error": "KeyError"}, 1),
)


def _by_tool(code: str, fields: dict[str, Any]) -> Stop:
    fault = Fault(code, "no", fields, "look at it")
    return Stop(code, lambda: Run(agent(), calls_reply("search"), tools={"search": fault}), fields, "look at it")


def _answered_approval(answer: str) -> Stop:
    """A person is asked about a call that must not be denied."""

    def play() -> Run:
        strict = agent(tools={"search": tool(on_denied="stop")}, policy={"rules": [rule("ask", "search")]})
        return Run(strict, calls_reply("search"), people={"search": answer})  # type: ignore[dict-item]  # one of the answers

    fields = {"call": "c1.0", "by": "somebody", "tool": "search", "target": "search", "rules": ["r1"]}
    return Stop(f"approval.{answer}", play, fields)


def _lost_call() -> Run:
    """The owner goes away inside a call that must not run twice, and somebody decides to stop."""
    run = Run(agent(tools={"search": writing()}), calls_reply("search"))
    run.until(ToolStarted)
    for fact in (RunResumed("sha256:0", RULES_VERSION), WorkLost("c1.0"), CallSettled("c1.0", "stop", "ann")):
        run.add(fact)
    return run


def _cancelled() -> Run:
    run = Run(package())
    run.until(ModelAsked)
    run.add(CancelRequested("ann"))
    run.add(CancelRequested("bob"))
    return run


def _torn_history() -> Run:
    earlier = EarlierRuns(runs=1, messages=(ToolResult("c9.0", (Text("42"),)),))
    return Run(package(), started=replace(RUN_STARTED, earlier=earlier))


def _no_summary() -> Run:
    """What does not fit is what the tool says of itself, and the summary is empty."""
    route = ROUTE | {"context_window": 100}
    context = {"overflow": "compact", "keep": 0, "failures": 2}
    big = agent(tools={"search": tool(description="words " * 100)}, model={"routes": [route]}, context=context)
    return Run(big, text_reply(" "), text_reply("\n"))


def _sink_fails() -> Run:
    fault = Fault("delivery.failed", "no", {"sink": "out", "reason": "disk"}, "make room")
    return Run(package(sinks={"out": SINK}), text_reply("Done."), sinks={"out": fault})


def _searches(*letters: str) -> list[tuple[str, str]]:
    return [("search", f'{{"q": "{letter}"}}') for letter in letters]


def _priced() -> Run:
    route = ROUTE | {"price": {"input": 1_000_000, "output": 0, "cached_input": 0}}
    return Run(package(model={"routes": [route]}, budgets={"cost": 15}))


BUDGETS = (
    Stop(
        "budget.turns",
        lambda: Run(agent(budgets={"turns": 1}), calls_reply("search")),
        {"used": 1, "reserved": 1, "limit": 1},
        "raise budgets.turns, or set budgets.on_turns: stop",
    ),
    Stop(
        "budget.tokens",
        lambda: Run(package(budgets={"tokens": 15})),
        {"used": 0, "reserved": 19, "limit": 15},
        "raise budgets.tokens, or lower model.max_output_tokens",
    ),
    Stop(
        "budget.cost",
        _priced,
        {"used": 0, "reserved": 19, "limit": 15},
        "raise budgets.cost, or lower model.max_output_tokens",
    ),
    Stop(
        "budget.time",
        lambda: Run(agent(budgets={"time": 150}), calls_reply("search"), takes=100),
        {"used": 150, "reserved": 0, "limit": 150},
        "raise budgets.time",
    ),
    Stop(
        "budget.tool_calls",
        lambda: Run(agent(budgets={"tool_calls": 1}), calls_reply(*_searches("a", "b"))),
        {"used": 0, "reserved": 2, "limit": 1},
        "raise budgets.tool_calls",
    ),
)

GUARDS = (
    Stop(
        "guard.parallel_tools",
        lambda: Run(agent(limits={"parallel_tools": 1}), calls_reply(*_searches("a", "b"))),
        {"count": 2, "limit": 1, "turn": 1},
        "raise limits.parallel_tools, or set limits.on_oversize_batch",
    ),
    Stop(
        "guard.repeated_call",
        lambda: Run(agent(), calls_reply("search"), calls_reply("search"), calls_reply("search")),
        {"pattern": ["search"], "count": 3, "limit": 3, "call": "c3.0"},
        "raise guards.repeated_call, or mark the tool `observation: true`",
    ),
    Stop(
        "guard.cycle",
        lambda: Run(agent(), *[calls_reply(each) for each in _searches(*"ababab")]),
        {"pattern": ["search", "search"], "count": 3, "limit": 3, "call": "c6.0"},
        "raise guards.cycle, or mark the tools `observation: true`",
    ),
    Stop(
        "guard.repeated_batch",
        lambda: Run(agent(guards={"cycle": None}), *[calls_reply(*_searches("a", "b"))] * 3),
        {"signature": ANY, "count": 3, "limit": 2, "turn": 3},
        "raise guards.repeated_batch",
    ),
    Stop(
        "guard.stagnation",
        lambda: Run(agent(guards={"stagnation": 1}), *(calls_reply(*_searches(q), text="a") for q in "xy")),
        {"hash": "af63dc4c8601ec8c", "count": 2, "limit": 1},
        "raise guards.stagnation",
    ),
    Stop(
        "guard.empty_outcome",
        lambda: Run(agent(guards={"empty_outcome": 1}), text_reply("Well."), text_reply("Hm.")),
        {"observed": 2, "budget": 1},
    ),
)

ENDS = (
    Stop(
        "provider.inconsistent_history",
        _torn_history,
        {"calls": ["c9.0"]},
        "give each call of the history exactly one result, right after the message that asks for the call",
    ),
    Stop(
        "context.overflow",
        lambda: Run(package(model={"routes": [ROUTE | {"context_window": 15}]})),
        {"context": 15, "estimated": 19},
        "set context.overflow: compact",
    ),
    Stop("context.failed", _no_summary, {"part": "history", "reason": "compaction"}),
    _by_tool("tool.fatal", {"tool": "search", "reason": "closed"}),
    _by_tool("tool.aborted", {"tool": "search", "reason": "closed"}),
    _by_tool("tool.drift", {"tool": "search", "pinned": "sha256:0", "found": "sha256:1"}),
    Stop("tool.indeterminate", _lost_call, {"call": "c1.0", "tool": "search"}),
    Stop(
        "tool.denied",
        lambda: Run(agent(tools={"search": tool(on_denied="stop")}, policy={"default": "deny"}), calls_reply("search")),
        {"subject": "c1.0", "target": "search", "rules": [], "tool": "search", "call": "c1.0"},
    ),
    Stop(
        "policy.denied",
        lambda: Run(package(policy={"rules": [rule("deny", on="input")]})),
        {"subject": "input", "target": "input", "rules": ["r1"]},
    ),
    Stop(
        "policy.interrupted",
        lambda: Run(agent(policy={"rules": [rule("interrupt", "search")]}), calls_reply("search")),
        {"subject": "c1.0", "target": "search", "rules": ["r1"]},
    ),
    *map(_answered_approval, ("denied", "timed_out", "unavailable", "cancelled")),
    Stop(
        "output.invalid",
        lambda: Run(typed(output={"repairs": 0}), text_reply("[]")),
        {"errors": ['the answer: the value is not of type "object"'], "repairs": 0, "turn": 1},
    ),
    Stop("delivery.failed", _sink_fails, {"sink": "out", "reason": "disk"}, "make room"),
    Stop("cancelled", _cancelled, {"by": "ann"}),
)

STOPS = (*PROVIDER, *BUDGETS, *GUARDS, *ENDS)

ACTIONS = {"move": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}}
FINAL_REPLY = (text_reply("Done."),)


def _result(code: str, fields: dict[str, Any]) -> ToolResultCode:
    fault = Fault(code, "no", fields)
    return ToolResultCode(
        code, lambda: Run(agent(), calls_reply("search"), *FINAL_REPLY, tools={"search": fault}), fields
    )


def aborted() -> Run:
    """A call that makes its sibling unnecessary."""
    loud = tool(aborts_siblings=True)
    return Run(agent(tools={"loud": loud, "search": tool()}), calls_reply("loud", "search"), *FINAL_REPLY)


TOOL_RESULT_CASES = (
    ToolResultCode("tool.unknown", lambda: Run(agent(), calls_reply("find"), *FINAL_REPLY), {"tool": "find"}),
    ToolResultCode(
        "tool.hidden",
        lambda: Run(agent(tools={"search": tool(visible="false")}), calls_reply("search"), *FINAL_REPLY),
        {"tool": "search"},
    ),
    ToolResultCode(
        "tool.invalid_arguments", lambda: Run(agent(), calls_reply(("search", "{")), *FINAL_REPLY), {"tool": "search"}
    ),
    ToolResultCode(
        "tool.invalid_arguments",
        lambda: Run(agent(), calls_reply(("search", '{"q": 1}')), *FINAL_REPLY),
        {"tool": "search", "field": "q"},
    ),
    ToolResultCode(
        "tool.missing_field",
        lambda: Run(
            agent(tools={"robot": tool(actions=ACTIONS)}), calls_reply(("robot", '{"action": "move"}')), *FINAL_REPLY
        ),
        {"tool": "robot", "action": "move", "field": "to"},
    ),
    ToolResultCode(
        "tool.invalid_call",
        lambda: Run(
            agent(limits={"parallel_tools": 1, "on_oversize_batch": "reject_all"}),
            calls_reply(*_searches("a", "b")),
            *FINAL_REPLY,
        ),
        {"tool": "search", "reason": "parallel_tools", "count": 2, "limit": 1},
    ),
    _result("tool.execution", {"tool": "search", "error": "OSError"}),
    _result("tool.timeout", {"tool": "search", "limit": 30_000}),
    ToolResultCode(
        "tool.denied",
        lambda: Run(agent(policy={"rules": [rule("deny", "search")]}), calls_reply("search"), *FINAL_REPLY),
        {"subject": "c1.0", "target": "search", "rules": ["r1"], "tool": "search", "reason": "policy.denied"},
    ),
)
