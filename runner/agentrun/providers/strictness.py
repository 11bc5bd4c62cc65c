"""Whether a provider can promise that an answer keeps a schema ("strict" structured outputs).

It can for a part of JSON Schema only, and refuses the request otherwise. So strict is asked for when the
schema is surely inside that part; any other is sent as guidance. Our own validation decides in both cases.

Rule 1  Only known keywords. Every schema says its type, or its alternatives.
Rule 2  An object names all its properties, requires each and allows no other. An array says what its items are.
Rule 3  Not too deep, and not too many values to choose from.
"""

from __future__ import annotations

from typing import Any

MAX_LEVELS = 10
MAX_VALUES = 250
"""In all enums together. Above it their length counts too."""

_KEYWORDS = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "description",
        "title",
    }
)


def is_strict(schema: dict[str, Any]) -> bool:
    """Inside the part, with an object at the root."""
    at_root = schema.get("type") == "object" and "anyOf" not in schema
    return at_root and _inside(schema, MAX_LEVELS) and _values(schema) <= MAX_VALUES


def _inside(schema: Any, levels: int) -> bool:
    if levels == 0 or not isinstance(schema, dict) or not schema.keys() <= _KEYWORDS:
        return False
    if "type" not in schema and "anyOf" not in schema:
        return False
    return _is_closed(schema) and all(_inside(part, levels - 1) for part in _below(schema))


def _is_closed(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if ("array" in kinds) != ("items" in schema):
        return False
    if "object" not in kinds:
        return "properties" not in schema
    properties = schema.get("properties", {})
    return schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)


def _values(schema: dict[str, Any]) -> int:
    return len(schema.get("enum", ())) + sum(_values(part) for part in _below(schema))


def _below(schema: dict[str, Any]) -> list[Any]:
    items = [schema["items"]] if "items" in schema else []
    return [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *items]
