"""Facts without values that must not be shown.

Whatever a model, a tool or a user said: a fact is cleaned before it is written and before it counts, so no journal, no
listener and no later request has it.

Rule 1  Each text is looked at for itself, as a recording does: a text that is JSON is read as its reader reads it.
Rule 2  A number that is a value becomes a text, where a text may be.
"""

from __future__ import annotations

from operator import is_
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from agentrun.cassette.redaction import redact_text
from agentrun.redactor import Redactor

_T = TypeVar("_T", bound=Struct)


def redact_struct(redactor: Redactor, fact: _T) -> _T:
    """The fact, or part of one, with placeholders for what the redactor knows."""
    if not redactor:
        return fact
    data = to_builtins(fact)
    clean = _redact_value(data, redactor, numbers=True)
    if clean is data:
        return fact
    try:
        return convert(clean, type(fact))
    except ValidationError:  # a count of ours that happens to be the digits of a password
        return convert(_redact_value(data, redactor, numbers=False), type(fact))


def _redact_value(value: Any, redactor: Redactor, *, numbers: bool) -> Any:
    """The same object, if there are no values in it."""
    match value:
        case str():
            return redact_text(value, redactor)
        case dict():
            keys = [redact_text(key, redactor) for key in value]
            items = [_redact_value(item, redactor, numbers=numbers) for item in value.values()]
            is_same = all(map(is_, keys, value)) and all(map(is_, items, value.values()))
            return value if is_same else dict(zip(keys, items, strict=True))
        case list() | tuple():
            parts = [_redact_value(item, redactor, numbers=numbers) for item in value]
            return value if all(map(is_, parts, value)) else parts
        case int() | float() if numbers and not isinstance(value, bool):
            clean = redactor.redact_text(spelled := str(value))
            return value if clean is spelled else clean
    return value
