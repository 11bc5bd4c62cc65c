"""What an unquoted YAML word means: the core schema of YAML 1.2, made strict.

Rule 1  null ~, true false, 12 0o17 0xff, 1.5 1e3 are what they look like. Everything else is text as written:
        `no`, `on`, `1:30`, `1_000` and dates are strings, whatever YAML 1.1 thought of them.
Rule 2  A number that readers disagree about, or that cannot be held exactly, is refused, not guessed: `012`,
        `.inf`, `1e999`, integers beyond 2**53 - 1. A budget read as another number is a money bug.
"""

from __future__ import annotations

import re
from math import isinf

from agentrun.spec.problems import quoted
from agentrun.spec.tree import Value

LARGEST = 2**53 - 1
_LONGEST = 400
"""Digits that are ever converted: converting costs the square of the length, and no double needs more."""

_WORDS: dict[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMERIC = frozenset("0123456789+-.")
_integer = re.compile(r"[-+]?[0-9]+")
_octal = re.compile(r"0o[0-7]+")
_hexadecimal = re.compile(r"0x[0-9a-fA-F]+")
_float = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_not_finite = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_something = re.compile(r"[1-9]")


class BadNumber(ValueError):
    """A word that looks like a number and must not be taken for one."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def is_null(text: str) -> bool:
    """Is this unquoted word null (or nothing at all)?"""
    return _WORDS.get(text, text) is None


def resolve(text: str) -> Value:
    """The value of an unquoted word; `BadNumber` if it is a number nobody should guess at."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if _integer.fullmatch(text):
        return _decimal(text)
    if _octal.fullmatch(text):
        return _exact(text, text[2:], 8)
    if _hexadecimal.fullmatch(text):
        return _exact(text, text[2:], 16)
    if _float.fullmatch(text):
        return _finite(text)
    if _not_finite.fullmatch(text):
        raise BadNumber(f"{text} is not a number that JSON has", f"quote it if it is a text: '{text}'")
    return text


def _decimal(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0":
        short = quoted(text.replace(digits, digits.lstrip("0") or "0"), 30).strip('"')
        raise BadNumber(
            f"the number {quoted(text, 30)} begins with 0: octal to some readers, decimal to others",
            f"quote it if it is a text, or write {short}",
        )
    return _exact(text, text, 10)


def _exact(text: str, digits: str, base: int) -> int:
    value = int(digits, base) if len(digits) <= _LONGEST else LARGEST + 1
    if abs(value) > LARGEST:
        raise BadNumber(
            f"the number {quoted(text, 30)} is beyond ±{LARGEST} and would not be held exactly",
            "quote it if it is a text or an id",
        )
    return value


def _finite(text: str) -> float:
    value = float(text) if len(text) <= _LONGEST else float("inf")
    lost = value == 0 and _something.search(re.split("[eE]", text)[0])
    if isinf(value) or lost:
        raise BadNumber(f"the number {quoted(text, 30)} is outside what a double can hold", "quote it if it is a text")
    return value
