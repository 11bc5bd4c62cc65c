"""Schema errors in words a writer can act on.

Rule 1  A message says what is wanted and what is there; the hint is what to write instead.
Rule 2  A value that may be a credential is never in either.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from msgspec import Struct

from agentrun.secret import names_credential
from agentrun.spec.problems import did_you_mean, quoted
from agentrun.spec.v1 import agent, cases, policy, provider, tools, values

PATTERNS: dict[str, str] = {
    values.NAME: "a name: small letters, digits, - and _, beginning with a letter, at most 64",
    values.PARAM_NAME: "a name: small letters, digits and _, beginning with a letter, at most 64",
    values.DURATION: "a time with its unit, such as 500ms, 30s, 2m or 1h",
    values.MAGNITUDE: "a whole number, or one with a magnitude such as 50k or 1.5M",
    values.BYTES: "a number of bytes, or one with a unit such as 50KiB or 2MiB",
    values.REFERENCE: "a Python function as module:function",
    values.SECRET: "the name of an environment variable as ${NAME}",
    policy.TARGET: "the name of a tool, server.tool, or a glob with *",
    cases.MOMENT: "a date and time in UTC such as 2026-01-31T09:00:00Z",
    cases.PLACE: "a place such as model#2, tool:refund, approval:refund, hook:ID, sink:NAME, or c1.0/model",
    provider.TOOL_NAME: "the name of a tool",
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

COMMANDS = (quoted("argv"), quoted("command"))
"""Keys whose value is a command and its arguments."""

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


def is_secret(key: str) -> bool:
    """Whether the value under a key may be a credential."""
    return names_credential(key)


_BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}
_UNITS = {"Length": "character", "Items": "item", "Properties": "key"}
_spoken = re.compile(r"([1-9]\d{0,6}) *(millisecond|second|sec|minute|min|hour|day|[smhd]|)s?", re.IGNORECASE)
_env_name = re.compile(r"\$?\{?([A-Z][A-Z0-9_]{2,60})\}?")


def _written(option: Any) -> str:
    """An option as it is written in YAML."""
    return str(option).lower() if isinstance(option, bool) else str(option)


class Told(Struct, frozen=True):
    """A value that its schema refuses, and the key it stands under."""

    key: str
    value: Any
    is_secret: bool = False

    @property
    def _now(self) -> str:
        return "" if self.is_secret else f"; it is {shorten(self.value)}"

    def wrong_type(self, types: list[str], pattern: str = "") -> tuple[str, str | None]:
        value = self.value
        wanted = " or ".join(_TYPES[name] for name in types)
        if types == ["string"] and pattern in PATTERNS:
            wanted = PATTERNS[pattern]
        simple = isinstance(value, (str, int, float)) and not isinstance(value, bool) and not self.is_secret
        shown = f" ({shorten(value)})" if simple else ""
        message = f"{self.key} must be {wanted}, not {kind_of(value)}{shown}"
        if value is None:
            return message, "give it a value, or leave the key out"
        if self.is_secret:
            return message, None
        if pattern == values.DURATION and type(value) is int:
            return message, f"for example {value}s"
        if "string" in types and isinstance(value, (bool, int, float)):
            return message, f'put it in quotes: "{json.dumps(value)}"'
        if {"integer", "number"} & set(types) and isinstance(value, str) and value.isdecimal():
            return message, f"write it without quotes: {value}"
        if "object" in types and isinstance(value, str) and re.fullmatch(agent.ROUTE, value):
            provider, _, name = value.partition("/")
            return message, f"write {{provider: {provider}, name: {name}}}"
        if "array" in types and isinstance(value, str):
            return message, f"write it as a list: [{', '.join(map(shorten, self._pieces(value)))}]"
        return message, None

    def _pieces(self, line: str) -> list[str]:
        """The elements of a list that was written as one text: of a command its words."""
        try:
            words = shlex.split(line) if self.key in COMMANDS else []
        except ValueError:  # a quote that does not end
            words = []
        return words or [line]

    def wrong_value(self, options: list[Any], types: list[str]) -> tuple[str, str | None]:
        """`types`: what the value may be besides one of the options."""
        plain = [option for option in options if f"not-{option}" in options] or options
        names = ", ".join(map(_written, plain))
        either = "" if plain is options else ", each also with not- before it"
        near = did_you_mean(self.value, map(str, options)) if isinstance(self.value, str) else None
        one = names if len(options) == 1 else f"one of {names}{either}"
        *others, last = [*(_TYPES[name] for name in types), one]
        wanted = f"{', '.join(others)} or {last}" if others else last
        return f"{self.key} must be {wanted}{self._now}", near

    def wrong_text(self, pattern: str) -> tuple[str, str | None]:
        wanted = PATTERNS.get(pattern, f"text that matches {pattern}")
        return f"{self.key} must be {wanted}{self._now}", self._fix(pattern)

    def wrong_size(self, keyword: str, limit: Any) -> str:
        if keyword in _BOUNDS:
            return f"{self.key} must be {_BOUNDS[keyword]} {_number(limit)}{self._now}"
        unit = next((unit for ending, unit in _UNITS.items() if keyword.endswith(ending)), None)
        if unit is None:
            return f"{self.key} does not fit its schema ({keyword})"
        size = f"{limit:,} {unit}{'' if limit == 1 else 's'}"
        return f"{self.key} must have at {'least' if keyword.startswith('min') else 'most'} {size}"

    def _fix(self, pattern: str) -> str | None:
        """The spelling that was probably meant."""
        value = self.value
        if pattern == values.SECRET:
            named = _env_name.fullmatch(value)
            return f"write ${{{named[1]}}}" if named else "put the value into the environment and name it here"
        if pattern in (values.NAME, values.PARAM_NAME):
            mended = value.strip().lower().replace(" ", "_").replace("-", "_" if pattern == values.PARAM_NAME else "-")
            fits = mended != value and re.fullmatch(pattern, mended)
            return f"for example {quoted(mended)}" if fits else None
        if pattern == values.DURATION and (spoken := _spoken.fullmatch(value)):
            unit = "ms" if spoken[2].startswith("mil") else spoken[2][:1].lower() or "s"
            return f"for example {spoken[1]}{unit}"
        if pattern in (values.MAGNITUDE, values.BYTES) and (digits := re.sub("[_, ]", "", value)).isdecimal():
            return f"for example {digits}"
        return None


def _number(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:.9f}".rstrip("0").rstrip(".")


def shorten(value: Any) -> str:
    """A value inside a message."""
    return quoted(value) if isinstance(value, str) else quoted(json.dumps(value, ensure_ascii=False))[1:-1]
