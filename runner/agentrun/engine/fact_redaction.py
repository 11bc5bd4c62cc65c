"""Redact secret values in facts.

A fact is redacted before it is written and before it changes the state. So a secret in the words of a model, tool or
user appears in no journal, no event and no later request.

Rule 1  Each text is redacted on its own, as in cassettes. A text that is JSON is parsed first.
Rule 2  A number that is a secret becomes a text if the field allows texts.
"""

from __future__ import annotations

from operator import is_
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from agentrun.cassette.redaction import redact_text
from agentrun.redactor import Redactor

_T = TypeVar("_T", bound=Struct)


def redact_struct(redactor: Redactor, fact: _T) -> _T:
    """Replace the secret values of a fact, or of a part of it, by placeholders."""
    if not redactor:
        return fact
    data = to_builtins(fact)
    clean = _redact_value(data, redactor, numbers=True)
    if clean is data:
        return fact
    try:
        return convert(clean, type(fact))
    except ValidationError:  # a field that must be a number, with the digits of a password by chance
        return convert(_redact_value(data, redactor, numbers=False), type(fact))


def _redact_value(value: Any, redactor: Redactor, *, numbers: bool) -> Any:
    """Returns the same object if it contains no secret."""
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
            clean = redactor.redact_text(text := str(value))
            return value if clean is text else clean
    return value
