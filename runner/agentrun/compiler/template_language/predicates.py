"""The tests of templates (`x is defined`): all there are. And whether a filter or test fits its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Final

from agentrun.compiler.template_language.meter import (
    MISSING,
    Json,
    Meter,
    arithmetic,
    before,
    contains,
    same,
    scalar,
    whole,
)


def _equal(meter: Meter, value: Json, other: Json) -> bool:
    return same(meter, scalar(value, "what is compared"), scalar(other, "what is compared"))


TESTS: Final[Mapping[str, Callable[..., bool]]] = {
    "boolean": lambda meter, value: type(value) is bool,
    "defined": lambda meter, value: value is not MISSING,
    "divisibleby": lambda meter, value, num: arithmetic(meter, "%", value, num) == 0,
    "eq": _equal,
    "even": lambda meter, value: whole(value, "what is even") % 2 == 0,
    "false": lambda meter, value: value is False,
    "ge": lambda meter, value, other: not before(meter, value, other),
    "gt": lambda meter, value, other: before(meter, other, value),
    "in": contains,
    "le": lambda meter, value, other: not before(meter, other, value),
    "lt": before,
    "mapping": lambda meter, value: type(value) is dict,
    "ne": lambda meter, value, other: not _equal(meter, value, other),
    "none": lambda meter, value: value is None,
    "number": lambda meter, value: type(value) in (int, float),
    "odd": lambda meter, value: whole(value, "what is odd") % 2 == 1,
    "sequence": lambda meter, value: type(value) in (list, str),
    "string": lambda meter, value: type(value) is str,
    "true": lambda meter, value: value is True,
    "undefined": lambda meter, value: value is MISSING,
}


@functools.cache
def _signature(function: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(function)


def misuse(function: Callable[..., object], positional: int, keywords: list[str]) -> str | None:
    """Why a filter or test cannot be called with these arguments, or None: told by `check`, not by a run."""
    if len(set(keywords)) != len(keywords):
        return "an argument is given twice"
    try:
        _signature(function).bind(None, None, *[None] * positional, **dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    return None


def arguments(function: Callable[..., object]) -> list[str]:
    """The names of what may stand in the brackets after a filter or test."""
    return list(_signature(function).parameters)[2:]
