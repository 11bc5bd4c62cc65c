"""Check documents against their JSON Schemas and report every error at its place.

Rule 1  The shipped `*.schema.json` files are used, the same files that editors use. Nothing is fetched.
Rule 2  The validator only finds the places. The messages are made from the schema and the document, because each error
        object of the validator copies the value: a hundred wrong names in a mapping of 15,000 keys take 1.8 GB.
Rule 3  A large document is checked in chunks, until there are enough problems to report.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema_rs
from msgspec import Struct

from agentrun.secret import names_credential
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.tree import DocumentPath, MappingNode, Node, SequenceNode, node_at, plain_data
from agentrun.spec.v1 import agent, cases, field_types, policy, provider, tools
from agentrun.spec.v1.assertions import NEGATION_PREFIX
from agentrun.spec.yaml_parser import MAX_PROBLEMS

NodePath = tuple[str | int, ...]

CHUNK_ENTRIES = 100
MAX_CHUNKS = 10
"""A problem beyond these chunks is reported without its place."""
LARGE_DOCUMENT_VALUES = 2000
PATTERN_DESCRIPTIONS: dict[str, str] = {
    field_types.NAME_PATTERN: "a name of at most 64 lowercase letters, digits, - and _ that begins with a letter",
    field_types.PARAM_NAME_PATTERN: "a name of at most 64 lowercase letters, digits and _ that begins with a letter",
    field_types.DURATION_PATTERN: "a duration with its unit, such as 500ms, 30s, 2m or 1h",
    field_types.MAGNITUDE_PATTERN: "a whole number, or a number with k or M, such as 50k or 1.5M",
    field_types.BYTES_PATTERN: "a number of bytes, or a size with a unit, such as 50KiB or 2MiB",
    field_types.REFERENCE_PATTERN: "a Python function as module:function",
    field_types.SECRET_PATTERN: "an environment variable as ${NAME}",
    policy.UNTIL_PATTERN: "a time with its time zone (2026-12-24T08:00:00Z), a duration (30m, 2h, 7d) or `person`",
    policy.TARGET_PATTERN: "the name of a tool, server.tool, or a glob with *",
    cases.DATETIME_PATTERN: "a date and time in UTC, such as 2026-01-31T09:00:00Z",
    cases.FAULT_PLACE_PATTERN: (
        "a place such as model#2, tool:refund, approval:refund, hook:ID, sink:NAME, or c1.0/model"
    ),
    provider.SCRIPTED_TOOL_PATTERN: "the name of a tool",
    tools.ENV_NAME_PATTERN: "the name of an environment variable",
    tools.HEADER_NAME_PATTERN: "the name of an HTTP header",
    tools.HOST_PATTERN: "a host, such as shop.example, shop.example:8443 or *.shop.example",
    tools.MCP_TOOL_PATTERN: "the name of one of the server's tools, or a glob with *",
    agent.MODEL_NAME_PATTERN: "the name of a model",
    agent.ROUTE_PATTERN: "a route as provider/model",
    agent.TOOL_CHOICE_PATTERN: "auto, required, none, or the name of a tool",
    field_types.FIELD_PATH_PATTERN: "a dotted path, such as body.user.email, in which * matches any key",
}
COMMAND_KEYS = (quote_text("argv"), quote_text("command"))
_TYPE_DESCRIPTIONS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}
_BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}
_SIZE_UNITS = {"Length": "character", "Items": "item", "Properties": "key"}
_SPOKEN_DURATION = re.compile(r"([1-9]\d{0,6}) *(millisecond|second|sec|minute|min|hour|day|[smhd]|)s?", re.IGNORECASE)
_ENV_NAME = re.compile(r"\$?\{?([A-Z][A-Z0-9_]{2,60})\}?")


class SchemaProblem(Struct, frozen=True):
    """A problem, and the path of the node to remove so that it disappears."""

    path: NodePath
    problem: Problem


def schema_path(name: str) -> Path:
    """Return the path of a schema: next to the code if installed, at the top of the repository in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "schemas" / f"{name}.schema.json"
    return installed if installed.exists() else package.parent.parent / "schemas" / f"{name}.schema.json"


@lru_cache
def _schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_path(name).read_bytes())
    return loaded


@lru_cache
def _validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(_schema(name), offline=True)


def find_schema_problems(root: Node, name: str) -> list[SchemaProblem]:
    data = plain_data(root)
    if _validator(name).is_valid(data):
        return []
    found: dict[tuple[NodePath, str], SchemaProblem] = {}
    for each in _iter_problems(root, data, name):
        problem = each.problem
        what = problem.code if problem.code == "spec.wrong_type" else problem.message  # report a type only once
        found.setdefault((each.path, what), each)
        if len(found) == MAX_PROBLEMS:
            break
    if not found:
        message = "the document does not match its schema, and it is too large to find the place"
        return [SchemaProblem((), Problem(root.place, "spec.too_large", message, "split it into files"))]
    return list(found.values())


def _iter_problems(root: Node, data: Any, name: str) -> Iterator[SchemaProblem]:
    for first, piece in _chunks(data):
        for error in _validator(name).evaluate(piece).errors():
            steps = [_unescape_pointer(part) for part in error["schemaLocation"].split("/")[1:]]
            path = DocumentPath(root, _document_path(root, error["instanceLocation"], first))
            yield from _ErrorReader(_schema(name), path).problems(steps)


def _chunks(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield the document, or the chunks of a large document with the index of their first entry."""
    if _count_values(data, LARGE_DOCUMENT_VALUES) <= LARGE_DOCUMENT_VALUES:
        yield 0, data
        return
    for first in range(0, CHUNK_ENTRIES * MAX_CHUNKS, CHUNK_ENTRIES):
        if first < max(_longest_collection(data), 1):
            yield first, _slice_entries(data, first, first + CHUNK_ENTRIES)
    # If all entries are valid, there are too many of them.
    yield 0, _slice_entries(data, 0, CHUNK_ENTRIES * MAX_CHUNKS + 1)


def _count_values(data: Any, most: int) -> int:
    count = 1
    for value in child_values(data):
        count += _count_values(value, most - count)
        if count > most:
            break
    return count


def _longest_collection(data: Any) -> int:
    inner = child_values(data)
    return max([len(inner), *map(_longest_collection, inner)]) if inner else 0


def child_values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _slice_entries(data: Any, first: int, last: int) -> Any:
    """Return the data with only the entries from `first` to `last` of every large collection."""
    if not isinstance(data, (dict, list)):
        return data
    start, stop = (first, last) if len(data) > CHUNK_ENTRIES else (0, CHUNK_ENTRIES)
    if isinstance(data, list):
        return [_slice_entries(value, first, last) for value in data[start:stop]]
    return {key: _slice_entries(value, first, last) for key, value in islice(data.items(), start, stop)}


def _unescape_pointer(text: str) -> str:
    return text.replace("~1", "/").replace("~0", "~")


def _document_path(root: Node, pointer: str, first: int) -> NodePath:
    """Convert a JSON pointer into a chunk to a path in the whole document."""
    path: list[str | int] = []
    node: Node | None = root
    for text in pointer.split("/")[1:]:
        step: str | int = _unescape_pointer(text)
        if isinstance(node, SequenceNode):
            step = int(step) + (first if len(node.items) > CHUNK_ENTRIES else 0)
        path.append(step)
        node = node_at(node, [step]) if node is not None else None
    return tuple(path)


def _describe_path(path: NodePath) -> str:
    if not path:
        return "the document"
    keys = [step for step in path if isinstance(step, str)]
    name = quote_text(keys[-1]) if keys else "the list"
    last = path[-1]
    return f"item {last + 1} of {name}" if isinstance(last, int) else name


class _ErrorReader:
    def __init__(self, schema: dict[str, Any], path: DocumentPath) -> None:
        self.schema = schema
        self.path = path
        node = path.node
        self.value = plain_data(node) if node is not None and not isinstance(node, MappingNode) else {}
        self.keys = list(node.entries) if isinstance(node, MappingNode) else []
        names = [step for step in path.steps if isinstance(step, str)]
        self.key = _describe_path(path.steps)
        self.is_secret = bool(names) and names_credential(names[-1])

    def problems(self, steps: list[str]) -> Iterator[SchemaProblem]:
        """`steps`: the path of the failed keyword in the schema."""
        if "propertyNames" in steps:
            names = self._subschema(steps[: steps.index("propertyNames") + 1])
            yield from self._invalid_names(names)
            return
        part, keyword = self._subschema(steps[:-1]), steps[-1]
        if keyword in ("additionalProperties", "required"):  # the validator may report one under the other
            unknown = list(islice(self._unknown_keys(part), MAX_PROBLEMS))
            yield from unknown
            yield from self._missing_keys(part, {each.problem.hint for each in unknown})
        else:
            around = self._subschema(steps[: steps.index("allOf")]) if "allOf" in steps else part
            code, message, hint = self._describe_error(keyword, part, around.get("type"))
            yield SchemaProblem(self.path.steps, self.path.problem(code, message, hint))

    def _subschema(self, steps: list[str]) -> dict[str, Any]:
        part: Any = self.schema
        for step in steps:
            part = part[int(step)] if isinstance(part, list) else part[step]
        return part if isinstance(part, dict) else {}

    def _describe_error(self, keyword: str, part: dict[str, Any], types: Any) -> tuple[str, str, str | None]:
        """`types`: all allowed types of the value, if `part` is only about one of them."""
        rejected = RejectedValue(self.key, self.value, self.is_secret)
        limit: Any = part.get(keyword)
        match keyword:
            case "type":
                wanted = limit if isinstance(limit, list) else [limit]
                return "spec.wrong_type", *rejected.wrong_type(wanted, part.get("pattern", ""))
            case "enum" | "const":
                others = [kind for kind in types if kind != "string"] if isinstance(types, list) else []
                return "spec.wrong_value", *rejected.wrong_value(limit if keyword == "enum" else [limit], others)
            case "pattern":
                return "spec.wrong_text", *rejected.wrong_text(limit)
            case _:
                return "spec.out_of_range", rejected.wrong_size(keyword, limit), None

    def _unknown_keys(self, part: dict[str, Any]) -> Iterator[SchemaProblem]:
        known = part.get("properties", {})
        if part.get("additionalProperties") is not False:
            return
        steps = ".".join(map(str, self.path.steps))
        where = f"in {quote_text(steps)}" if steps else "at the top of the document"
        for key in self.keys:
            if key not in known:
                path = self.path.at(key)
                hint = did_you_mean(key, known) or (f"known keys: {', '.join(sorted(known))}" if known else None)
                problem = path.key_problem("spec.unknown_key", f"unknown key {quote_text(key)} {where}", hint)
                yield SchemaProblem(path.steps, problem)

    def _missing_keys(self, part: dict[str, Any], hints: set[str | None]) -> Iterator[SchemaProblem]:
        """Skip keys that are misspelt, because a hint about an unknown key already suggests them."""
        for key in part.get("required", ()):
            if key not in self.keys and f"did you mean {quote_text(key)}?" not in hints:
                text = part.get("properties", {}).get(key, {}).get("description")
                message = f"{self.key} needs the key {quote_text(key)}"
                yield SchemaProblem(self.path.steps, self.path.key_problem("spec.missing_key", message, text))

    def _invalid_names(self, names: dict[str, Any]) -> Iterator[SchemaProblem]:
        validator = jsonschema_rs.Draft202012Validator(names, offline=True)
        for key in self.keys:
            if not validator.is_valid(key):
                path = self.path.at(key)
                words = RejectedValue("the key", key).wrong_text(names.get("pattern", ""))
                yield SchemaProblem(path.steps, path.key_problem("spec.name", *words))


def describe_json_type(value: Any) -> str:
    words = {bool: "true or false", str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return words.get(type(value), "nothing")


class RejectedValue(Struct, frozen=True):
    key: str
    value: Any
    is_secret: bool = False

    @property
    def _actual_value(self) -> str:
        return "" if self.is_secret else f"; it is {shorten_value(self.value)}"

    def wrong_type(self, types: list[str], pattern: str = "") -> tuple[str, str | None]:
        value = self.value
        wanted = " or ".join(_TYPE_DESCRIPTIONS[name] for name in types)
        if types == ["string"] and pattern in PATTERN_DESCRIPTIONS:
            wanted = PATTERN_DESCRIPTIONS[pattern]
        simple = isinstance(value, (str, int, float)) and not isinstance(value, bool) and not self.is_secret
        shown = f" ({shorten_value(value)})" if simple else ""
        message = f"{self.key} must be {wanted}, not {describe_json_type(value)}{shown}"
        if value is None:
            return message, "write a value, or remove the key"
        if self.is_secret:
            return message, None
        if pattern == field_types.DURATION_PATTERN and type(value) is int:
            return message, f"for example {value}s"
        if "string" in types and isinstance(value, (bool, int, float)):
            return message, f'put it in quotes: "{json.dumps(value)}"'
        if {"integer", "number"} & set(types) and isinstance(value, str) and value.isdecimal():
            return message, f"write it without quotes: {value}"
        if "object" in types and isinstance(value, str) and re.fullmatch(agent.ROUTE_PATTERN, value):
            provider, _, name = value.partition("/")
            return message, f"write {{provider: {provider}, name: {name}}}"
        if "array" in types and isinstance(value, str):
            return message, f"write it as a list: [{', '.join(map(shorten_value, self._split_list(value)))}]"
        return message, None

    def _split_list(self, line: str) -> list[str]:
        """Return the items of a list that was written as one text: for a command, its words."""
        try:
            words = shlex.split(line) if self.key in COMMAND_KEYS else []
        except ValueError:  # an unclosed quote
            words = []
        return words or [line]

    def wrong_value(self, options: list[Any], types: list[str]) -> tuple[str, str | None]:
        plain = [option for option in options if f"{NEGATION_PREFIX}{option}" in options] or options
        names = ", ".join(str(option).lower() if isinstance(option, bool) else str(option) for option in plain)
        either = "" if plain is options else f", each optionally with {NEGATION_PREFIX}"
        near = did_you_mean(self.value, map(str, options)) if isinstance(self.value, str) else None
        one = names if len(options) == 1 else f"one of {names}{either}"
        *others, last = [*(_TYPE_DESCRIPTIONS[name] for name in types), one]
        wanted = f"{', '.join(others)} or {last}" if others else last
        return f"{self.key} must be {wanted}{self._actual_value}", near

    def wrong_text(self, pattern: str) -> tuple[str, str | None]:
        wanted = PATTERN_DESCRIPTIONS.get(pattern, f"text that matches {pattern}")
        return f"{self.key} must be {wanted}{self._actual_value}", self._suggest_spelling(pattern)

    def wrong_size(self, keyword: str, limit: Any) -> str:
        if keyword in _BOUNDS:
            number = str(limit) if isinstance(limit, int) else f"{limit:.9f}".rstrip("0").rstrip(".")
            return f"{self.key} must be {_BOUNDS[keyword]} {number}{self._actual_value}"
        unit = next((unit for ending, unit in _SIZE_UNITS.items() if keyword.endswith(ending)), None)
        if unit is None:
            return f"{self.key} does not match its schema ({keyword})"
        size = f"{limit:,} {unit}{'' if limit == 1 else 's'}"
        return f"{self.key} must have at {'least' if keyword.startswith('min') else 'most'} {size}"

    def _suggest_spelling(self, pattern: str) -> str | None:
        value = self.value
        if pattern == field_types.SECRET_PATTERN:
            named = _ENV_NAME.fullmatch(value)
            return f"write ${{{named[1]}}}" if named else "put the value into an environment variable: ${NAME}"
        if pattern == field_types.REFERENCE_PATTERN:
            fixed = ":".join(value.rsplit(".", 1))
            return f"write {fixed}" if re.fullmatch(pattern, fixed) else None
        if pattern in (field_types.NAME_PATTERN, field_types.PARAM_NAME_PATTERN):
            fixed = value.strip().lower().replace(" ", "_")
            fixed = fixed if pattern == field_types.NAME_PATTERN else fixed.replace("-", "_")
            fits = fixed != value and re.fullmatch(pattern, fixed)
            return f"for example {quote_text(fixed)}" if fits else None
        if pattern == field_types.DURATION_PATTERN and (spoken := _SPOKEN_DURATION.fullmatch(value)):
            unit = "ms" if spoken[2].startswith("mil") else spoken[2][:1].lower() or "s"
            return f"for example {spoken[1]}{unit}"
        if pattern == policy.UNTIL_PATTERN:
            return _suggest_until(value)
        digits = re.sub("[_, ]", "", value)
        is_number = pattern in (field_types.MAGNITUDE_PATTERN, field_types.BYTES_PATTERN) and digits.isdecimal()
        return f"for example {digits}" if is_number else None


def _suggest_until(value: str) -> str | None:
    spaced = re.sub(r"^(\d{4}-\d\d-\d\d) +(?=\d)", r"\1T", value.strip())
    for fixed in (spaced, f"{spaced}Z", f"{spaced}T00:00:00Z", value.strip().lower()):
        if re.fullmatch(policy.UNTIL_PATTERN, fixed):
            return f"for example {fixed}"
    return None


def shorten_value(value: Any) -> str:
    return quote_text(value) if isinstance(value, str) else quote_text(json.dumps(value, ensure_ascii=False))[1:-1]
