"""The shipped JSON Schemas as data, with every key of a document and the keywords for its value.

A key is named by the way to it: `model.price.input`, `policy.rules.[].allow`, `tools.*.<http>.url`. `*` stands for any
name, `[]` for any item, `<kind>` for the kind of tool or sink, or the type of an assertion. A list of shared parts
counts as the part itself.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

Schema = dict[str, Any]
Steps = tuple[str | int, ...]

ROOT = Path(__file__).parents[1]
_IN_PLACE = ("$ref", "allOf", "if", "then", "else")


class Node(NamedTuple):
    """A value of a document that its schema says something about."""

    at: Steps
    """The way to it: names and indexes."""
    key: str
    says: Schema
    """The keywords that concern it."""
    value: Any


@cache
def shipped(name: str) -> Schema:
    """A schema as it is checked in."""
    loaded: Schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    return loaded


@cache
def validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(shipped(name), offline=True)


def flat(name: str, schema: Schema, value: Any) -> Schema:
    """The keywords that concern this value, with references and conditions followed."""
    found = {key: keyword for key, keyword in schema.items() if key not in _IN_PLACE}
    parts = [*schema.get("allOf", []), *_referred(name, schema)]
    if "if" in schema:
        branch = "then" if jsonschema_rs.is_valid(schema["if"], value) else "else"
        parts += [schema[branch]] if branch in schema else []
    for part in parts:
        for key, keyword in flat(name, part, value).items():
            if key == "properties":
                found[key] = {**found.get(key, {}), **keyword}
            elif key not in ("description", "type") or key not in found:
                found[key] = keyword
    return found


def nodes(name: str, document: Any) -> Iterator[Node]:
    """Every value of a document that its schema says something about, the document itself first."""
    return _nodes(name, shipped(name), document, (), ())


def _nodes(name: str, schema: Schema, value: Any, at: Steps, key: tuple[str, ...]) -> Iterator[Node]:
    says = flat(name, schema, value)
    if key and key[-1] == "*" and isinstance(value, dict) and "enum" in says.get("properties", {}).get("kind", {}):
        key = (*key, f"<{value.get('kind')}>")
    if key and key[-1] == "[]" and isinstance(value, dict) and "enum" in says.get("properties", {}).get("type", {}):
        key = (*key, f"<{value.get('type')}>")
    yield Node(at, _key_name(key), says, value)
    if isinstance(value, dict):
        for step, inner in value.items():
            declared = says.get("properties", {})
            inside = declared.get(step, says.get("additionalProperties"))
            if isinstance(inside, dict):
                yield from _nodes(name, inside, inner, (*at, step), (*key, step if step in declared else "*"))
    elif isinstance(value, list) and "items" in says:
        for index, item in enumerate(value):
            yield from _nodes(name, says["items"], item, (*at, index), (*key, "[]"))


def keys_in(name: str, document: Any) -> set[str]:
    """The keys that a document uses."""
    return {node.key for node in nodes(name, document)} & keys(name)


@cache
def keys(name: str) -> frozenset[str]:
    """Every key of a document."""
    return frozenset(map(_key_name, _keys(name, shipped(name), ())))


def _keys(name: str, schema: Schema, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    kinds = [_kind(part) for part in schema.get("allOf", []) if _is_kind(part)]
    for key, inner in schema.get("properties", {}).items():
        if not kinds:
            yield (*at, key)
        yield from _keys(name, inner, (*at, key))
    for part in schema.get("allOf", []):
        kind = (f"<{_kind(part)}>",) if _is_kind(part) else ()
        yield from _keys(name, part, (*at, *kind))
    for part in [*_referred(name, schema), *(schema[branch] for branch in ("then", "else") if branch in schema)]:
        yield from _keys(name, part, at)
    for keyword, step in (("items", "[]"), ("additionalProperties", "*")):
        if isinstance(schema.get(keyword), dict):
            yield from _keys(name, schema[keyword], (*at, step))


def _is_kind(part: Schema) -> bool:
    return not part.get("if", {}).get("properties", {}).keys().isdisjoint(("kind", "type"))


def _kind(part: Schema) -> str:
    """The kind that a branch is for; of an assertion its type without `not-`."""
    (asked,) = part["if"]["properties"].values()
    return str(asked["const"] if "const" in asked else asked["enum"][0])


def _referred(name: str, schema: Schema) -> list[Schema]:
    return [shipped(name)["$defs"][schema["$ref"].rpartition("/")[2]]] if "$ref" in schema else []


def _key_name(key: tuple[str, ...]) -> str:
    shares = key[:1] and key[0] in ("tools", "policy", "budgets") and key[1:2] == ("[]",)
    return ".".join((key[0], *key[2:]) if shares else key)
