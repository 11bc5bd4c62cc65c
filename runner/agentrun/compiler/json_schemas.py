"""JSON Schemas in specs: of arguments, params and answers.

Rule 1  A schema can refer only to itself; nothing is fetched or read. References are expanded, so a package has none.
Rule 2  A schema that cannot be expanded (a cycle, more than 10,000 parts, 64 levels or 1 MiB) is refused.
Rule 3  `patterns.py` checks all patterns, including those that are keys, so none can hang.
Rule 4  Only keywords and types of draft 2020-12 are allowed, because a misspelt keyword would allow everything.
Rule 5  The values of `enum`, `const`, `default` and `examples` are data, not schemas; references cannot point there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from agentrun.compiler.patterns import schema_pattern_problems
from agentrun.spec.problems import DocumentError, Problem, did_you_mean, quote_text
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, node_at, place_at_path, plain_data
from agentrun.spec.v1.assertions import COMPARISON_TYPES
from agentrun.spec.v1.field_types import DIALECT_URL
from agentrun.spec.yaml_parser import MAX_PROBLEMS

MAX_SCHEMA_PARTS = 10_000
MAX_SCHEMA_DEPTH = 64
MAX_SCHEMA_BYTES = 1024 * 1024
MAX_SCHEMA_MISTAKES = 10

_SCHEMA_KEYS = {
    "additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
}  # fmt: skip
_SCHEMA_LIST_KEYS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SCHEMA_MAP_KEYS = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
_VALUE_KEYS = {
    "$schema", "$id", "$ref", "$comment", "$anchor", "type", "enum", "const", "default", "examples", "title",
    "description", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
    "required", "minProperties", "maxProperties", "dependentRequired", "readOnly", "writeOnly", "deprecated",
    "contentEncoding", "contentMediaType",
}  # fmt: skip
SCHEMA_KEYWORDS = _SCHEMA_KEYS | _SCHEMA_LIST_KEYS | _SCHEMA_MAP_KEYS | _VALUE_KEYS

_DROPPED_KEYS = {"$defs", "definitions", "$ref", "$schema", "$id", "$anchor", "$comment"}


def check_schema(node: Node) -> list[Problem]:
    if not isinstance(node, MappingNode):
        return [Problem(node.place, "spec.json_schema", "the JSON Schema must be a mapping")]
    problems = list(islice(_walk_schema(node, 1, is_root=True), MAX_PROBLEMS))
    if not problems:
        problems += _meta_schema_problems(node)
    if problems:
        return problems
    try:
        _ReferenceResolver(node).resolve()
    except DocumentError as refused:
        return refused.problems
    return []


def resolve_references(node: Node) -> dict[str, Any]:
    """Return a checked schema with its references expanded. Raises `DocumentError` if that is not possible."""
    assert isinstance(node, MappingNode)
    return _ReferenceResolver(node).resolve()


def first_error(schema: dict[str, Any], value: Any, name: str = "the value") -> str | None:
    """Return why a value does not match a schema, without showing the value. Raises if the schema is invalid."""
    validator = jsonschema_rs.Draft202012Validator(
        schema, offline=True, mask=name, pattern_options=jsonschema_rs.RegexOptions()
    )
    try:
        return next((error.message for error in validator.iter_errors(value)), None)
    except ValueError:  # a set, a date, NaN
        return f"{name} is not JSON"


def _meta_schema_problems(node: MappingNode) -> Iterator[Problem]:
    """Yield what the meta-schema refuses. It finds one mistake at a time, so each is removed to find the next."""
    schema = plain_data(node)
    for _ in range(MAX_SCHEMA_MISTAKES):
        try:
            jsonschema_rs.meta.validate(schema)
            return
        except jsonschema_rs.ValidationError as error:
            path, message = list(error.instance_path), error.message.splitlines()[0][:200]
        yield _meta_schema_problem(node, path, message)
        if not path:
            return
        inner = schema
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]


def _meta_schema_problem(node: MappingNode, path: list[str | int], message: str) -> Problem:
    names = [step for step in path if isinstance(step, str)]
    if names and names[-1] == "type":
        given = node_at(node, path)
        for item in given.items if isinstance(given, SequenceNode) else [given]:
            if isinstance(item, ScalarNode) and item.text not in COMPARISON_TYPES:
                hint = did_you_mean(item.text, COMPARISON_TYPES) or f"types: {', '.join(COMPARISON_TYPES)}"
                return Problem(item.place, "spec.json_schema", f"{quote_text(item.text)} is not a JSON type", hint)
    where = f"{quote_text(names[-1])}: " if names else ""
    return Problem(place_at_path(node, path), "spec.json_schema", f"not a valid JSON Schema: {where}{message}")


def _walk_schema(node: Node, depth: int, *, is_root: bool = False) -> Iterator[Problem]:
    if depth > MAX_SCHEMA_DEPTH:
        yield Problem(node.place, "spec.json_schema", f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        return
    if not isinstance(node, MappingNode):
        if not (isinstance(node, ScalarNode) and isinstance(node.value, bool)):
            word = node.text if isinstance(node, ScalarNode) and node.text in COMPARISON_TYPES else None
            hint = f"write {{type: {word}}}" if word else None
            yield Problem(node.place, "spec.json_schema", "a schema must be a mapping, true or false", hint)
        return
    for key, entry in node.entries.items():
        if key not in SCHEMA_KEYWORDS:
            near = None if isinstance(entry.node, MappingNode) else did_you_mean(key, SCHEMA_KEYWORDS)
            hint = near or "put the schema of a property under `properties:`"
            message = f"{quote_text(key)} is not a keyword of JSON Schema"
            yield Problem(entry.key_place, "spec.json_schema", message, hint)
        elif key == "pattern" and isinstance(entry.node, ScalarNode) and isinstance(entry.node.value, str):
            yield from schema_pattern_problems(entry.node.text, entry.node.place)
        elif key == "patternProperties" and isinstance(entry.node, MappingNode):
            for pattern, inner in entry.node.entries.items():
                yield from schema_pattern_problems(pattern, inner.key_place)
        elif key in ("$ref", "$schema", "$id"):
            yield from _identity_problems(key, entry.node, is_root)
    for child in _subschemas(node):
        yield from _walk_schema(child, depth + 1)


def _identity_problems(key: str, node: Node, is_root: bool) -> Iterator[Problem]:
    """Check `$ref`, `$schema` and `$id`, which could change the meaning of a schema."""
    text = str(node.value) if isinstance(node, ScalarNode) else ""
    if key == "$ref" and not text.startswith("#"):
        hint = "put the schema under $defs and refer to it as #/$defs/name"
        yield Problem(node.place, "spec.schema_ref", "a schema cannot refer to other files or hosts", hint)
    elif key == "$schema" and text.rstrip("#") != DIALECT_URL:
        hint = f"remove it, or write {DIALECT_URL}"
        yield Problem(node.place, "spec.json_schema", "only JSON Schema draft 2020-12 is supported", hint)
    elif key != "$ref" and not is_root:
        message = f"{key} inside a schema would change the meaning of the references below it"
        yield Problem(node.place, "spec.schema_ref", message, "remove it; only the top level of a schema may have it")


def _subschemas(node: MappingNode) -> Iterator[Node]:
    for key, entry in node.entries.items():
        if key in _SCHEMA_KEYS:
            yield entry.node
        elif key in _SCHEMA_LIST_KEYS and isinstance(entry.node, SequenceNode):
            yield from entry.node.items
        elif key in _SCHEMA_MAP_KEYS and isinstance(entry.node, MappingNode):
            for inner in entry.node.entries.values():
                yield inner.node


def map_subschemas(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    changed = dict(schema)
    for key, value in schema.items():
        if key in _SCHEMA_KEYS:
            changed[key] = change(value)
        elif key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            changed[key] = [change(each) for each in value]
        elif key in _SCHEMA_MAP_KEYS and isinstance(value, dict):
            changed[key] = {name: change(each) for name, each in value.items()}
    return changed


class _ReferenceResolver:
    """Expands the references of one schema, within a size limit."""

    def __init__(self, root: MappingNode) -> None:
        self.root = root
        self.parts = 0
        self.depth = 0
        self.size = 0
        self.schemas: set[int] | None = None
        """The ids of the nodes that are schemas, collected at the first reference."""

    def resolve(self) -> dict[str, Any]:
        schema = self._schema(self.root, (id(self.root),))
        if isinstance(schema, bool):  # a reference to `true` or `false`
            return {} if schema else {"not": {}}
        assert isinstance(schema, dict)
        return schema

    def _count(self, parts: int, size: int) -> None:
        self.parts += parts
        self.size += size
        if self.parts > MAX_SCHEMA_PARTS or self.depth > MAX_SCHEMA_DEPTH or self.size > MAX_SCHEMA_BYTES:
            limits = f"{MAX_SCHEMA_PARTS:,} parts, {MAX_SCHEMA_DEPTH} levels or 1 MiB"
            message = f"with its references expanded, the schema has more than {limits}"
            hint = "use fewer references, or smaller definitions"
            raise DocumentError([Problem(self.root.place, "spec.schema_ref", message, hint)])

    def _schema(self, node: Node, trail: tuple[int, ...]) -> Any:
        self.depth += 1
        self._count(1, 0)
        out = self._resolve_node(node, trail)
        self.depth -= 1
        return out

    def _resolve_node(self, node: Node, trail: tuple[int, ...]) -> Any:
        if not isinstance(node, MappingNode):
            return self._value(node)
        out = {
            key: self._keyword(key, entry.node, trail)
            for key, entry in node.entries.items()
            if key not in _DROPPED_KEYS
        }
        reference = node.get("$ref")
        if reference is None:
            return out
        target = self._target(reference, trail)
        written = self._schema(target, (*trail, id(target)))
        return {**out, "allOf": [written, *out.get("allOf", [])]} if out else written

    def _keyword(self, key: str, node: Node, trail: tuple[int, ...]) -> Any:
        self._count(0, len(key))
        if key in _SCHEMA_KEYS:
            return self._schema(node, trail)
        if key in _SCHEMA_LIST_KEYS and isinstance(node, SequenceNode):
            return [self._schema(item, trail) for item in node.items]
        if key in _SCHEMA_MAP_KEYS and isinstance(node, MappingNode):
            self._count(0, sum(map(len, node.entries)))
            return {name: self._schema(entry.node, trail) for name, entry in node.entries.items()}
        return self._value(node)

    def _value(self, node: Node) -> Any:
        match node:
            case ScalarNode():
                self._count(0, len(node.text) + 1)
                return plain_data(node)
            case SequenceNode():
                return [self._value(item) for item in node.items]
            case MappingNode():
                self._count(0, sum(map(len, node.entries)))
                return {key: self._value(entry.node) for key, entry in node.entries.items()}

    def _target(self, reference: Node, trail: tuple[int, ...]) -> Node:
        pointer = str(plain_data(reference))
        node: Node | None = self.root if pointer == "#" or pointer.startswith("#/") else None
        for step in pointer.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, MappingNode):
                node = node.get(step)
            elif isinstance(node, SequenceNode) and re.fullmatch("[0-9]{1,5}", step) and int(step) < len(node.items):
                node = node.items[int(step)]
            else:
                node = None
        self.schemas = _schema_node_ids(self.root) if self.schemas is None else self.schemas
        if node is None or id(node) not in self.schemas:
            message = f"the reference {quote_text(pointer)} does not point to a schema in this document"
            raise DocumentError([Problem(reference.place, "spec.schema_ref", message, self._nearest(pointer))])
        if id(node) in trail:
            message = f"the reference {quote_text(pointer)} is circular"
            hint = "a schema cannot contain itself; write out the levels that you need"
            raise DocumentError([Problem(reference.place, "spec.schema_ref", message, hint)])
        return node

    def _nearest(self, pointer: str) -> str | None:
        definitions = self.root.get("$defs")
        known = definitions.entries if isinstance(definitions, MappingNode) else {}
        return did_you_mean(pointer, [f"#/$defs/{name}" for name in known])


def _schema_node_ids(root: MappingNode) -> set[int]:
    found: set[int] = set()
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        found.add(id(node))
        if isinstance(node, MappingNode):
            pending += _subschemas(node)
    return found
