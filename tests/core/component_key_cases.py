"""Keys of tools, sub-agents, hooks and sinks that the core acts on, for every kind of tool and sink."""

from contextlib import suppress
from typing import Any

from agentrun.core.effects import RunChild
from agentrun.core.facts import (
    RULES_VERSION,
    ArgumentsCompleted,
    CallCancelled,
    ChildStarted,
    DeliveryStarted,
    HookAsked,
    HookFailure,
    RunResumed,
    ToolFinished,
    ToolStarted,
    WorkLost,
)
from agentrun.core.fault import Fault
from agentrun.core.package import Package

from ..packages import BASE
from .key_case import DONE_REPLY, Changes, Key, Look, Play, answer, code, refusal_codes, run_to_end
from .script import TOOL, Run, RunWaits, agent_tool, calls_reply, hook, pins, tool

OBJECT = {"type": "object", "properties": {"message": {"type": "string"}}}
COMMON = ("effect", "parallel", "timeout", "visible", "observation", "terminal", "aborts_siblings", "on_denied")
PLAIN_TOOL = {"description": "A tool.", **{key: TOOL[key] for key in COMMON}}
AUTH = {"secret": "${KEY}", "header": "Authorization", "scheme": "Bearer"}

TOOLS: dict[str, Changes] = {
    "python": tool(args=OBJECT),
    "http": {
        **PLAIN_TOOL,
        "kind": "http",
        "args": OBJECT,
        "actions": {},
        "url": "https://shop.test",
        "method": "GET",
        "query": {},
        "headers": {},
        "body": None,
        "auth": AUTH,
        "result": None,
        "hosts": ["shop.test"],
        "private_network": False,
        "max_bytes": 1000,
    },
    "shell": {
        **PLAIN_TOOL,
        "kind": "shell",
        "args": OBJECT,
        "actions": {},
        "argv": ["ls"],
        "env": {},
        "cwd": ".",
        "stdin": None,
        "exits": [0],
        "dash_args": False,
        "grace": 1000,
    },
    "mcp": {
        **PLAIN_TOOL,
        "kind": "mcp",
        "command": ["serve"],
        "url": None,
        "env": {},
        "headers": {},
        "pinned": pins("find", description=""),
        "effects": {},
        "private_network": False,
        "requests": [],
        "start_timeout": 1000,
    },
    "agent": agent_tool(args=OBJECT),
}
"""A tool of every kind."""

HTTP_SINK = {"url": "https://sink.test", "headers": {}, "auth": AUTH, "private_network": False}
SINKS: dict[str, Changes] = {
    "file": {"kind": "file", "path": "out.txt"},
    "jsonl": {"kind": "jsonl", "path": "out.jsonl"},
    "http": {"kind": "http", **HTTP_SINK},
    "stdout": {"kind": "stdout"},
}
"""A sink of every kind, without what all have in common."""


def with_tool(kind: str, default: str = "allow", **changes: Any) -> Changes:
    """A package with one tool `t`."""
    agents = {"agents": {"t": BASE}} if kind == "agent" else {}
    return {"tools": {"t": TOOLS[kind] | changes}, "policy": {"default": default}, **agents}


def call_of(kind: str, message: str = "a") -> tuple[str, str]:
    """A call of that tool."""
    return "t.find" if kind == "mcp" else "t", f'{{"message": "{message}"}}'


def _of(kind: str, key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any], **same: Any) -> Key:
    first, second = (with_tool(kind, **{**same, key: value}) for value in (one, two))
    return Key(first, second, play, look, seen)


def _count_starts(run: Run) -> int:
    """How often calls were started."""
    return len(run.of(ToolStarted)) + len(run.of(ChildStarted))


def crashed(kind: str) -> Play:
    """The owner goes away inside a call, and another one goes on."""

    def play(agent: Package) -> Run:
        run = Run(agent, calls_reply(call_of(kind)), DONE_REPLY)
        run.until(ChildStarted if kind == "agent" else ToolStarted)
        run.add(RunResumed("sha256:0", RULES_VERSION))
        run.add(WorkLost("c1.0"))
        with suppress(RunWaits):  # somebody has to decide
            run.finish()
        return run

    return play


def _first_result(kind: str) -> Play:
    """Two calls, until the first of them is over."""

    def play(agent: Package) -> Run:
        run = Run(agent, calls_reply(call_of(kind, "a"), call_of(kind, "b")), DONE_REPLY)
        run.until(ToolFinished)
        return run

    return play


def _offered(run: Run) -> list[str]:
    return [each.description for each in run.requests[0].request.tools]


def common(kind: str) -> dict[str, Key]:
    """The keys of every tool."""
    one, again = call_of(kind), call_of(kind, "b")
    once, twice = run_to_end(calls_reply(one), DONE_REPLY), run_to_end(calls_reply(one, again), DONE_REPLY)
    hidden: Look = lambda run: run.requests[0].hidden  # a short look with a name
    cancelled: Look = lambda run: len(run.of(CallCancelled))  # a short look with a name
    found = {
        "description": _of(kind, "description", "A.", "B.", once, _offered, (["A."], ["B."])),
        "effect": _of(kind, "effect", "idempotent", "at_most_once", crashed(kind), _count_starts, (2, 1)),
        "parallel": _of(kind, "parallel", True, False, _first_result(kind), _count_starts, (2, 1)),
        "visible": _of(kind, "visible", "true", "false", once, hidden, ((), ("t",))),
        "observation": _of(
            kind,
            "observation",
            True,
            False,
            run_to_end(*[calls_reply(one)] * 3, DONE_REPLY),
            code,
            (None, "guard.repeated_call"),
        ),
        "terminal": _of(kind, "terminal", False, True, once, answer, ("Done.", "done")),
        "aborts_siblings": _of(kind, "aborts_siblings", False, True, twice, cancelled, (0, 1)),
        "on_denied": _of(kind, "on_denied", "tell", "stop", once, code, (None, "tool.denied"), default="deny"),
    }
    if kind == "agent":  # it goes on where its own journal ends
        del found["effect"]
    return {f"tools.{kind}.{key}": case for key, case in found.items()}


NEEDY = {**OBJECT, "required": ["what"]}


def _arguments(kind: str) -> dict[str, Key]:
    once = run_to_end(calls_reply(call_of(kind)), DONE_REPLY)
    args = _of(kind, "args", OBJECT, NEEDY, once, refusal_codes, ([], ["tool.missing_field"]))
    actions = _of(kind, "actions", {}, {"find": OBJECT}, once, refusal_codes, ([], ["tool.missing_field"]))
    found = {"args": args} if kind == "agent" else {"args": args, "actions": actions}
    if kind == "python":
        empty = run_to_end(calls_reply(("t", "{}")), DONE_REPLY)
        completed: Look = lambda run: [
            fact.arguments for fact in run.of(ArgumentsCompleted)
        ]  # a short look with a name
        found["defaults"] = _of(
            kind,
            "defaults",
            {"message": ""},
            {"message": "x"},
            empty,
            completed,
            ([{"message": ""}], [{"message": "x"}]),
        )
    return {f"tools.{kind}.{key}": case for key, case in found.items()}


def _pinned() -> dict[str, Key]:
    """What is pinned of the tools of a server."""
    once = run_to_end(calls_reply(call_of("mcp")), DONE_REPLY)

    def changed(key: str, one: Any, two: Any, look: Look, seen: tuple[Any, Any]) -> Key:
        return _of("mcp", "pinned", pins("find", **{key: one}), pins("find", **{key: two}), once, look, seen)

    return {
        "tools.mcp.pinned": _of("mcp", "pinned", pins("find"), pins("fi"), once, refusal_codes, ([], ["tool.unknown"])),
        "tools.mcp.pinned.description": changed("description", "A.", "B.", _said_last, ("A.", "B.")),
        "tools.mcp.pinned.args": changed("args", OBJECT, NEEDY, refusal_codes, ([], ["tool.missing_field"])),
    }


def _said_last(run: Run) -> str:
    return _offered(run)[0].rpartition("\n")[2]


def _child(run: Run) -> RunChild:
    (child,) = (effect for effect in run.effects if isinstance(effect, RunChild))
    return child


def _agents() -> Key:
    other = BASE | {"name": "other"}
    one, two = with_tool("agent"), with_tool("agent") | {"agents": {"t": other}}
    return Key(
        one,
        two,
        run_to_end(calls_reply(call_of("agent")), DONE_REPLY),
        lambda run: _child(run).package.name,
        ("triage", "other"),
    )


COMPONENT_KEYS = {
    "tools": Key(
        {"policy": {"default": "allow"}},
        with_tool("python"),
        run_to_end(calls_reply(call_of("python")), DONE_REPLY),
        refusal_codes,
        (["tool.unknown"], []),
    ),
    "agents": _agents(),
    **_pinned(),
    "tools.mcp.effects": _of(
        "mcp", "effects", {"find": "read"}, {}, crashed("mcp"), _count_starts, (2, 1), effect="at_most_once"
    ),
    "tools.agent.params": _of(
        "agent",
        "params",
        {},
        {"team": "sales"},
        run_to_end(calls_reply(call_of("agent")), DONE_REPLY),
        lambda run: _child(run).params,
        ({}, {"team": "sales"}),
    ),
    "tools.agent.timeout": _of(
        "agent",
        "timeout",
        1000,
        2000,
        run_to_end(calls_reply(call_of("agent")), DONE_REPLY),
        lambda run: _child(run).parent.share.time,
        (1000, 2000),
    ),
}

HOOK_FAILURE = HookFailure(Fault("policy.denied", "it threw"))


def _hook(key: str, one: Any, two: Any, look: Look, seen: tuple[Any, Any]) -> Key:
    first, second = ({"hooks": [hook("on_input") | {key: value}]} for value in (one, two))
    return Key(first, second, run_to_end(DONE_REPLY, hooks={"watch": HOOK_FAILURE}), look, seen)


def _asked_hook(run: Run) -> HookAsked:
    found = run.of(HookAsked)[0]
    assert isinstance(found, HookAsked)
    return found


HOOKS = {
    "hooks": Key(
        {"hooks": []}, {"hooks": [hook("on_input")]}, run_to_end(DONE_REPLY), lambda run: len(run.of(HookAsked)), (0, 1)
    ),
    "hooks.id": _hook("id", "watch", "guard", lambda run: _asked_hook(run).hook, ("watch", "guard")),
    "hooks.at": _hook("at", "on_input", "on_output", lambda run: _asked_hook(run).point, ("on_input", "on_output")),
    "hooks.order": Key(
        {"hooks": [hook("on_input"), hook("on_input", id="other", order=1)]},
        {"hooks": [hook("on_input", order=2), hook("on_input", id="other", order=1)]},
        run_to_end(DONE_REPLY),
        lambda run: [asked.hook for asked in run.of(HookAsked)],
        (["watch", "other"], ["other", "watch"]),
    ),
    "hooks.on_failure": _hook("on_failure", "continue", "deny", code, (None, "policy.denied")),
}


def with_sink(kind: str, **changes: Any) -> Changes:
    """A package with one sink `out`."""
    return {"sinks": {"out": {"delivery": "required", "timeout": 5000, **SINKS[kind], **changes}}}


def _delivery(kind: str) -> Key:
    """What a failed delivery means."""
    broken = run_to_end(DONE_REPLY, sinks={"out": Fault("delivery.failed", "no", {"sink": "out"})})
    first, second = (with_sink(kind, delivery=each) for each in ("optional", "required"))
    return Key(first, second, broken, code, (None, "delivery.failed"))


PARTS_KEYS: dict[str, Key] = {
    **COMPONENT_KEYS,
    **{key: case for kind in TOOLS for key, case in common(kind).items()},
    **{key: case for kind in ("python", "http", "shell", "agent") for key, case in _arguments(kind).items()},
    **HOOKS,
    "sinks": Key({}, with_sink("file"), run_to_end(DONE_REPLY), lambda run: len(run.of(DeliveryStarted)), (0, 1)),
    **{f"sinks.{kind}.delivery": _delivery(kind) for kind in SINKS},
}
