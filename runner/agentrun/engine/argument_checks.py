"""Checks of values where they enter through the Python API, before anything is written.

Rule 1  A wrong type raises TypeError, a wrong value ValueError. The message names the argument and what it must be.
Rule 2  A value that passes can be written to a journal and read back.
Rule 3  The id of a run and the name of a session are names of folders, so they contain no other characters than names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.spec.problems import did_you_mean, is_utf8_text, quote_text
from agentrun.spec.v1.field_types import NAME_RULE, is_valid_name

_RUN_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,63}}(\.{CALL_PATTERN})*")


def check_type(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """`wanted`: the type in words. A bool is not an int."""
    is_other_bool = isinstance(value, bool) and kind is int
    if is_other_bool or not isinstance(value, kind):
        raise TypeError(f"`{name}` must be {wanted}, not {_type_name(value)}")


def check_text(name: str, value: object) -> None:
    check_type(name, value, str, "a string")
    if not is_utf8_text(str(value)):
        raise ValueError(f"`{name}` contains a lone surrogate, which is no character and cannot be written")


def check_author(by: object) -> None:
    """Who answers, settles or cancels."""
    check_text("by", by)
    if not str(by).strip():
        raise ValueError("`by` must say who decides this, for example a name; it is empty")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    allowed = ", ".join(choices)
    check_type(name, value, str, f"one of {allowed}")
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise ValueError(
            f"`{name}` must be one of {allowed}, not {quote_text(str(value))}{f': {hint}' if hint else ''}"
        )


def check_grace(milliseconds: object) -> None:
    check_type("grace", milliseconds, int, "a number of milliseconds")
    if milliseconds < 0:  # type: ignore[operator]  # it is an int
        raise ValueError(f"`grace` must be 0 or more milliseconds, not {milliseconds}")


def check_name(name: str, value: object) -> None:
    check_type(name, value, str, "a string")
    if not is_valid_name(str(value)):
        raise ValueError(f"`{name}` cannot be {quote_text(str(value))}: {NAME_RULE}")


def check_names(name: str, value: object) -> None:
    """Check that a value is a dict with names as keys. The schemas of the package check what is in it."""
    check_type(name, value, dict, "a dict")
    for key in value:  # type: ignore[attr-defined]  # it is a dict
        if not isinstance(key, str) or not is_utf8_text(key):
            raise TypeError(f"the names in `{name}` must be strings, not {_type_name(key)}")


def check_run_id(value: object, name: str = "run") -> None:
    """The id of a sub-agent ends with the ids of the calls that lead to it: `run-1.c1.0`."""
    check_type(name, value, str, "a run id, which is a string")
    if not _RUN_ID.fullmatch(str(value)):
        rule = "use at most 64 letters, digits, - and _, with a letter or digit first"
        raise ValueError(f"`{name}` cannot be {quote_text(str(value))}, because a run id names a folder: {rule}")


def check_data(name: str, value: object, kind: Any, wanted: str) -> None:
    """Check messages, parts and other structs, which do not check their own fields. `wanted`: the type in words."""
    try:
        found = msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise TypeError(f"`{name}` must be {wanted}: {error}") from None
    if found != value:
        raise TypeError(f"`{name}` must be {wanted}: it contains a value that cannot be read back")


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__
