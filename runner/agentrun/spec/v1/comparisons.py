"""How an argument of a call is compared: words that stand in the place of its value.

Rule 1  A mapping whose keys are all words of `COMPARISONS` is a comparison, and all of it must hold. Any other mapping
        is compared key by key, and others than these may be there.
Rule 2  The arguments themselves are a mapping of the second kind: a tool may well have an argument called `in`.
"""

from __future__ import annotations

from typing import Any

TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

COMPARISONS: dict[str, str] = {
    "equals": "it is equal to this, and has nothing more",
    "gt": "it is greater",
    "gte": "it is greater, or equal",
    "lt": "it is less",
    "lte": "it is less, or equal",
    "contains": "a text contains this text, a list this item",
    "icontains": "a text contains this text, in upper or lower case",
    "starts-with": "a text begins with this text",
    "regex": "a part of a text matches this expression, in RE2 syntax",
    "in": "it is one of these",
    "present": "true: it is there, whatever it is; false: it is not",
    "type": f"it is of this type: {', '.join(TYPES)}",
}
"""The words, and what each asks for."""


def is_comparison(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and value.keys() <= COMPARISONS.keys()
