"""Whether the arguments of a call are those that were wanted. The language is that of `spec/v1/comparisons.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agentrun.spec.v1.comparisons import is_comparison
from agentrun.testing.suite.claims.finding import in_json
from agentrun.testing.suite.claims.output import expression, same


def misfits(wanted: dict[str, Any], found: dict[str, Any], above: str = "") -> Iterator[str]:
    """What is not as it was wanted: which field, and which comparison it fails."""
    for name, value in wanted.items():
        if name in found:
            yield from _against(value, found[name], f"{above}{name}")
        elif not (is_comparison(value) and value.get("present") is False):
            yield f"{above}{name} is missing"


def _against(wanted: Any, found: Any, at: str) -> Iterator[str]:
    if is_comparison(wanted):
        for word, operand in wanted.items():
            if not _HOLDS[word](found, operand):
                yield f"{at} is {in_json(found)}, which fails {{{word}: {in_json(operand)}}}"
    elif isinstance(wanted, dict) and isinstance(found, dict):
        yield from misfits(wanted, found, f"{at}.")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _against(one, other, f"{at}.{index}")
    elif isinstance(wanted, dict | list) or not same(wanted, found):
        yield f"{at} is {in_json(found)}, not {in_json(wanted)}"


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers with numbers, texts with texts; nothing else has an order."""

    def holds(found: Any, operand: Any) -> bool:
        both = (_is_number(found) and _is_number(operand)) or (isinstance(found, str) and isinstance(operand, str))
        return both and compare(found, operand)

    return holds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(found: Any, operand: Any) -> bool:
    if isinstance(found, list):
        return any(same(item, operand) for item in found)
    return isinstance(found, str) and isinstance(operand, str) and operand in found


def _is_of_type(found: Any, name: str) -> bool:
    match found:
        case None:
            return name == "null"
        case bool():
            return name == "boolean"
        case int():
            return name in ("integer", "number")
        case float():
            return name == "number" or (name == "integer" and found.is_integer())
        case str():
            return name == "string"
        case list():
            return name == "array"
    return name == "object"


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": same,
    "gt": _ordered(lambda found, operand: found > operand),
    "gte": _ordered(lambda found, operand: found >= operand),
    "lt": _ordered(lambda found, operand: found < operand),
    "lte": _ordered(lambda found, operand: found <= operand),
    "contains": _contains,
    "icontains": lambda found, text: isinstance(found, str) and text.casefold() in found.casefold(),
    "starts-with": lambda found, text: isinstance(found, str) and found.startswith(text),
    "regex": lambda found, pattern: isinstance(found, str) and expression(pattern).search(found) is not None,
    "in": lambda found, values: any(same(found, value) for value in values),
    "present": lambda found, wanted: wanted is True,
    "type": _is_of_type,
}
"""What each word asks of a value that is there."""
