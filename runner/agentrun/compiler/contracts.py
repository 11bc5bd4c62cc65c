"""JSON Schemas that people write: arguments, params, answers.

Rule 1  A schema refers only to itself; nothing is fetched or read. References are written out, so a package has none.
Rule 2  What cannot be written out (a cycle, more than 10,000 parts, 64 levels or a mebibyte) is refused.
Rule 3  Patterns, also those that are keys, are what `patterns.py` takes, so none can hang.
Rule 4  Only keywords and types of draft 2020-12; a misspelt keyword would silently allow everything.
Rule 5  Only what stands where a schema stands is a schema: the values of `enum`, `const`, `default` and `examples` are
        data, and no reference leads there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from agentrun.compiler.patterns import schema_pattern_problems
from agentrun.spec.document import MAX_PROBLEMS
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, Node, Scalar, Sequence, at, place_of, plain

MOST_PARTS = 10_000
DEEPEST = 64
LARGEST = 1024 * 1024
DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_MISTAKES = 10

_ONE = {
    "additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
}  # fmt: skip
_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_MAPS = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
_VALUES = {
    "$schema", "$id", "$ref", "$comment", "$anchor", "type", "enum", "const", "default", "examples", "title",
    "description", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
    "required", "minProperties", "maxProperties", "dependentRequired", "readOnly", "writeOnly", "deprecated",
    "contentEncoding", "contentMediaType",
}  # fmt: skip
KEYWORDS = _ONE | _LISTS | _MAPS | _VALUES
TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

_NOT_WRITTEN_OUT = {"$defs", "definitions", "$ref", "$schema", "$id", "$anchor", "$comment"}


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def check_schema(node: Node) -> list[Problem]:
    """Everything wrong with a schema, at its place."""
    if not isinstance(node, Mapping):
        return [Problem(node.place, "spec.json_schema", "a JSON Schema must be a mapping here")]
    problems = list(islice(_walk(node, 1, is_root=True), MAX_PROBLEMS))
    if not problems:
        problems += _mistakes(node)
    if problems:
        return problems
    try:
        _Writer(node).written_out()
    except _Refused as refused:
        return [refused.problem]
    return []


def resolved(node: Node) -> dict[str, Any]:
    """A checked schema with its references written out."""
    assert isinstance(node, Mapping)
    return _Writer(node).written_out()


def _mistakes(node: Mapping) -> Iterator[Problem]:
    """What the schema of schemas refuses. It tells one mistake at a time, so each is taken out to see the next."""
    schema = plain(node)
    for _ in range(MOST_MISTAKES):
        try:
            jsonschema_rs.meta.validate(schema)
            return
        except jsonschema_rs.ValidationError as error:
            path, message = list(error.instance_path), error.message.splitlines()[0][:200]
        yield _mistake(node, path, message)
        if not path or not _taken_out(schema, path):
            return


def _mistake(node: Mapping, path: list[str | int], message: str) -> Problem:
    names = [step for step in path if isinstance(step, str)]
    if names and names[-1] == "type":
        given = at(node, path)
        for item in given.items if isinstance(given, Sequence) else [given]:
            if isinstance(item, Scalar) and item.text not in TYPES:
                hint = did_you_mean(item.text, TYPES) or f"types: {', '.join(TYPES)}"
                return Problem(item.place, "spec.json_schema", f"{quoted(item.text)} is not a type", hint)
    where = f"{quoted(names[-1])}: " if names else ""
    return Problem(place_of(node, path), "spec.json_schema", f"not a JSON Schema: {where}{message}")


def _taken_out(schema: Any, path: list[str | int]) -> bool:
    for step in path[:-1]:
        schema = schema[step]
    del schema[path[-1]]
    return True


def _walk(node: Node, depth: int, *, is_root: bool = False) -> Iterator[Problem]:
    """Problems of a schema and those inside it."""
    if depth > DEEPEST:
        yield Problem(node.place, "spec.json_schema", f"the schema is nested deeper than {DEEPEST} levels")
        return
    if not isinstance(node, Mapping):
        if not (isinstance(node, Scalar) and isinstance(node.value, bool)):
            word = node.text if isinstance(node, Scalar) and node.text in TYPES else None
            hint = f"write {{type: {word}}}" if word else None
            yield Problem(node.place, "spec.json_schema", "a schema must be a mapping, true or false", hint)
        return
    for key, entry in node.entries.items():
        if key not in KEYWORDS:
            near = None if isinstance(entry.node, Mapping) else did_you_mean(key, KEYWORDS)
            hint = near or "a property's schema belongs under `properties:`"
            yield Problem(entry.key_place, "spec.json_schema", f"{quoted(key)} is not a keyword of JSON Schema", hint)
        elif key == "pattern" and isinstance(entry.node, Scalar) and isinstance(entry.node.value, str):
            yield from schema_pattern_problems(entry.node.text, entry.node.place)
        elif key == "patternProperties" and isinstance(entry.node, Mapping):
            for pattern, inner in entry.node.entries.items():
                yield from schema_pattern_problems(pattern, inner.key_place)
        elif key in ("$ref", "$schema", "$id"):
            yield from _identity(key, entry.node, is_root)
    for child in _children(node):
        yield from _walk(child, depth + 1)


def _identity(key: str, node: Node, is_root: bool) -> Iterator[Problem]:
    """`$ref`, `$schema` and `$id`: what they may say so that a schema is what it looks like."""
    text = str(node.value) if isinstance(node, Scalar) else ""
    if key == "$ref" and not text.startswith("#"):
        hint = "put the schema under $defs and refer to it as #/$defs/name"
        yield Problem(node.place, "spec.schema_ref", "a schema may refer only to itself, not to files or hosts", hint)
    elif key == "$schema" and text.rstrip("#") != DIALECT:
        hint = f"remove it, or write {DIALECT}"
        yield Problem(node.place, "spec.json_schema", "schemas are JSON Schema draft 2020-12", hint)
    elif key != "$ref" and not is_root:
        message = f"{key} inside a schema would make the references below it mean something else"
        yield Problem(node.place, "spec.schema_ref", message, "remove it; only a whole schema may have one")


def _children(node: Mapping) -> Iterator[Node]:
    for key, entry in node.entries.items():
        if key in _ONE:
            yield entry.node
        elif key in _LISTS and isinstance(entry.node, Sequence):
            yield from entry.node.items
        elif key in _MAPS and isinstance(entry.node, Mapping):
            for inner in entry.node.entries.values():
                yield inner.node


def with_inner(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A schema as plain data, with the schemas that stand in it changed."""
    changed = dict(schema)
    for key, value in schema.items():
        if key in _ONE:
            changed[key] = change(value)
        elif key in _LISTS and isinstance(value, list):
            changed[key] = [change(each) for each in value]
        elif key in _MAPS and isinstance(value, dict):
            changed[key] = {name: change(each) for name, each in value.items()}
    return changed


class _Writer:
    """Writes out the references of one schema, with a budget for what comes of it."""

    def __init__(self, root: Mapping) -> None:
        self.root = root
        self.parts = 0
        self.depth = 0
        self.size = 0
        self.schemas: set[int] | None = None
        """The nodes that are schemas; collected when the first reference is met."""

    def written_out(self) -> dict[str, Any]:
        schema = self._schema(self.root, (id(self.root),))
        if isinstance(schema, bool):  # a reference to `true` or `false`
            return {} if schema else {"not": {}}
        assert isinstance(schema, dict)
        return schema

    def _count(self, parts: int, size: int) -> None:
        self.parts += parts
        self.size += size
        if self.parts > MOST_PARTS or self.depth > DEEPEST or self.size > LARGEST:
            message = (
                f"the schema has more than {MOST_PARTS:,} parts, {DEEPEST} levels or 1 MiB"
                " when its references are written out"
            )
            raise _Refused(
                Problem(self.root.place, "spec.schema_ref", message, "refer less often, or to smaller parts")
            )

    def _schema(self, node: Node, trail: tuple[int, ...]) -> Any:
        self.depth += 1
        self._count(1, 0)
        out = self._written(node, trail)
        self.depth -= 1
        return out

    def _written(self, node: Node, trail: tuple[int, ...]) -> Any:
        if not isinstance(node, Mapping):
            return self._value(node)
        out = {
            key: self._keyword(key, entry.node, trail)
            for key, entry in node.entries.items()
            if key not in _NOT_WRITTEN_OUT
        }
        reference = node.get("$ref")
        if reference is None:
            return out
        target = self._target(reference, trail)
        written = self._schema(target, (*trail, id(target)))
        return {**out, "allOf": [written, *out.get("allOf", [])]} if out else written

    def _keyword(self, key: str, node: Node, trail: tuple[int, ...]) -> Any:
        self._count(0, len(key))
        if key in _ONE:
            return self._schema(node, trail)
        if key in _LISTS and isinstance(node, Sequence):
            return [self._schema(item, trail) for item in node.items]
        if key in _MAPS and isinstance(node, Mapping):
            self._count(0, sum(map(len, node.entries)))
            return {name: self._schema(entry.node, trail) for name, entry in node.entries.items()}
        return self._value(node)

    def _value(self, node: Node) -> Any:
        match node:
            case Scalar():
                self._count(0, len(node.text) + 1)
                return plain(node)
            case Sequence():
                return [self._value(item) for item in node.items]
            case Mapping():
                self._count(0, sum(map(len, node.entries)))
                return {key: self._value(entry.node) for key, entry in node.entries.items()}

    def _target(self, reference: Node, trail: tuple[int, ...]) -> Node:
        """The schema that a reference names."""
        pointer = str(plain(reference))
        node: Node | None = self.root if pointer == "#" or pointer.startswith("#/") else None
        for step in pointer.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping):
                node = node.get(step)
            elif isinstance(node, Sequence) and re.fullmatch("[0-9]{1,5}", step) and int(step) < len(node.items):
                node = node.items[int(step)]
            else:
                node = None
        self.schemas = _schemas(self.root) if self.schemas is None else self.schemas
        if node is None or id(node) not in self.schemas:
            message = f"the reference {quoted(pointer)} names no schema in this schema"
            raise _Refused(Problem(reference.place, "spec.schema_ref", message, self._nearest(pointer)))
        if id(node) in trail:
            message = f"the reference {quoted(pointer)} leads back to itself"
            hint = "write the levels out that are needed: a schema cannot contain itself"
            raise _Refused(Problem(reference.place, "spec.schema_ref", message, hint))
        return node

    def _nearest(self, pointer: str) -> str | None:
        definitions = self.root.get("$defs")
        known = definitions.entries if isinstance(definitions, Mapping) else {}
        return did_you_mean(pointer, [f"#/$defs/{name}" for name in known])


def _schemas(root: Mapping) -> set[int]:
    found: set[int] = set()
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        found.add(id(node))
        if isinstance(node, Mapping):
            pending += _children(node)
    return found
