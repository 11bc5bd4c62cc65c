"""JSON Schemas that people write: arguments, params, answers.

Rule 1  A schema refers only to itself; nothing is fetched or read. References are written out, so a package has none.
Rule 2  What cannot be written out (a cycle, more than 10,000 parts, more than 64 levels) is refused.
Rule 3  Patterns are RE2: what RE2 cannot compile is refused, so no pattern can hang.
Rule 4  Only keywords and types of draft 2020-12; a misspelt keyword would silently allow everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import re2

from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, Node, Scalar, Sequence, place_of, plain

MOST_PARTS = 10_000
DEEPEST = 64

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


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def check_schema(node: Node) -> list[Problem]:
    """Everything wrong with a schema, at its place."""
    if not isinstance(node, Mapping):
        return [Problem(node.place, "spec.json_schema", "a JSON Schema must be a mapping here")]
    problems = list(_walk(node, 0))
    if problems:
        return problems
    try:
        written_out = _Writer(node).written_out()
    except _Refused as refused:
        return [refused.problem]
    return list(_meta_problems(node, written_out))


def resolved(node: Node) -> dict[str, Any]:
    """A checked schema with its references written out."""
    assert isinstance(node, Mapping)
    return _Writer(node).written_out()


def _meta_problems(node: Mapping, schema: dict[str, Any]) -> Iterator[Problem]:
    written = plain(node)
    for candidate in (written,) if written == schema else (written, schema):
        try:
            jsonschema_rs.Draft202012Validator(
                {key: value for key, value in candidate.items() if key != "$schema"},
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except jsonschema_rs.ValidationError as error:
            place = place_of(node, error.instance_path)
            yield Problem(place, "spec.json_schema", f"not a JSON Schema: {error.message.splitlines()[0][:200]}")
            return


def _walk(node: Node, depth: int) -> Iterator[Problem]:
    """Problems of a schema and those inside it."""
    if depth > DEEPEST:
        yield Problem(node.place, "spec.json_schema", f"the schema is nested deeper than {DEEPEST} levels")
        return
    if not isinstance(node, Mapping):
        if not (isinstance(node, Scalar) and isinstance(node.value, bool)):
            yield Problem(node.place, "spec.json_schema", "a schema must be a mapping, true or false")
        return
    for key, entry in node.entries.items():
        if key not in KEYWORDS:
            hint = did_you_mean(key, KEYWORDS) or "a property's schema belongs under `properties:`"
            yield Problem(entry.key_place, "spec.json_schema", f"{quoted(key)} is not a keyword of JSON Schema", hint)
        elif key == "pattern":
            yield from _pattern(entry.node)
        elif key == "$ref":
            yield from _reference(entry.node)
    for child in _children(node):
        yield from _walk(child, depth + 1)


def _children(node: Mapping) -> Iterator[Node]:
    for key, entry in node.entries.items():
        if key in _ONE:
            yield entry.node
        elif key in _LISTS and isinstance(entry.node, Sequence):
            yield from entry.node.items
        elif key in _MAPS and isinstance(entry.node, Mapping):
            for inner in entry.node.entries.values():
                yield inner.node


def _pattern(node: Node) -> Iterator[Problem]:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        yield from pattern_problems(node)


def pattern_problems(node: Scalar) -> Iterator[Problem]:
    """What RE2 refuses about a pattern."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(node.text, options)  # type: ignore[no-untyped-call]  # re2 has no types
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        hint = "patterns are RE2: no look-around, no back-references"
        yield Problem(node.place, "spec.pattern", f"the pattern cannot be used: {text}", hint)


def _reference(node: Node) -> Iterator[Problem]:
    if isinstance(node, Scalar) and isinstance(node.value, str) and not node.value.startswith("#"):
        hint = "put the schema under $defs and refer to it as #/$defs/name"
        yield Problem(node.place, "spec.schema_ref", "a schema may refer only to itself, not to files or hosts", hint)


class _Writer:
    """Writes out the references of one schema, with a budget for what comes of it."""

    def __init__(self, root: Mapping) -> None:
        self.root = root
        self.parts = 0
        self.depth = 0

    def written_out(self) -> dict[str, Any]:
        schema = self._schema(self.root, ())
        assert isinstance(schema, dict)
        schema.pop("$schema", None)
        return schema

    def _schema(self, node: Node, trail: tuple[str, ...]) -> Any:
        self.parts += 1
        self.depth += 1
        if self.parts > MOST_PARTS or self.depth > DEEPEST:
            most = f"{MOST_PARTS} parts or {DEEPEST} levels"
            message = f"the schema has more than {most} when its references are written out"
            raise _Refused(Problem(self.root.place, "spec.schema_ref", message))
        out = self._written(node, trail)
        self.depth -= 1
        return out

    def _written(self, node: Node, trail: tuple[str, ...]) -> Any:
        if not isinstance(node, Mapping):
            return plain(node)
        out = {
            key: self._keyword(key, entry.node, trail)
            for key, entry in node.entries.items()
            if key not in ("$defs", "definitions", "$ref")
        }
        reference = node.get("$ref")
        if reference is None:
            return out
        target = self._schema(*self._target(reference, trail))
        return {**out, "allOf": [target, *out.get("allOf", [])]} if out else target

    def _keyword(self, key: str, node: Node, trail: tuple[str, ...]) -> Any:
        if key in _ONE:
            return self._schema(node, trail)
        if key in _LISTS and isinstance(node, Sequence):
            return [self._schema(item, trail) for item in node.items]
        if key in _MAPS and isinstance(node, Mapping):
            return {name: self._schema(entry.node, trail) for name, entry in node.entries.items()}
        return plain(node)

    def _target(self, reference: Node, trail: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
        """The node a reference names, and the trail of references that led to it."""
        pointer = str(plain(reference))
        if pointer in trail or len(trail) >= DEEPEST:
            message = f"the reference {quoted(pointer)} leads back to itself"
            raise _Refused(Problem(reference.place, "spec.schema_ref", message))
        node: Node | None = self.root
        for step in pointer.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping):
                node = node.get(step)
            elif isinstance(node, Sequence) and step.isdecimal() and int(step) < len(node.items):
                node = node.items[int(step)]
            else:
                node = None
        if node is None or (pointer != "#" and not pointer.startswith("#/")):
            message = f"the reference {quoted(pointer)} names nothing in this schema"
            raise _Refused(Problem(reference.place, "spec.schema_ref", message))
        return node, (*trail, pointer)
