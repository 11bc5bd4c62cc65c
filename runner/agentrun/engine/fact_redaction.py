"""Redact secret values in facts, and escape characters that cannot be written.

A fact is redacted before it is written and before it changes the state. So a secret in the words of a model, tool or
user appears in no journal, no event and no later request. A number that is a secret becomes a text if the field allows
texts.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct, ValidationError, convert, json, to_builtins

from agentrun.canonical_json import map_json
from agentrun.cassette.redact_body import redact_string
from agentrun.redactor import Redactor

_T = TypeVar("_T", bound=Struct)


def redact_struct(redactor: Redactor, fact: _T) -> _T:
    if not redactor or _is_clean(redactor, fact):
        return fact

    def clean_text(text: str) -> str:
        return redact_string(text, redactor)

    def clean_number(value: float) -> float | str:
        clean = redactor.redact_text(text := str(value))
        return value if clean is text else clean

    data = to_builtins(fact)
    clean = map_json(data, text=clean_text, number=clean_number, keys=True)
    if clean is data:
        return fact
    try:
        return convert(clean, type(fact))
    except ValidationError:  # a field that must be a number, with the digits of a password by chance
        return convert(map_json(data, text=clean_text, keys=True), type(fact))


def _is_clean(redactor: Redactor, fact: Struct) -> bool:
    """Whether one search of the whole fact finds nothing. A text with a backslash may have a value in inner JSON."""
    try:
        data = json.encode(fact)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return b"\\\\" not in data and not redactor.changes(data)


def escape_surrogates(fact: _T) -> _T:
    """Write each half of a surrogate pair as an escape, such as `\\ud83d`. UTF-8 has no form for it."""

    def escape(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    return convert(map_json(to_builtins(fact), text=escape, keys=True), type(fact))
