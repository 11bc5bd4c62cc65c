"""Schema errors in words a writer can act on."""

from __future__ import annotations

import json
from typing import Any

from agentrun.spec.problems import did_you_mean, quoted
from agentrun.spec.v1 import agent, policy, tools, values

PATTERNS: dict[str, str] = {
    values.NAME: "a name: small letters, digits, - and _, beginning with a letter, at most 64",
    values.PARAM_NAME: "a name: small letters, digits and _, beginning with a letter, at most 64",
    values.DURATION: "a time with its unit, such as 500ms, 30s, 2m or 1h",
    values.MAGNITUDE: "a whole number, or one with a magnitude such as 50k or 1.5M",
    values.BYTES: "a number of bytes, or one with a unit such as 50KiB or 2MiB",
    values.REFERENCE: "a Python function as module:function",
    values.SECRET: "the name of an environment variable as ${NAME}",
    policy.TARGET: "the name of a tool, server.tool, or a glob with *",
    tools.ENV_NAME: "the name of an environment variable",
    tools.HEADER_NAME: "the name of an HTTP header",
    tools.HOST: "a host such as shop.example, shop.example:8443 or *.shop.example",
    tools.MCP_NAME: "the name of a tool of the server, or a glob with *",
    agent.MODEL_NAME: "a model's name",
    agent.ROUTE: "a route as provider/model",
    agent.TOOL_CHOICE: "auto, required, none, or a tool's name",
    agent.FIELD_PATH: "a dotted path such as body.user.email; * stands for any key",
}
"""What a pattern asks for, in words."""

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}


def kind_of(value: Any) -> str:
    """The JSON type of a value, in words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "a mapping"


def wrong_type(key: str, value: Any, types: list[str]) -> tuple[str, str | None]:
    wanted = " or ".join(_TYPES[name] for name in types)
    shown = f" ({shorten(value)})" if isinstance(value, (str, int, float)) else ""
    message = f"{key} must be {wanted}, not {kind_of(value)}{shown}"
    if value is None:
        return message, "give it a value, or leave the key out"
    if "string" in types and isinstance(value, (bool, int, float)):
        return message, f'put it in quotes: "{json.dumps(value)}"'
    if "integer" in types and isinstance(value, str) and value.isdecimal():
        return message, f"write it without quotes: {value}"
    return message, None


def wrong_value(key: str, value: Any, options: list[Any]) -> tuple[str, str | None]:
    names = ", ".join(str(option) for option in options)
    near = did_you_mean(value, [str(option) for option in options]) if isinstance(value, str) else None
    only = f"{key} must be {names}" if len(options) == 1 else f"{key} must be one of {names}"
    return f"{only}; it is {shorten(value)}", near


def wrong_text(key: str, value: Any, pattern: str) -> tuple[str, str | None]:
    return (
        f"{key} must be {PATTERNS.get(pattern, f'text that matches {pattern}')}; it is {shorten(value)}",
        _fix(value, pattern),
    )


def _fix(value: Any, pattern: str) -> str | None:
    """The spelling that was probably meant."""
    if not isinstance(value, str):
        return None
    if pattern in (values.NAME, values.PARAM_NAME):
        mended = value.strip().lower().replace(" ", "_").replace("-", "_" if pattern == values.PARAM_NAME else "-")
        return (
            f"for example {quoted(mended)}" if mended != value and mended.isascii() and mended[:1].isalpha() else None
        )
    if pattern == values.DURATION and value.isdecimal():
        return f"for example {value}s"
    return None


def shorten(value: Any) -> str:
    """A value inside a message."""
    return quoted(value) if isinstance(value, str) else quoted(json.dumps(value, ensure_ascii=False))[1:-1]
