"""The filters of templates, each with its cost. `template_meter.py` says what a cost is."""

# ruff: noqa: ARG001 - a cost takes the arguments of its operation, including those that cost nothing

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from jinja2 import Undefined
from jinja2.filters import make_attrgetter, make_multi_attrgetter

from agentrun.compiler.template_meter import (
    LISTS,
    MIB,
    SIZED,
    TEXT,
    Cost,
    RenderMeter,
    RenderStopped,
    check_number,
    describe_value,
    escaped_length,
    pay_format,
    pay_nothing,
    pay_padding,
    pay_replace,
    pay_same_length,
    pay_strip,
    pay_words,
    require_text,
    require_whole,
)

_STEPS_PER_GENERATOR: Final = 12
"""It takes a kilobyte, before it gives anything."""
MAX_ROUND_PRECISION: Final = 1_000
MAX_JSON_INDENT: Final = 8
MAX_NUMBER_TEXT: Final = 4_300
"""Characters of a text that is read as a number. Python refuses more digits, unless it is set otherwise."""
_LINE_ENDS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SAFE_IN_URLS: Final = (string.ascii_letters + string.digits + "_.-~/").encode()


def _count_lines(meter: RenderMeter, text: str) -> int:
    """Pay for the lines of a text, and return how many there are at most."""
    lines = 1 + sum(map(text.count, _LINE_ENDS))
    meter.step(lines + (len(text) >> 8))
    return lines


def _number(meter: RenderMeter, value: Any, *_: Any, **__: Any) -> Any:
    """`int` and the like: a text is read digit by digit."""
    if type(value) in TEXT:
        if len(value) > MAX_NUMBER_TEXT:
            raise RenderStopped(f"a text of more than {MAX_NUMBER_TEXT} characters is not a number")
        meter.step(len(value) >> 3)
    check_number(value)
    return value


def _round(meter: RenderMeter, value: Any, precision: Any = 0, method: Any = "common") -> Any:
    meter.step(10)  # for the digits of 1e300
    check_number(value)
    check_number(precision, MAX_ROUND_PRECISION)
    require_text(method, "round(method=…)")
    return value


def _escape(meter: RenderMeter, value: Any) -> str:
    text = meter.text(value)
    meter.reserve(escaped_length(text))
    return text


def _force_escape(meter: RenderMeter, value: Any) -> str:
    return _escape(meter, str(meter.text(value)))


def _format(meter: RenderMeter, value: Any, /, *args: Any, **kwargs: Any) -> str:
    text = meter.text(value)
    pay_format(meter, text, kwargs or args)
    return text


def _indent(meter: RenderMeter, s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> str:
    text = require_text(s, "indent")
    longest = len(width) if type(width) in TEXT else max(0, check_number(width))
    meter.reserve(len(text) + _count_lines(meter, text) * (1 + longest))
    return text


def _truncate(
    meter: RenderMeter, s: Any, length: Any = 255, killwords: Any = False, end: Any = "...", leeway: Any = None
) -> str:
    require_whole(length, "truncate(length=…)")
    require_whole(0 if leeway is None else leeway, "truncate(leeway=…)")
    require_text(end, "truncate(end=…)")
    return pay_same_length(meter, require_text(s, "truncate"))


def _title(meter: RenderMeter, value: Any) -> str:
    return pay_words(meter, pay_words(meter, value))


def _wordwrap(
    meter: RenderMeter,
    s: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    break_on_hyphens: Any = True,
) -> str:
    text, columns = require_text(s, "wordwrap"), max(1, require_whole(width, "wordwrap(width=…)"))
    gap = 1 if wrapstring is None else len(require_text(wrapstring, "wordwrap(wrapstring=…)"))
    meter.step(len(text) + (len(text) ** 2 // columns >> 12))  # what is left of a long word is copied for each line
    meter.reserve(len(text) + (_count_lines(meter, text) + 2 * len(text) // columns) * gap)
    return text


def _urlencode(meter: RenderMeter, value: Any) -> Any:
    """Every byte becomes a text of its own first."""
    value = value if type(value) in TEXT else _all_items(meter, value)
    parts = [value]
    if type(value) not in TEXT and hasattr(value, "__iter__"):
        parts = [part for key, item in (value.items() if type(value) is dict else value) for part in (key, item)]
    total = 2 * len(parts)
    for part in parts:
        encoded = pay_same_length(meter, part).encode("utf-8", "surrogatepass")
        meter.step(1 + (len(encoded) >> 2))
        total += len(encoded) + 2 * len(encoded.translate(None, _SAFE_IN_URLS))
        meter.reserve(total)
    return value


def _json_length(text: str) -> int:
    if len(text) > MIB:
        return len(text)  # too much anyway
    return len(encode_basestring_ascii(text)) + 5 * sum(map(text.count, "&<>'"))


def _tojson(meter: RenderMeter, value: Any, indent: Any = None) -> Any:
    width = len(indent) if type(indent) in TEXT else indent
    meter.step(10 if width else 0)  # Python's own encoder is slow with it
    meter.reserve(meter.size(value, check_number(width, MAX_JSON_INDENT), _json_length))
    return value


def _all_items(meter: RenderMeter, value: Any) -> Any:
    """Pay for the items of a value that are all read at once. An iterator becomes a list."""
    if type(value) in SIZED:
        meter.step(len(value))
        return value
    return list(meter.items(value)) if hasattr(value, "__iter__") else value


def _path(meter: RenderMeter, attribute: Any) -> None:
    """Pay for a path such as `a.b.c`. Each of its fields is paid for when it is looked up."""
    if attribute is not None and type(attribute) not in (*TEXT, int, bool):
        raise RenderStopped(f"{describe_value(attribute)} cannot be an attribute")
    if type(attribute) in TEXT:
        meter.step(1 + attribute.count(".") + attribute.count(",") + (len(attribute) >> 10))


def _looked_up(meter: RenderMeter, values: Iterable[Any], attribute: Any, default: Any = None) -> list[Any]:
    """Return the fields that a filter works on, or the values themselves."""
    _path(meter, attribute)
    return [*map(make_attrgetter(meter.environment, attribute, default=default), values)]


def _list(meter: RenderMeter, value: Any) -> Any:
    return _all_items(meter, value)


def _reverse(meter: RenderMeter, value: Any) -> Any:
    """An iterator becomes a list in Jinja, and pays for itself."""
    meter.step(_STEPS_PER_GENERATOR)
    return pay_same_length(meter, value) if type(value) in TEXT else value


def _join(meter: RenderMeter, value: Any, d: Any = "", attribute: Any = None) -> Any:
    value = _all_items(meter, value)
    gap, total = len(meter.text(d)), 0
    for item in _looked_up(meter, value, attribute):
        total += gap + meter.printed_size(item)
        meter.reserve(total - gap)  # before the end: a thousand references to one long text are cheap
    return value


def _sum(meter: RenderMeter, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    """Lists can be summed too: each addition copies the sum so far."""
    iterable = _all_items(meter, iterable)
    items = _looked_up(meter, iterable, attribute)
    for item in (start, *items):
        check_number(item)
    if type(start) in LISTS:
        meter.step(len(items) * (len(start) + sum(len(item) for item in items if type(item) in LISTS)))
    return iterable


def _keys_size(meter: RenderMeter, keys: Iterable[Any], case_sensitive: Any) -> int:
    """Pay for a look at keys that are compared. Jinja compares the lower case, and keeps it."""
    total = 0
    for key in keys:
        size = 0 if isinstance(key, Undefined) else meter.size(key)
        if type(key) in TEXT and not case_sensitive:
            meter.pay_characters(size)
        total += size
    return total


def _pay_sort(meter: RenderMeter, keys: list[Any], case_sensitive: Any) -> None:
    """In every round of a sort each key is compared with another one."""
    meter.step(len(keys).bit_length() * (len(keys) + (_keys_size(meter, keys, case_sensitive) >> 6)))


def _sort(
    meter: RenderMeter, value: Any, reverse: Any = False, case_sensitive: Any = False, attribute: Any = None
) -> Any:
    value = _all_items(meter, value)
    _path(meter, attribute)
    get = make_multi_attrgetter(meter.environment, attribute)
    _pay_sort(meter, [key for item in value for key in get(item)], case_sensitive)
    return value


def _dictsort(
    meter: RenderMeter, value: Any, case_sensitive: Any = False, by: Any = "key", reverse: Any = False
) -> Any:
    if type(value) is dict:
        _pay_sort(meter, [*(value.values() if by == "value" else value)], case_sensitive)
    return value


def _groupby(meter: RenderMeter, value: Any, attribute: Any, default: Any = None, case_sensitive: Any = False) -> Any:
    value = _all_items(meter, value)
    _pay_sort(meter, _looked_up(meter, value, attribute, default), case_sensitive)
    meter.step(2 * len(value))
    return value


def _extreme(meter: RenderMeter, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    """`min` and `max`."""
    value = _all_items(meter, value)
    keys = _looked_up(meter, value, attribute)
    meter.step(len(keys) + (_keys_size(meter, keys, case_sensitive) >> 6))
    return value


def _unique(meter: RenderMeter, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Iterator[Any]:
    meter.step(_STEPS_PER_GENERATOR)
    _path(meter, attribute)
    return _each_hashed(meter, value, make_attrgetter(meter.environment, attribute), case_sensitive)


def _each_hashed(
    meter: RenderMeter, values: Iterable[Any], get: Callable[[Any], Any], case_sensitive: Any
) -> Iterator[Any]:
    """Pay for items that go into a set. Tuples can be chosen so that the hashes of all collide."""
    tuples = 0
    for item in values:
        key = get(item)
        if isinstance(key, tuple):
            tuples += 1
            meter.step(1 + (tuples >> 4) + (meter.size(key) >> 4))
        elif type(meter.key(key)) in TEXT and not case_sensitive:
            meter.pay_characters(len(key))
        yield item


def _lazy(meter: RenderMeter, value: Any) -> Any:
    meter.step(_STEPS_PER_GENERATOR + (len(value) if type(value) in SIZED else 0))
    return value


def _batch(meter: RenderMeter, value: Any, linecount: Any, fill_with: Any = None) -> Any:
    meter.step(max(0, require_whole(linecount, "batch")) if fill_with is not None else 0)
    return _lazy(meter, value)


def _slice(meter: RenderMeter, value: Any, slices: Any, fill_with: Any = None) -> Any:
    meter.step(2 * max(0, require_whole(slices, "slice")))
    return _lazy(meter, value)


def _map(meter: RenderMeter, value: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The filters that it calls pay for themselves."""
    if args:
        require_text(args[0], "map")
    elif "attribute" in kwargs:
        _path(meter, kwargs["attribute"])
    return _lazy(meter, value)


def _select(meter: RenderMeter, value: Any, /, *args: Any, **kwargs: Any) -> Any:
    if args:
        require_text(args[0], "select")
    return _lazy(meter, value)


def _selectattr(meter: RenderMeter, value: Any, /, *args: Any, **kwargs: Any) -> Any:
    _path(meter, args[0] if args else None)
    return _select(meter, value, *args[1:])


FILTERS: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(("count", "d", "default", "first", "last", "length"), pay_nothing),
    **dict.fromkeys(("capitalize", "lower", "safe", "string", "upper"), pay_same_length),
    **dict.fromkeys(("abs", "filesizeformat", "float", "int"), _number),
    **dict.fromkeys(("e", "escape"), _escape),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("reject", "select"), _select),
    **dict.fromkeys(("rejectattr", "selectattr"), _selectattr),
    "batch": _batch,
    "center": pay_padding,
    "dictsort": _dictsort,
    "forceescape": _force_escape,
    "format": _format,
    "groupby": _groupby,
    "indent": _indent,
    "items": _lazy,
    "join": _join,
    "list": _list,
    "map": _map,
    "replace": pay_replace,
    "reverse": _reverse,
    "round": _round,
    "slice": _slice,
    "sort": _sort,
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": pay_strip,
    "truncate": _truncate,
    "unique": _unique,
    "urlencode": _urlencode,
    "wordcount": pay_words,
    "wordwrap": _wordwrap,
}
"""The filters of templates: all there are."""
CHOOSING_FILTERS: Final = frozenset({"d", "default", "first", "last", "max", "min"})
"""Filters whose result exists already."""
