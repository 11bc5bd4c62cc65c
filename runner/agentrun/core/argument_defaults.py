"""Fill in the defaults of a schema for arguments that the model left out.

Rule 1  Objects that are present are completed at every depth, also in lists. A missing object is not created, unless it
        has a default of its own.
Rule 2  A default of null is not filled in: it means that there is no value, and `has(args.x)` can ask for that.
Rule 3  A default that does not match its own schema is not filled in.
Rule 4  `anyOf`, `oneOf` and `allOf` are not searched for defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrun.canonical_json import sorted_json
from agentrun.core.json_validation import schema_validator


def fill_in_defaults(schema: Any, value: Any) -> Any:
    """The value with the defaults of its schema. If there is nothing to fill in, it is the same object."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, dict):
        return _complete_object(schema, value)
    if isinstance(value, list) and "items" in schema:
        items = [fill_in_defaults(schema["items"], item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _complete_object(schema: Mapping[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    declared, others = schema.get("properties", {}), schema.get("additionalProperties")
    filled: dict[str, Any] = {}
    for name, inner in value.items():
        completed = fill_in_defaults(declared.get(name, others), inner)
        if completed is not inner:
            filled[name] = completed
    for name, inner in declared.items():
        if name not in value and _has_usable_default(inner):
            filled[name] = fill_in_defaults(inner, inner["default"])
    return {**value, **filled} if filled else value


def _has_usable_default(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or schema.get("default") is None:
        return False
    return schema_validator(sorted_json(schema)).is_valid(schema["default"])
