"""Whether OpenAI can promise that an answer keeps a schema ("strict" structured outputs).

It can for a part of JSON Schema only, and refuses the request otherwise. So strict is asked for when the
schema is surely inside that part; any other is sent as guidance. Our own validation decides in both cases.
"""

from __future__ import annotations

from typing import Any

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
    return schema.get("type") == "object" and "anyOf" not in schema and _inside(schema)


def _inside(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _KEYWORDS:
        return False
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    if "items" in schema:
        below.append(schema["items"])
    return _is_closed(schema) and all(_inside(part) for part in below)


def _is_closed(schema: dict[str, Any]) -> bool:
    """An object names all its properties and requires every one of them."""
    kinds = schema.get("type")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return "properties" not in schema
    properties = schema.get("properties", {})
    return schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
