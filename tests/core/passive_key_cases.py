"""Package keys that the core does not act on: passed on in an effect, or not read at all."""

from collections.abc import Callable
from typing import Any, NamedTuple

from agentrun.core.effects import AskHook, AskModel, Deliver, RunTool
from agentrun.core.facts import Continue

from ..packages import BASE, ROUTE
from .component_key_cases import AUTH, SINKS, TOOLS, call_of, with_sink, with_tool
from .key_case import DONE, Changes, Look, Play, whole
from .script import Run, called, hook, pins


class Handed(NamedTuple):
    """A key that stands in an effect as it is; the part that performs the effect acts on it."""

    part: str
    one: Changes
    two: Changes
    play: Play
    look: Look
    """The place in the effect."""


class Unseen(NamedTuple):
    """A key that the core never looks at."""

    part: str
    one: Changes
    two: Changes


def _look(kind: type, *path: str) -> Look:
    """What stands at a place of the first effect of a kind."""

    def look(run: Run) -> Any:
        found: Any = next(effect for effect in run.effects if isinstance(effect, kind))
        for name in path:
            found = getattr(found, name)
        return found

    return look


SETTINGS: dict[str, tuple[Any, Any]] = {
    "temperature": (0.0, 1.0),
    "top_p": (None, 0.5),
    "seed": (None, 7),
    "stop": ((), ("END",)),
    "reasoning": (None, "high"),
    "tool_choice": ("auto", "required"),
    "stream": (False, True),
}
ROUTES: dict[str, tuple[Any, Any]] = {
    "base_url": (None, "https://model.test"),
    "api_key": (None, "${KEY}"),
    "headers": ({}, {"X-Team": "a"}),
    "options": ({}, {"user": "a"}),
}
REQUEST = {"stream_gap": "gap", "call_time": "time"}
CLIPPED = {"output_lines": "max_lines", "output_bytes": "max_bytes"}


def _settings() -> dict[str, Handed]:
    ask = whole(DONE)
    settings = {
        f"model.{key}": Handed(
            "provider",
            {"model": {key: one}},
            {"model": {key: two}},
            ask,
            _look(AskModel, "request", "settings", key),
        )
        for key, (one, two) in SETTINGS.items()
    }
    routes = {
        f"model.routes.{key}": Handed(
            "provider",
            {"model": {"routes": [ROUTE | {key: one}]}},
            {"model": {"routes": [ROUTE | {key: two}]}},
            ask,
            _look(AskModel, "request", "route", key),
        )
        for key, (one, two) in ROUTES.items()
    }
    return {**settings, **routes}


def _limits() -> dict[str, Handed]:
    call = {
        f"limits.{key}": Handed(
            "engine: models",
            {"limits": {key: 1}},
            {"limits": {key: 2}},
            whole(DONE),
            _look(AskModel, name),
        )
        for key, name in REQUEST.items()
    }
    clipped = {
        f"limits.{key}": Handed(
            "engine: toolbox",
            {**with_tool("python"), "limits": {key: 1}},
            {**with_tool("python"), "limits": {key: 2}},
            whole(called(call_of("python")), DONE),
            _look(RunTool, name),
        )
        for key, name in CLIPPED.items()
    }
    return {**call, **clipped}


TOOL_PAIRS: dict[str, dict[str, tuple[Any, Any]]] = {
    "python": {
        "module": ("shop", "store"),
        "function": ("search", "find"),
        "source": ("sha256:0", "sha256:1"),
        "isolation": ("thread", "process"),
        "timeout": (1000, 2000),
    },
    "http": {
        "url": ("https://a.test", "https://b.test"),
        "method": ("GET", "HEAD"),
        "query": ({}, {"q": "a"}),
        "headers": ({}, {"X-Team": "a"}),
        "body": (None, {"q": "a"}),
        "auth": (None, AUTH),
        "auth.secret": ("${KEY}", "${OTHER}"),
        "auth.header": ("Authorization", "X-Key"),
        "auth.scheme": ("Bearer", ""),
        "result": (None, "items"),
        "hosts": (("a.test",), ("b.test",)),
        "private_network": (False, True),
        "max_bytes": (1000, 2000),
        "timeout": (1000, 2000),
    },
    "shell": {
        "argv": (("ls",), ("cat",)),
        "env": ({}, {"A": "1"}),
        "cwd": (".", "src"),
        "stdin": (None, "hi"),
        "exits": ((0,), (0, 1)),
        "dash_args": (False, True),
        "grace": (1000, 2000),
        "timeout": (1000, 2000),
    },
    "mcp": {
        "command": (("serve",), ("other",)),
        "url": (None, "https://mcp.test"),
        "env": ({}, {"A": "1"}),
        "headers": ({}, {"X-Team": "a"}),
        "private_network": (False, True),
        "requests": ((), ("roots",)),
        "start_timeout": (1000, 2000),
        "timeout": (1000, 2000),
    },
}
SINK_PAIRS: dict[str, dict[str, tuple[Any, Any]]] = {
    "file": {"path": ("a.txt", "b.txt"), "timeout": (1000, 2000)},
    "jsonl": {"path": ("a.jsonl", "b.jsonl"), "timeout": (1000, 2000)},
    "http": {
        **{key: TOOL_PAIRS["http"][key] for key in ("url", "headers", "private_network", "timeout")},
        **{key: pair for key, pair in TOOL_PAIRS["http"].items() if key.startswith("auth")},
    },
    "stdout": {"timeout": (1000, 2000)},
}
HOOK_PAIRS: dict[str, tuple[Any, Any]] = {
    "module": ("shop", "store"),
    "function": ("watch", "look"),
    "source": ("sha256:0", "sha256:1"),
    "timeout": (1000, 2000),
}


def _changed(base: Changes, key: str, value: Any) -> Changes:
    """What sets a key, which may be one of a credential."""
    outer, _, inner = key.partition(".")
    return {outer: {**base[outer], inner: value}} if inner else {outer: value}


def _handed(
    prefix: str, part: str, pairs: dict[str, tuple[Any, Any]], make: Callable[[str, Any], Changes], play: Play, at: Look
) -> dict[str, Handed]:
    def place(key: str) -> Look:
        def look(run: Run) -> Any:
            found = at(run)
            for name in key.split("."):
                found = getattr(found, name)
            return found

        return look

    return {
        f"{prefix}.{key}": Handed(part, make(key, one), make(key, two), play, place(key))
        for key, (one, two) in pairs.items()
    }


def _tools(kind: str) -> dict[str, Handed]:
    return _handed(
        f"tools.{kind}",
        f"executor: {kind}",
        TOOL_PAIRS[kind],
        lambda key, value: with_tool(kind, **_changed(TOOLS[kind], key, value)),
        whole(called(call_of(kind)), DONE),
        _look(RunTool, "tool"),
    )


def _sinks(kind: str) -> dict[str, Handed]:
    return _handed(
        f"sinks.{kind}",
        f"sink: {kind}",
        SINK_PAIRS[kind],
        lambda key, value: with_sink(kind, **_changed(SINKS[kind], key, value)),
        whole(DONE),
        _look(Deliver, "sink"),
    )


def _hooks() -> dict[str, Handed]:
    return _handed(
        "hooks",
        "engine: hooks (the compiler has sorted them by `order`)",
        HOOK_PAIRS,
        lambda key, value: {"hooks": [hook("on_input") | {key: value}]},
        whole(DONE, hooks={"watch": Continue()}),
        _look(AskHook, "hook"),
    )


HANDED: dict[str, Handed] = {
    **_settings(),
    **_limits(),
    **{key: case for kind in TOOL_PAIRS for key, case in _tools(kind).items()},
    "tools.mcp.pinned.digest": Handed(
        "executor: mcp",
        with_tool("mcp"),
        with_tool("mcp", pinned=pins("find", description="", digest="sha256:1")),
        whole(called(call_of("mcp")), DONE),
        lambda run: _look(RunTool, "tool")(run).pinned["find"].digest,
    ),
    **{key: case for kind in SINK_PAIRS for key, case in _sinks(kind).items()},
    **_hooks(),
}


def _unseen(part: str, section: str, key: str, one: Any, two: Any) -> Unseen:
    return Unseen(part, {section: {key: one}}, {section: {key: two}})


RENDERED = "engine: admission renders it into `run_started`"
CASSETTE = "cassette: recording and replay"
REDACTED = {"name": "key", "path": "a.b", "pattern": None}


def _redaction(**changes: Any) -> Unseen:
    return _unseen(CASSETTE, "replay", "redact", [REDACTED], [REDACTED | changes])


ELSEWHERE: dict[str, Unseen] = {
    "name": Unseen("engine: start, and `run_started`", {"name": "a"}, {"name": "b"}),
    "params": Unseen(RENDERED, {"params": {}}, {"params": BASE["params"]}),
    "instructions": Unseen(RENDERED, {"instructions": ["A."]}, {"instructions": ["B."]}),
    "input": Unseen(RENDERED, {"input": None}, {"input": "Hi."}),
    "guards.nudge": _unseen(RENDERED, "guards", "nudge", "Go on.", "Go."),
    "context.prompt": _unseen(RENDERED, "context", "prompt", "Sum up.", "Sum."),
    "policy.approval_timeout": _unseen("engine: approvals", "policy", "approval_timeout", 1, 2),
    "admission.max_chars": _unseen("engine: admission", "admission", "max_chars", None, 1),
    "admission.dedupe": _unseen("engine: admission", "admission", "dedupe", False, True),
    "session.history": _unseen("engine: sessions", "session", "history", "full", "none"),
    "session.max_runs": _unseen("engine: sessions", "session", "max_runs", None, 1),
    "replay.redact": _unseen(CASSETTE, "replay", "redact", [], [REDACTED]),
    "replay.redact.name": _redaction(name="token"),
    "replay.redact.path": _redaction(path="c"),
    "replay.redact.pattern": _redaction(pattern="[0-9]+"),
    "replay.volatile": _unseen(CASSETTE, "replay", "volatile", [], ["date"]),
}
