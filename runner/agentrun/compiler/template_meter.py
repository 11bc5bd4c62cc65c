"""Limits of a render, and how they are used up.

Rule 1  An operation pays steps before it runs, by the size of what it reads and makes. Nothing is paid back, so the sum
        limits time and memory.
Rule 2  The longest text that an operation can make must fit before it runs. The text that it made is paid for after it.
Rule 3  Only data has a text: the text of a function or a generator differs between two runs.
Rule 4  A message names types and limits, never values, because it may end in a log.
Rule 5  A cost takes the meter and the arguments of its operation: an operator, a filter or a method. It pays for the
        worst case that these arguments allow, in CPython and in Jinja, and returns the value that the operation works
        on. An argument that an operation has no use for is refused, if Python would accept it and its cost is not
        known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, Final, TypeAlias

import msgspec
from jinja2 import Environment, Undefined
from jinja2.filters import _GroupTuple
from markupsafe import Markup

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

MIB: Final = 1 << 20
STEPS_PER_CALL: Final = 20
MAX_VALUE_DEPTH: Final = 64
_MAX_INT: Final = 1 << 512
_MAX_KEY: Final = 1 << 60
"""Larger numbers can be chosen so that all hashes collide, and a set takes quadratic time."""
# Below these sizes CPython searches by plain comparison, at worst length times length; above in linear time.
_SHORT_TEXT: Final = 2_500
_SHORT_PART, _MIDDLE_TEXT = 100, 30_000
_QUOTED_PART: Final = 4_096

TEXT: Final = (str, Markup)
LISTS: Final = (list, tuple, _GroupTuple)
VIEWS: Final[tuple[type, ...]] = (type({}.items()), type({}.keys()), type({}.values()))
SIZED: Final = (*TEXT, *LISTS, dict, range, *VIEWS)
_KEYS: Final = (*TEXT, int, float, bool, type(None))
_SCALARS: Final = (*_KEYS, range)
# ruff: noqa: ARG001 - a cost takes the arguments of its operation, including those that cost nothing


Cost: TypeAlias = Callable[..., Any]
_MAX_NUMBER_WIDTH: Final = 400
"""The largest number has 309 digits."""
_FIELD: Final = re.compile(r"%(?:\(([^()]*)\))?[-#0 +]*(\d{0,3})(?:\.(\d{0,3}))?[hlL]?([diouxXeEfFgGcsra%])|%")


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
    __slots__ = ("_steps", "_text", "bounds", "environment")

    def __init__(self, bounds: Bounds, environment: Environment) -> None:
        self.bounds = bounds
        self.environment = environment
        """What looks up `attribute=…`, and pays for it."""
        self._steps = bounds.steps
        self._text = bounds.text

    def step(self, count: int = 1) -> None:
        self._steps -= count
        if self._steps < 0:
            raise RenderStopped(f"the template needs more than {self.bounds.steps} steps")

    def reserve(self, size: int) -> None:
        """Stop if a text of this length would be too long."""
        if size > self.bounds.string:
            raise RenderStopped(f"a text is longer than {self.bounds.string} characters")

    def pay_text(self, size: int) -> None:
        self.reserve(size)
        self.pay_characters(size)

    def pay_characters(self, size: int) -> None:
        """Pay for the characters of several texts."""
        self._text -= size
        if self._text < 0:
            raise RenderStopped(f"the template makes more than {self.bounds.text} characters of text")
        self.step(1 + (size >> 10))

    def search(self, text: str, part: str, *, backwards: bool = False) -> None:
        """Pay for a search of `part` in `text`, at its worst case."""
        n, m = len(text), len(part)
        plain = backwards or n < _SHORT_TEXT or (m < _SHORT_PART and n < _MIDDLE_TEXT)
        self.step(1 + ((n * m if plain else 8 * (n + m)) >> 10))

    def text(self, value: Any) -> str:
        """Return the text of a value, as it is printed, and pay for a look at it."""
        if type(value) in TEXT:
            self.step(1 + (len(value) >> 10))
            return value  # type: ignore[no-any-return]  # mypy does not narrow on type()
        self.printed_size(value)
        text = str(value)
        self.pay_text(len(text))
        return text

    def printed_size(self, value: Any) -> int:
        """Pay for a look at a value; return the length of its text. The text itself must be paid for too."""
        return self.size(value, length=len if type(value) in TEXT else _quoted_length)

    def size(self, value: Any, indent: int = 0, length: Callable[[str], int] = len) -> int:
        """Pay for a look at all of a value; return about the length of its text. Refuse what has no text.

        `length`: that of a text in it, without its quotes."""
        if type(value) in TEXT:
            self.step(1 + (len(value) >> 10))
            return length(value)
        total = 0
        pending = [(value, 1)]
        while pending:  # a shared part is visited each time again
            item, depth = pending.pop()
            self.step()
            if isinstance(item, (list, tuple, dict)) or type(item) in VIEWS:
                self.step(len(item))
                pending.extend((inner, depth + 1) for inner in item)
                if isinstance(item, dict):
                    pending.extend((inner, depth + 1) for inner in item.values())
            elif type(item) in TEXT:
                self.step(len(item) >> 10)
                total += length(item)
            elif isinstance(item, Undefined):
                str(item)  # raises, but not for the missing else of `a if b`
            elif type(item) not in _SCALARS or (type(item) is float and item - item != 0):
                raise RenderStopped(f"{describe_value(item)} cannot be printed")
            total += check_number(item).bit_length() // 3 + 2 + indent * depth
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

    def contains(self, container: Any, item: Any) -> None:
        """Pay for `item in container`. An iterator pays for each comparison when it is made."""
        self.step()
        if type(container) in TEXT:
            self.search(container, item if type(item) in TEXT else "")
        elif type(container) is dict:
            self.key(item)
        elif type(container) in SIZED and (len(container) > 0 or type(container) in VIEWS):  # an empty view hashes too
            self.step(len(container) * (1 + (self.size(item) >> 6)))

    def key(self, key: Any) -> Any:
        """Pay for a key of a mapping or a set."""
        self.step(1 + (len(key) >> 10 if type(key) in TEXT else 0))
        if type(key) not in _KEYS or (type(key) is int and abs(key) > _MAX_KEY):
            raise RenderStopped(f"{describe_value(key)} cannot be a key here")
        return key

    def compare(self, left: Any, right: Any) -> None:
        """Pay for `left == right` or `left < right`."""
        self.step()
        if type(left) in TEXT and type(right) in TEXT:
            self.step(min(len(left), len(right)) >> 10)
        elif isinstance(left, SIZED) and isinstance(right, SIZED):
            self.size(left)
        check_number(left)
        check_number(right)

    def result(self, value: Any) -> Any:
        """Pay for a new value."""
        if type(value) in TEXT:
            self.pay_text(len(value))
        elif is_iterator(value):
            return self._each(value, 1)
        elif type(value) in SIZED:
            self.step(len(value))
        else:
            check_number(value)
        return value


def _quoted_length(text: str) -> int:
    """The length of a text in a printed list: a character can take ten, such as `\\U000e0001`."""
    if text.isprintable():
        return len(text) + text.count("'") + text.count("\\")
    parts = range(0, len(text), _QUOTED_PART)
    return sum(len(repr(text[start : start + _QUOTED_PART])) for start in parts)


def describe_value(value: Any) -> str:
    """What a value is, in words for a message."""
    words = {dict: "a mapping", list: "a list", int: "a number", float: "a number", str: "text", Markup: "text"}
    words |= {type("".upper): "a method without `()`", GeneratorType: "a generator without `|list`"}
    return words.get(type(value), f"a value of type {type(value).__name__}")


def is_iterator(value: Any) -> bool:
    """Whether a value is a generator, as `|map` and `|select` return. `loop` is none, although it has items."""
    return type(value).__module__ == "builtins" and hasattr(value, "__next__")


def check_defined(value: Any) -> None:
    if isinstance(value, Undefined):
        value()  # raises, like nearly every use of it


def check_number(value: Any, limit: int = _MAX_INT) -> int:
    """A whole number within ±limit, or 0: values of other types are left to the operation."""
    if not isinstance(value, int):
        return 0
    if abs(value) > limit:
        raise RenderStopped("a number is too large" if limit == _MAX_INT else f"a number must be within ±{limit}")
    return value


def require_text(value: Any, operation: str) -> str:
    check_defined(value)
    if type(value) not in TEXT:
        raise RenderStopped(f"`{operation}` needs text, not {describe_value(value)}")
    return value  # type: ignore[no-any-return]  # mypy does not narrow on type()


def require_whole(value: Any, operation: str) -> int:
    if not isinstance(value, int):
        raise RenderStopped(f"`{operation}` needs a whole number, not {describe_value(value)}")
    return check_number(value)


def pay_nothing(meter: RenderMeter, value: Any, *_: Any, **__: Any) -> Any:
    meter.step()
    return value


def pay_same_length(meter: RenderMeter, value: Any) -> str:
    """A text of about the same length."""
    text = meter.text(value)
    meter.reserve(len(text))
    return text


def pay_padding(meter: RenderMeter, value: Any, width: Any = 80, fill: Any = " ") -> str:
    text = meter.text(value)
    meter.reserve(max(len(text), check_number(width)))
    return text


def pay_strip(meter: RenderMeter, value: Any, chars: Any = None) -> str:
    """Each character is compared with all of `chars`."""
    text = pay_same_length(meter, value)
    meter.step(len(text) * (4 + (len(chars) if type(chars) in TEXT else 0)) >> 10)
    return text


def pay_replace(meter: RenderMeter, s: Any, old: Any, new: Any, count: Any = None) -> str:
    text, part = meter.text(s), meter.text(old)
    meter.search(text, part)
    meter.search(text, part)
    times = text.count(part)
    if isinstance(count, int) and count >= 0:
        times = min(times, count)
    replacement = meter.text(new)
    added = escaped_length(replacement) if type(text) is Markup else len(replacement)
    meter.reserve(len(text) + times * max(0, added - len(part)))
    return text


def pay_words(meter: RenderMeter, value: Any, *_: Any, **__: Any) -> str:
    """A text that is cut up: a list of a million words takes more memory than the text."""
    text = meter.text(value)
    meter.step(len(text) >> 1)
    return text


def escaped_length(text: str) -> int:
    """The length of a text as HTML, at most."""
    return len(text) if type(text) is Markup else len(text) + 4 * sum(map(text.count, "&<>'\""))


def pay_format(meter: RenderMeter, text: str, given: Any) -> None:
    """Pay for `'%5d' % x`. A longer width is refused: `%1000000000d` makes a gigabyte."""
    meter.step(1 + (len(text) >> 6))
    values = iter(given if isinstance(given, tuple) else (given,))
    total = len(text)
    for found in _FIELD.finditer(text):
        name, width, precision, letter = found.groups()
        meter.step()
        if letter is None:
            raise RenderStopped("a `%` format has one of the letters diouxXeEfFgGcsra, and at most three digits")
        total += int(width or 0) + int(precision or 0)
        if letter in "sra":
            value = next(values, None) if name is None else given.get(name) if type(given) is dict else given
            longer = 10 if letter in "ra" else 5 if type(text) is Markup else 1
            size = meter.printed_size(value) * longer
            meter.pay_characters(size)  # even if only a part is used: `%.1s`
            total += size
        elif letter != "%":
            next(values, None)
            total += _MAX_NUMBER_WIDTH
        meter.reserve(total)
