"""The filters on lists and mappings, and looking into them.

Rule 1  A look-up finds an item of a mapping, list or text; never an attribute of a Python object.
Rule 2  Items are passed on, not wrapped. Only `items` and `dictsort` make pairs, of mappings; a pair is no
        mapping, so it cannot be paired again.
Rule 3  Order is the given one or that of the values: never that of a hash.
"""

from __future__ import annotations

from agentrun.compiler.template_language.meter import (
    MISSING,
    Json,
    Meter,
    Missing,
    Stop,
    arithmetic,
    concat,
    mapping,
    number,
    scalar,
    sequence,
    string,
    text,
    wrong,
)
from agentrun.compiler.template_language.predicates import TESTS, misuse
from agentrun.compiler.template_language.texts import taken

_MAX_PATH = 256


def look_up(value: Json, key: Json) -> Json | Missing:
    """`value[key]` and `value.key`."""
    if type(value) is dict:
        return value.get(key, MISSING) if type(key) is str else MISSING
    if (type(value) is list or type(value) is str) and type(key) is int:
        return value[key] if -len(value) <= key < len(value) else MISSING
    return MISSING


def _attribute(meter: Meter, value: Json, path: Json) -> Json | Missing:
    """Follow `a.b.0` into a value, as `map(attribute=…)` and its kin do."""
    if type(path) is int:
        return look_up(value, path)
    if len(string(path, "attribute")) > _MAX_PATH:  # it is taken apart again for every item
        raise Stop(f"an attribute must be at most {_MAX_PATH} characters")
    found: Json | Missing = value
    for part in string(path, "attribute").split("."):
        meter.step()
        index = part.isascii() and part.isdecimal() and len(part) < 10
        found = MISSING if found is MISSING else look_up(found, int(part) if index else part)
    return found


def _picked(meter: Meter, value: Json, attribute: Json) -> list[Json]:
    """The items of a list, or one attribute of each."""
    items = sequence(meter, value, "what is filtered")
    if attribute is None:
        return items
    picked: list[Json] = []
    for item in items:
        found = _attribute(meter, item, attribute)
        if found is MISSING:
            raise Stop("an item has no such attribute")
        picked.append(found)
    return picked


def default(_meter: Meter, value: Json | Missing, default_value: Json = "", boolean: Json = False) -> Json:
    return default_value if value is MISSING or (boolean and not value) else value


def length(_meter: Meter, value: Json) -> Json:
    if type(value) is str or type(value) is list or type(value) is dict:
        return len(value)
    wrong("what has a length must be text, a list or a mapping", value)


def first(_meter: Meter, value: Json) -> Json | Missing:
    return next(iter(value), MISSING) if type(value) is dict else look_up(value, 0)


def last(_meter: Meter, value: Json) -> Json | Missing:
    return next(reversed(value), MISSING) if type(value) is dict else look_up(value, -1)


def join(meter: Meter, value: Json, d: Json = "", attribute: Json = None) -> Json:
    parts = [text(item) for item in _picked(meter, value, attribute)]
    return concat(meter, parts, string(d, "the separator"))


def listed(meter: Meter, value: Json) -> Json:
    return sequence(meter, value, "what becomes a list")


def reverse(meter: Meter, value: Json) -> Json:
    if type(value) is str:
        return taken(meter, value)[::-1]
    return sequence(meter, value, "what is reversed")[::-1]


def items(meter: Meter, value: Json) -> Json:
    return list(_pairs(meter, value))


def keys(meter: Meter, value: Json) -> Json:
    return sequence(meter, mapping(value, "what has keys"), "what has keys")


def values(meter: Meter, value: Json) -> Json:
    meter.step(len(mapping(value, "what has values")))
    return list(mapping(value, "what has values").values())


def _pairs(meter: Meter, value: Json) -> list[list[Json]]:
    meter.step(2 * len(mapping(value, "what has items")))
    return [[key, item] for key, item in mapping(value, "what has items").items()]


# --- in order


def _ordered(meter: Meter, given: list[Json], by: list[Json], case_sensitive: Json, turned: Json) -> list[Json]:
    """Items ordered by keys that are all text or all numbers; equal ones stay as they stood."""
    rounds = len(given).bit_length()
    meter.step(len(given) * rounds)
    order = list(range(len(given)))
    if all(type(key) is str for key in by):
        texts = [text(key) if case_sensitive else taken(meter, key).lower() for key in by]
        meter.step(rounds * (sum(map(len, texts)) >> 10))
        order.sort(key=texts.__getitem__, reverse=bool(turned))
    else:
        numbers = [number(key, "what is sorted") for key in by]
        order.sort(key=numbers.__getitem__, reverse=bool(turned))
    return [given[index] for index in order]


def sort(
    meter: Meter, value: Json, reverse: Json = False, case_sensitive: Json = False, attribute: Json = None
) -> Json:
    given = sequence(meter, value, "what is sorted")
    return _ordered(meter, given, _picked(meter, value, attribute), case_sensitive, reverse)


def dictsort(meter: Meter, value: Json, case_sensitive: Json = False, by: Json = "key", reverse: Json = False) -> Json:
    if by not in ("key", "value"):
        raise Stop("by must be 'key' or 'value'")
    pairs = _pairs(meter, value)
    return _ordered(meter, list(pairs), [pair[by == "value"] for pair in pairs], case_sensitive, reverse)


def least(meter: Meter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json | Missing:
    given = sequence(meter, value, "what is compared")
    ordered = _ordered(meter, given, _picked(meter, value, attribute), case_sensitive, False)
    return ordered[0] if ordered else MISSING


def most(meter: Meter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json | Missing:
    given = sequence(meter, value, "what is compared")
    ordered = _ordered(meter, given, _picked(meter, value, attribute), case_sensitive, True)
    return ordered[0] if ordered else MISSING


def total(meter: Meter, value: Json, attribute: Json = None, start: Json = 0) -> Json:
    result: Json = number(start, "start")
    for item in _picked(meter, value, attribute):
        result = arithmetic(meter, "+", result, number(item, "what is summed"))
    return result


def unique(meter: Meter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json:
    seen: set[str] = set()
    kept: list[Json] = []
    picked = _picked(meter, value, attribute)
    for item, key in zip(sequence(meter, value, "what is made unique"), picked, strict=True):
        # Texts as keys: numbers can be chosen so that all their hashes collide, and the set turns quadratic.
        name = taken(meter, scalar(key, "what is made unique"))
        if type(key) is str:
            name = "'" + (name if case_sensitive else name.lower())
        elif type(key) is float and key.is_integer():
            name = text(int(key))
        if name not in seen:
            seen.add(name)
            kept.append(item)
    return kept


# --- one attribute of each item


def mapped(meter: Meter, value: Json, *, attribute: Json, default: Json | Missing = MISSING) -> Json:
    if default is MISSING:
        return _picked(meter, value, attribute)
    found = [_attribute(meter, item, attribute) for item in sequence(meter, value, "what is mapped")]
    return [scalar(default, "default") if item is MISSING else item for item in found]


def selectattr(meter: Meter, value: Json, attribute: Json, test: Json = None, *args: Json) -> Json:
    return [item for item in sequence(meter, value, "the list") if _fits(meter, item, attribute, test, args)]


def rejectattr(meter: Meter, value: Json, attribute: Json, test: Json = None, *args: Json) -> Json:
    return [item for item in sequence(meter, value, "the list") if not _fits(meter, item, attribute, test, args)]


def _fits(meter: Meter, item: Json, attribute: Json, test: Json, args: tuple[Json, ...]) -> bool:
    meter.step(4)
    found = _attribute(meter, item, attribute)
    if test is None:
        return found is not MISSING and bool(found)
    if type(test) is not str or test not in TESTS or misuse(TESTS[test], len(args), []):
        raise Stop("there is no such test, or it takes other arguments")
    return (found is not MISSING or test in ("defined", "undefined")) and TESTS[test](meter, found, *args)
