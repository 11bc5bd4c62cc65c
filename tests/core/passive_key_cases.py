"""Package keys that the core does not act on: passed on in an effect, or not read at all."""

from collections.abc import Callable
from typing import Any, NamedTuple

from agentrun.core.effects import AskHook, AskModel, Deliver, RunTool
from agentrun.core.facts import Continue

from ..packages import BASE, ROUTE
from .component_key_cases import AUTH, SINKS, TOOLS, call_of, with_sink, with_tool
from .key_case import DONE_REPLY, Changes, Look, Play, run_to_end
from .script import Run, calls_reply, hook, pins


class PassedKey(NamedTuple):
    """A key that stands in an effect as it is; the part that performs the effect acts on it."""

    part: str
    one: Changes
    two: Changes
    play: Play
    look: Look
    """The place in the effect."""


class UnusedKey(NamedTuple):
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
OUTPUT_LIMITS = {"output_lines": "max_lines", "output_bytes": "max_bytes"}


def _settings() -> dict[str, PassedKey]:
    ask = run_to_end(DONE_REPLY)
    settings = {
        f"model.{key}": PassedKey(
            "provider",
            {"model": {key: one}},
            {"model": {key: two}},
            ask,
            _look(AskModel, "request", "settings", key),
        )
        for key, (one, two) in SETTINGS.items()
    }
    routes = {
        f"model.routes.{key}": PassedKey(
            "provider",
            {"model": {"routes": [ROUTE | {key: one}]}},
            {"model": {"routes": [ROUTE | {key: two}]}},
            ask,
            _look(AskModel, "request", "route", key),
        )
        for key, (one, two) in ROUTES.items()
    }
    return {**settings, **routes}


def _limits() -> dict[str, PassedKey]:
    call = {
        f"limits.{key}": PassedKey(
            "engine: models",
            {"limits": {key: 1}},
            {"limits": {key: 2}},
            run_to_end(DONE_REPLY),
            _look(AskModel, name),
        )
        for key, name in REQUEST.items()
    }
    clipped = {
        f"limits.{key}": PassedKey(
            "engine: toolbox",
            {**with_tool("python"), "limits": {key: 1}},
            {**with_tool("python"), "limits": {key: 2}},
            run_to_end(calls_reply(call_of("python")), DONE_REPLY),
            _look(RunTool, name),
        )
        for key, name in OUTPUT_LIMITS.items()
    }
    return {**call, **clipped}


TOOL_PAIRS: dict[str, dict[str, tuple[Any, Any]]] = {
    "python": {
        "module": ("shop", "store"),
        "function": ("search", "find"),
        "source": ("sha256:0", "sha256:1"),
        "isolation": ("thread", "process"),
        "env": ({}, {"A": "b"}),
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


def _key_change(base: Changes, key: str, value: Any) -> Changes:
    """What sets a key, which may be one of a credential."""
    outer, _, inner = key.partition(".")
    return {outer: {**base[outer], inner: value}} if inner else {outer: value}


def _passed_keys(
    prefix: str, part: str, pairs: dict[str, tuple[Any, Any]], make: Callable[[str, Any], Changes], play: Play, at: Look
) -> dict[str, PassedKey]:
    def place(key: str) -> Look:
        def look(run: Run) -> Any:
            found = at(run)
            for name in key.split("."):
                found = getattr(found, name)
            return found

        return look

    return {
        f"{prefix}.{key}": PassedKey(part, make(key, one), make(key, two), play, place(key))
        for key, (one, two) in pairs.items()
    }


def _tools(kind: str) -> dict[str, PassedKey]:
    return _passed_keys(
        f"tools.{kind}",
        f"executor: {kind}",
        TOOL_PAIRS[kind],
        lambda key, value: with_tool(kind, **_key_change(TOOLS[kind], key, value)),
        run_to_end(calls_reply(call_of(kind)), DONE_REPLY),
        _look(RunTool, "tool"),
    )


def _sinks(kind: str) -> dict[str, PassedKey]:
    return _passed_keys(
        f"sinks.{kind}",
        f"sink: {kind}",
        SINK_PAIRS[kind],
        lambda key, value: with_sink(kind, **_key_change(SINKS[kind], key, value)),
        run_to_end(DONE_REPLY),
        _look(Deliver, "sink"),
    )


def _hooks() -> dict[str, PassedKey]:
    return _passed_keys(
        "hooks",
        "engine: hooks (the compiler has sorted them by `order`)",
        HOOK_PAIRS,
        lambda key, value: {"hooks": [hook("on_input") | {key: value}]},
        run_to_end(DONE_REPLY, hooks={"watch": Continue()}),
        _look(AskHook, "hook"),
    )


PASSED_KEYS: dict[str, PassedKey] = {
    **_settings(),
    **_limits(),
    **{key: case for kind in TOOL_PAIRS for key, case in _tools(kind).items()},
    "tools.mcp.pinned.digest": PassedKey(
        "executor: mcp",
        with_tool("mcp"),
        with_tool("mcp", pinned=pins("find", description="", digest="sha256:1")),
        run_to_end(calls_reply(call_of("mcp")), DONE_REPLY),
        lambda run: _look(RunTool, "tool")(run).pinned["find"].digest,
    ),
    **{key: case for kind in SINK_PAIRS for key, case in _sinks(kind).items()},
    **_hooks(),
}


def _unused_key(part: str, section: str, key: str, one: Any, two: Any) -> UnusedKey:
    return UnusedKey(part, {section: {key: one}}, {section: {key: two}})


RENDERED_BY_ADMISSION = "engine: admission renders it into `run_started`"
CASSETTE = "cassette: recording and replay"
REDACTION = {"name": "key", "path": "a.b", "pattern": None}


def _redaction(**changes: Any) -> UnusedKey:
    return _unused_key(CASSETTE, "replay", "redact", [REDACTION], [REDACTION | changes])


UNUSED_KEYS: dict[str, UnusedKey] = {
    "name": UnusedKey("engine: start, and `run_started`", {"name": "a"}, {"name": "b"}),
    "params": UnusedKey(RENDERED_BY_ADMISSION, {"params": {}}, {"params": BASE["params"]}),
    "instructions": UnusedKey(RENDERED_BY_ADMISSION, {"instructions": ["A."]}, {"instructions": ["B."]}),
    "input": UnusedKey(RENDERED_BY_ADMISSION, {"input": None}, {"input": "Hi."}),
    "guards.nudge": _unused_key(RENDERED_BY_ADMISSION, "guards", "nudge", "Go on.", "Go."),
    "context.prompt": _unused_key(RENDERED_BY_ADMISSION, "context", "prompt", "Sum up.", "Sum."),
    "policy.approval_timeout": _unused_key("engine: approvals", "policy", "approval_timeout", 1, 2),
    "admission.max_chars": _unused_key("engine: admission", "admission", "max_chars", None, 1),
    "admission.dedupe": _unused_key("engine: admission", "admission", "dedupe", False, True),
    "session.history": _unused_key("engine: sessions", "session", "history", "full", "none"),
    "session.max_runs": _unused_key("engine: sessions", "session", "max_runs", None, 1),
    "replay.redact": _unused_key(CASSETTE, "replay", "redact", [], [REDACTION]),
    "replay.redact.name": _redaction(name="token"),
    "replay.redact.path": _redaction(path="c"),
    "replay.redact.pattern": _redaction(pattern="[0-9]+"),
    "replay.volatile": _unused_key(CASSETTE, "replay", "volatile", [], ["date"]),
}
