"""The filters and tests of templates: all there are.

Rule 1  Pure: the same arguments give the same text under every locale, hash seed and time zone.
Rule 2  Every argument has a bound, checked before memory is used: Jinja's own `indent(10**9)` or `'%9999999d'|format`
        pass its sandbox.
Rule 3  Names, arguments and results are those of Jinja where both have them; what cannot be bounded is left out.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from agentrun.compiler import template_texts as texts
from agentrun.compiler.template_meter import (
    DEEPEST,
    MISSING,
    Json,
    Meter,
    Missing,
    Stop,
    arithmetic,
    before,
    concat,
    contains,
    mapping,
    number,
    same,
    scalar,
    sequence,
    string,
    text,
    whole,
    wrong,
)
from agentrun.compiler.template_texts import taken

Function = Callable[..., "Json | Missing"]

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,16}\Z")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?\Z")


def look_up(value: Json, key: Json) -> Json | Missing:
    """`value[key]` and `value.key`: an item of a mapping, list or text; never an attribute of a Python object."""
    if type(value) is dict:
        return value.get(key, MISSING) if type(key) is str else MISSING
    if (type(value) is list or type(value) is str) and type(key) is int:
        return value[key] if -len(value) <= key < len(value) else MISSING
    return MISSING


def _attribute(meter: Meter, value: Json, path: Json) -> Json | Missing:
    """Follow `a.b.0` into a value, as `map(attribute=…)` and its kin do."""
    found: Json | Missing = value
    for part in string(path, "attribute").split(".", 16)[:16] if type(path) is str else [path]:
        meter.step()
        key: Json = int(part) if type(part) is str and part.isdecimal() and part.isascii() and len(part) < 10 else part
        found = MISSING if found is MISSING else look_up(found, key)
    return found


def _picked(meter: Meter, value: Json, attribute: Json) -> list[Json]:
    """The items of a list, or one attribute of each."""
    items = sequence(meter, value, "what is filtered")
    if attribute is None:
        return items
    picked = []
    for item in items:
        found = _attribute(meter, item, attribute)
        if found is MISSING:
            raise Stop("an item has no such attribute")
        picked.append(found)
    return picked


def _sort_keys(meter: Meter, items: list[Json], case_sensitive: Json) -> list[str] | list[int | float]:
    """Keys to order items by: all text or all numbers. Pays for sorting them."""
    rounds = len(items).bit_length()
    meter.step(len(items) * rounds)
    if all(type(item) is str for item in items):
        texts = [item if case_sensitive else taken(meter, item).lower() for item in items if type(item) is str]
        meter.step(rounds * (sum(map(len, texts)) >> 10))
        return texts
    return [number(item, "what is sorted") for item in items]


def _ordered(meter: Meter, items: list[Json], by: list[Json], case_sensitive: Json, reverse: Json) -> list[Json]:
    keys = _sort_keys(meter, by, case_sensitive)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[index] for index in order]


# --- lists and mappings


def _default(meter: Meter, value: Json | Missing, fallback: Json = "", boolean: Json = False) -> Json:
    return fallback if value is MISSING or (boolean and not value) else value


def _length(meter: Meter, value: Json) -> Json:
    if type(value) in (str, list, dict):
        return len(value)  # type: ignore[arg-type]  # narrowed by type(), which mypy does not follow for tuples
    wrong("what has a length must be text, a list or a mapping", value)


def _first(meter: Meter, value: Json) -> Json | Missing:
    if type(value) is dict:
        return next(iter(value), MISSING)
    return look_up(value, 0)


def _last(meter: Meter, value: Json) -> Json | Missing:
    if type(value) is dict:
        return next(reversed(value), MISSING)
    return look_up(value, -1)


def _join(meter: Meter, value: Json, d: Json = "", attribute: Json = None) -> Json:
    parts = [text(item) for item in _picked(meter, value, attribute)]
    return concat(meter, parts, string(d, "the separator"))


def _list(meter: Meter, value: Json) -> Json:
    return sequence(meter, value, "what becomes a list")


def _reverse(meter: Meter, value: Json) -> Json:
    if type(value) is str:
        return taken(meter, value)[::-1]
    return sequence(meter, value, "what is reversed")[::-1]


def _sort(
    meter: Meter, value: Json, reverse: Json = False, case_sensitive: Json = False, attribute: Json = None
) -> Json:
    items = sequence(meter, value, "what is sorted")
    return _ordered(meter, items, _picked(meter, value, attribute), case_sensitive, reverse)


def _dictsort(
    meter: Meter, value: Json, case_sensitive: Json = False, by: Json = "key", reverse: Json = False
) -> Json:
    if by not in ("key", "value"):
        raise Stop("by must be 'key' or 'value'")
    pairs = _pairs(meter, value)
    return _ordered(meter, list(pairs), [pair[by == "value"] for pair in pairs], case_sensitive, reverse)


def _unique(meter: Meter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json:
    seen: set[str] = set()
    kept = []
    picked = _picked(meter, value, attribute)
    for item, key in zip(sequence(meter, value, "what is made unique"), picked, strict=True):
        # Texts as keys: integers can be chosen so that all their hashes collide, and the set turns quadratic.
        name = taken(meter, scalar(key, "what is made unique"))
        if type(key) is str:
            name = "'" + (name if case_sensitive else name.lower())
        elif type(key) is float and key.is_integer():
            name = text(int(key))
        if name not in seen:
            seen.add(name)
            kept.append(item)
    return kept


def _pairs(meter: Meter, value: Json) -> list[list[Json]]:
    meter.step(2 * len(mapping(value, "what has items")))
    return [[key, item] for key, item in mapping(value, "what has items").items()]


def _items(meter: Meter, value: Json) -> Json:
    return list(_pairs(meter, value))


def _keys(meter: Meter, value: Json) -> Json:
    return sequence(meter, mapping(value, "what has keys"), "what has keys")


def _values(meter: Meter, value: Json) -> Json:
    meter.step(len(mapping(value, "what has values")))
    return list(mapping(value, "what has values").values())


def _map(meter: Meter, value: Json, *, attribute: Json, default: Json | Missing = MISSING) -> Json:
    if default is MISSING:
        return list(_picked(meter, value, attribute))
    found = [_attribute(meter, item, attribute) for item in sequence(meter, value, "what is mapped")]
    return [scalar(default, "default") if item is MISSING else item for item in found]


def _matching(meter: Meter, value: Json, attribute: Json, test: Json, args: tuple[Json, ...], wanted: bool) -> Json:
    if test is not None and (type(test) is not str or test not in TESTS or misuse(TESTS[test], len(args), [])):
        raise Stop("there is no such test, or it takes other arguments")
    kept = []
    for item in sequence(meter, value, "what is selected from"):
        meter.step(2)
        found = _attribute(meter, item, attribute)
        if test is None:
            fits = found is not MISSING and bool(found)
        else:
            fits = (found is not MISSING or test in ("defined", "undefined")) and bool(TESTS[test](meter, found, *args))
        if fits is wanted:
            kept.append(item)
    return kept


def _selectattr(meter: Meter, value: Json, attribute: Json, test: Json = None, *args: Json) -> Json:
    return _matching(meter, value, attribute, test, args, True)


def _rejectattr(meter: Meter, value: Json, attribute: Json, test: Json = None, *args: Json) -> Json:
    return _matching(meter, value, attribute, test, args, False)


# --- numbers


def _extreme(meter: Meter, value: Json, case_sensitive: Json, attribute: Json, last: bool) -> Json | Missing:
    items = sequence(meter, value, "what is compared")
    ordered = _ordered(meter, items, _picked(meter, value, attribute), case_sensitive, last)
    return ordered[0] if ordered else MISSING


def _min(meter: Meter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json | Missing:
    return _extreme(meter, value, case_sensitive, attribute, False)


def _max(meter: Meter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json | Missing:
    return _extreme(meter, value, case_sensitive, attribute, True)


def _sum(meter: Meter, value: Json, attribute: Json = None, start: Json = 0) -> Json:
    total: Json = number(start, "start")
    for item in _picked(meter, value, attribute):
        total = arithmetic(meter, "+", total, number(item, "what is summed"))
    return total


def _round(meter: Meter, value: Json, precision: Json = 0, method: Json = "common") -> Json:
    given, places = number(value, "what is rounded"), whole(precision, "precision", -15, 15)
    if method == "common":
        return float(round(given, places))
    if method not in ("ceil", "floor"):
        raise Stop("method must be 'common', 'ceil' or 'floor'")
    scaled = number(float(given * 10**places), "what is rounded")
    return float((math.ceil if method == "ceil" else math.floor)(scaled) / 10**places)


def _int(meter: Meter, value: Json, default: Json = 0) -> Json:
    if type(value) is str:
        if _WHOLE.match(value.strip() if len(value) < 100 else ""):
            return whole(int(value), "the number")
        value = _float(meter, value, None)
        if value is None:
            return default
    return int(number(value, "what becomes a number")) if type(value) is not bool else int(value)


def _float(meter: Meter, value: Json, default: Json = 0.0) -> Json:
    if type(value) is str:
        return number(float(value), "the number") if len(value) < 100 and _DECIMAL.match(value.strip()) else default
    return float(number(value, "what becomes a number"))


def _abs(meter: Meter, value: Json) -> Json:
    return abs(number(value, "what loses its sign"))


FILTERS: Final[Mapping[str, Function]] = {
    "abs": _abs,
    "capitalize": texts.capitalize,
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "first": _first,
    "float": _float,
    "indent": texts.indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "keys": _keys,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": texts.lower,
    "map": _map,
    "max": _max,
    "min": _min,
    "rejectattr": _rejectattr,
    "replace": texts.replace,
    "reverse": _reverse,
    "round": _round,
    "selectattr": _selectattr,
    "sort": _sort,
    "string": texts.as_text,
    "sum": _sum,
    "title": texts.title,
    "tojson": texts.tojson,
    "trim": texts.trim,
    "truncate": texts.truncate,
    "unique": _unique,
    "upper": texts.upper,
    "values": _values,
    "wordcount": texts.wordcount,
}


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
    "in": lambda meter, value, seq: contains(meter, value, seq),
    "le": lambda meter, value, other: not before(meter, other, value),
    "lt": lambda meter, value, other: before(meter, value, other),
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
    """Why a filter or test cannot be called with so many arguments, or None: told at check time, not at run time."""
    if len(set(keywords)) != len(keywords):
        return "an argument is given twice"
    try:
        _signature(function).bind(None, None, *[None] * positional, **dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    return None


def arguments(function: Callable[..., object]) -> list[str]:
    """The names of what may stand in the brackets after a filter or test."""
    return [name for name in list(_signature(function).parameters)[2:]]
