"""Limits of a render, and what each operation costs.

Rule 1  An operation pays before it runs: steps for time, characters for the text that it makes. Nothing is paid back,
        so the sum limits the memory too.
Rule 2  A filter or method is allowed only if its cost is in a table below.
Rule 3  Only data has a text: the text of a function or a generator differs between two runs.
Rule 4  A message names types and limits, never values, because it may end in a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any, Final, TypeAlias

import msgspec
from jinja2 import Undefined
from jinja2.runtime import LoopContext
from jinja2.tests import TESTS as JINJA_TESTS
from markupsafe import Markup

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Cost: TypeAlias = Callable[..., None]
"""Pays for a filter or method: it takes the meter and the same arguments."""

MIB: Final = 1 << 20
CALL_STEPS: Final = 20
MAX_VALUE_DEPTH: Final = 64
_MAX_INT: Final = 1 << 512
_MAX_KEY: Final = 1 << 60
"""Larger numbers can be chosen so that all hashes collide, and a set takes quadratic time."""
# Below these sizes CPython searches by plain comparison, at worst length times length; above in linear time.
_SHORT_TEXT: Final = 2_500
_SHORT_PART, _MIDDLE_TEXT = 100, 30_000
_FORMAT: Final = re.compile(r"%(?:\(\w*\))?[-#0 +]*(?:\d{0,3})(?:\.\d{0,3})?([diouxXeEfFgGcs%])|%")

TEXT: Final = (str, Markup)
_SCALARS: Final = (*TEXT, int, float, bool, type(None), range)
_VIEWS: Final[tuple[type, ...]] = (type({}.items()), type({}.keys()), type({}.values()))
SIZED: Final = (*TEXT, list, tuple, dict, range, *_VIEWS)


class Bounds(msgspec.Struct, frozen=True):
    """What one render may use. Only the defaults are in use; tests loosen them to see attacks succeed."""

    steps: int = 300_000
    """Loop passes, operators, filters, list items and KiB of text handled, all together."""
    text: int = 4 * MIB
    """Characters of text made, all together: a hundred variables of 1 MiB each would pass a limit on each."""
    string: int = MIB
    """Characters of one text."""
    output: int = MIB
    """Bytes of the result."""
    range: int = 10_000
    """Numbers in one `range()`."""


class RenderStopped(Exception):
    """Ends a render. `render_template` adds the place."""


class RenderMeter:
    """Counts what one render uses."""

    __slots__ = ("_steps", "_text", "bounds")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._steps = bounds.steps
        self._text = bounds.text

    def step(self, count: int = 1) -> None:
        """Pay for work that is about to be done."""
        self._steps -= count
        if self._steps < 0:
            raise RenderStopped(f"the template does more than {self.bounds.steps} steps of work")

    def made(self, size: int) -> None:
        """Pay for a text that is about to be made."""
        if size > self.bounds.string:
            raise RenderStopped(f"a text grows over {self.bounds.string} characters")
        self._text -= size
        if self._text < 0:
            raise RenderStopped(f"the template makes more than {self.bounds.text} characters of text")
        self.step(1 + (size >> 10))

    def copied(self, value: Any, size: int) -> None:
        """Pay for `size` characters or items of a text or list, which are about to be copied."""
        if type(value) in TEXT:
            self.made(size)
        else:
            self.step(size)

    def search(self, text: str, part: str) -> None:
        """Pay for a search of `part` in `text`, at its worst case."""
        n, m = len(text), len(part)
        plain = n < _SHORT_TEXT or (m < _SHORT_PART and n < _MIDDLE_TEXT)
        self.step(1 + ((n * m if plain else 8 * (n + m)) >> 10))

    def size(self, value: Any, indent: int = 0) -> int:
        """Pay for a look at all of a value; return the length of its text, without escapes. Refuse what has no text."""
        if type(value) in TEXT:
            self.step(1 + (len(value) >> 10))
            return len(value)
        total = 0
        pending = [(value, 1)]
        while pending:  # a shared part is visited each time again
            item, depth = pending.pop()
            if isinstance(item, (list, tuple, dict)) or type(item) in _VIEWS:
                self.step(len(item))
                pending.extend((inner, depth + 1) for inner in item)
                if isinstance(item, dict):
                    pending.extend((inner, depth + 1) for inner in item.values())
            elif isinstance(item, Undefined):
                str(item)  # raises, but not for the missing else of `a if b`
            elif type(item) not in _SCALARS or (type(item) is float and item - item != 0):
                raise RenderStopped(f"{kind(item)} cannot be printed")
            total += (len(item) if type(item) in TEXT else whole(item).bit_length() // 3) + 2 + indent * depth
            self.step(1 + (len(item) >> 10 if type(item) in TEXT else 0))
            if total > 2 * self.bounds.string or depth > MAX_VALUE_DEPTH:
                raise RenderStopped(f"a value is too large or nested deeper than {MAX_VALUE_DEPTH} levels")
        return total

    def items(self, value: Any, cost: int = 1) -> Any:
        """Pay for each item of a value that is looped over: now, or when a generator gives it."""
        if type(value) in SIZED:
            self.step(1 + cost * len(value))
            return value
        return self._each(iter(value), cost)

    def _each(self, values: Iterator[Any], cost: int) -> Iterator[Any]:
        for value in values:
            self.step(1 + cost)
            yield value

    def contains(self, container: Any, item: Any, *_: Any) -> None:
        """Pay for `item in container`."""
        if type(container) in TEXT:
            self.search(container, item if type(item) in TEXT else "")
        elif type(container) is dict:
            self.key(item)
        elif type(container) in SIZED:
            self.step(len(container) * (1 + (self.size(item) >> 6)))

    def key(self, key: Any) -> Any:
        """Pay for a key of a mapping."""
        if type(key) not in _SCALARS or (type(key) is int and abs(key) > _MAX_KEY):
            raise RenderStopped(f"{kind(key)} cannot be a key here")
        return key

    def compare(self, left: Any, right: Any) -> None:
        """Pay for `left == right` or `left < right`."""
        if type(left) in TEXT and type(right) in TEXT:
            self.step(1 + (min(len(left), len(right)) >> 10))
        elif isinstance(left, SIZED) and isinstance(right, SIZED):
            self.size(left)
        whole(left)
        whole(right)

    def result(self, value: Any) -> Any:
        """Pay for what a filter or method returned."""
        if type(value) in TEXT:
            self.made(len(value))
        elif is_iterator(value):
            return self._each(value, 1)
        elif type(value) in SIZED:
            self.step(len(value))
        else:
            whole(value)
        return value


def kind(value: Any) -> str:
    """What a value is, in words for a message."""
    words = {dict: "a mapping", list: "a list", int: "a number", float: "a number", str: "text"}
    words |= {type("".upper): "a method without `()`", GeneratorType: "a generator without `|list`"}
    return words.get(type(value), f"a value of type {type(value).__name__}")


def is_iterator(value: Any) -> bool:
    """Whether a value is a generator, as `|map` and `|select` return. `loop` is none, although it has items."""
    return type(value).__module__ == "builtins" and hasattr(value, "__next__")


def whole(value: Any, limit: int = _MAX_INT) -> int:
    """A whole number within ±limit, or 0: values of other types are left to the operation."""
    if not isinstance(value, int):
        return 0
    if abs(value) > limit:
        raise RenderStopped("a number is too large" if limit == _MAX_INT else f"a number must be within ±{limit}")
    return value


def pay_operator(meter: RenderMeter, sign: str, left: Any, right: Any) -> None:
    """Pay for `left sign right`."""
    meter.step()
    numbers = isinstance(left, int) and isinstance(right, int)
    bits = whole(left).bit_length(), whole(right).bit_length()
    if sign == "+" and type(left) in SIZED and type(right) in SIZED:
        meter.copied(left, len(left) + len(right))
    elif (sign == "*" and numbers and sum(bits) > 512) or (sign == "**" and numbers and bits[0] * abs(right) > 512):
        whole(_MAX_INT + 1)
    elif sign == "*":
        for repeated, times in ((left, right), (right, left)):
            if type(repeated) in SIZED and isinstance(times, int):
                meter.copied(repeated, len(repeated) * max(0, times))
    elif sign == "%" and type(left) in TEXT:
        _format(meter, left, *(right if isinstance(right, tuple) else (right,)))


# --- costs of filters, tests and methods ----------------------------------------------------------------------


def _free(meter: RenderMeter, *_: Any, **__: Any) -> None:
    meter.step()


def _text(meter: RenderMeter, value: Any, *args: Any, **kwargs: Any) -> None:
    """A text in which every line, every match of a text argument and every step of a width may become an argument."""
    size = meter.size(value)
    places, longest = 1, 0
    if type(value) in TEXT:
        places += value.count("\n")
    for given in (*args, *kwargs.values()):
        if type(given) is int:
            places += size // max(1, given)
            longest = max(longest, whole(given))
        elif type(given) in TEXT and type(value) in TEXT:
            meter.search(value, given)
            places += value.count(given)
            longest = max(longest, len(given))
        else:
            meter.size(given)
    meter.made(size + places * longest)


def _words(meter: RenderMeter, value: Any, *args: Any, **kwargs: Any) -> None:
    """A text that is cut up: a list of a million words takes more memory than the text."""
    meter.step(meter.size(value) * (4 if args or kwargs else 1))  # to wrap it takes longest
    _text(meter, value, *args, **kwargs)


def _format(meter: RenderMeter, value: Any, *args: Any, **kwargs: Any) -> None:
    """`'%5d' % x` and `|format`. A longer width is refused: `%1000000000d` makes a gigabyte."""
    fields = [found[1] for found in _FORMAT.finditer(value)] if type(value) in TEXT else []
    if None in fields:
        raise RenderStopped("a `%` format has one of the letters diouxXeEfFgGcs, and widths of at most three digits")
    meter.made(len(fields) * (2_000 + sum(meter.size(given) for given in (*args, *kwargs.values()))))


def _tojson(meter: RenderMeter, value: Any, indent: Any = None) -> None:
    meter.made(meter.size(value, whole(indent, 8)))


def _list(meter: RenderMeter, value: Any, *args: Any, **kwargs: Any) -> None:
    """A list of about the same length. A path such as `a.b.c` is followed for every item."""
    given = (*args, *kwargs.values())
    paths = sum(len(each) for each in given if type(each) in TEXT)
    meter.step(len(value) * (1 + paths // 4) + sum(abs(each) for each in given if type(each) is int))


def _order(meter: RenderMeter, value: Any, *args: Any, **kwargs: Any) -> None:
    """Items that are compared: in every round of a sort, each with another one."""
    meter.step(len(value).bit_length() * (len(value) + (meter.size(list(value)) >> 6)))
    _list(meter, value, *args, **kwargs)


def _unique(meter: RenderMeter, value: Any, *args: Any, **kwargs: Any) -> None:
    """A set: numbers inside the items can be chosen so that all collide."""
    meter.step(len(value) ** 2 >> 8)
    _order(meter, value, *args, **kwargs)


def _join(meter: RenderMeter, value: Any, d: Any = "", attribute: Any = None) -> None:
    gap, total = meter.size(d), 0
    for item in value:
        total += gap + meter.size(item)
        if total > meter.bounds.string + gap:  # before the end: a thousand references to one long text are cheap
            break
    meter.made(max(0, total - gap))
    _list(meter, value, attribute)


def _sum(meter: RenderMeter, iterable: Any, attribute: Any = None, start: Any = 0) -> None:
    """Lists can be summed too: each addition copies the sum so far."""
    size = meter.size(list(iterable))
    meter.step(0 if isinstance(start, (int, float)) else size * len(iterable))
    _list(meter, iterable, attribute)


LIST_FILTERS: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(("batch", "items", "list", "map", "reject", "rejectattr", "reverse", "select"), _list),
    **dict.fromkeys(("selectattr", "slice"), _list),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort"), _order),
    "join": _join,
    "sum": _sum,
    "unique": _unique,
}
"""Filters that read all items of a value. A generator becomes a list first."""
FILTERS: Final[Mapping[str, Cost]] = {
    **LIST_FILTERS,
    **dict.fromkeys(("count", "d", "default", "first", "last", "length"), _free),
    **dict.fromkeys(("abs", "capitalize", "center", "e", "escape", "filesizeformat", "float", "forceescape"), _text),
    **dict.fromkeys(("indent", "int", "lower", "replace", "round", "safe", "string", "trim", "truncate"), _text),
    **dict.fromkeys(("upper", "urlencode"), _text),
    **dict.fromkeys(("title", "wordcount", "wordwrap"), _words),
    "format": _format,
    "tojson": _tojson,
}
"""The filters of templates: all there are."""
TESTS: Final[frozenset[str]] = frozenset(JINJA_TESTS) - {"callable", "escaped", "filter", "test"}
"""The tests of templates (`x is defined`): all there are."""
_STR: Final = (
    *("capitalize", "casefold", "center", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal"),
    *("isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "ljust", "lower", "lstrip", "removeprefix"),
    *("removesuffix", "replace", "rfind", "rindex", "rjust", "rstrip", "startswith", "strip", "swapcase", "title"),
    *("upper", "zfill"),
)
_STR_METHODS: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(_STR, _text),
    **dict.fromkeys(("partition", "rpartition", "rsplit", "split", "splitlines"), _words),
    "join": lambda meter, value, items: _join(meter, items, value),
}
METHODS: Final[Mapping[type, Mapping[str, Cost]]] = {
    **dict.fromkeys(TEXT, _STR_METHODS),
    **dict.fromkeys((list, tuple), dict.fromkeys(("count", "index"), RenderMeter.contains)),
    dict: {"get": RenderMeter.contains, **dict.fromkeys(("items", "keys", "values"), _free)},
    LoopContext: {"changed": _order, "cycle": _free},
}
"""The methods of values: all that can be called."""


def pay_test(meter: RenderMeter, name: str, value: Any, *args: Any) -> None:
    """Pay for a test."""
    if name in ("lower", "upper"):
        _text(meter, value)
    elif name == "in" and args:
        meter.contains(args[0], value)
    else:
        meter.compare(value, args[0] if args else value if type(value) not in SIZED else "")
