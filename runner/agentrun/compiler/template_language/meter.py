"""What a template may use up, and the operations on values that could use up too much.

Rule 1  A value is plain JSON data, of exactly these types: a subclass could print or compare as it likes.
Rule 2  Work is paid before it is done: `step` for time (one step is about a microsecond), `made` for memory.
Rule 3  No operation puts containers into a container, so what a template builds is no larger than its values.
Rule 4  A message names types and bounds, never values: it may end in a log.
"""

from __future__ import annotations

import enum
import math
from typing import Final, NoReturn, TypeAlias

import msgspec

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Scalar: TypeAlias = "str | int | float | bool | None"
Number: TypeAlias = "int | float"


class Missing(enum.Enum):
    """The type of `MISSING`: what a look-up gives when there is nothing there."""

    MISSING = 0


MISSING: Final = Missing.MISSING
MIB: Final = 1 << 20
LARGEST: Final = 2**53
"""Whole numbers up to here are exact in every JSON reader; arithmetic stays within it."""
DEEPEST: Final = 64
_LONGEST_INT_BITS: Final = 1024
# Below these sizes CPython searches by plain comparison, at worst length times length; above in linear time.
_SHORT_TEXT: Final = 2_500
_SHORT_PART, _MIDDLE_TEXT = 100, 30_000


class Bounds(msgspec.Struct, frozen=True):
    """What one render may use. Only the defaults are in use; tests loosen them to see attacks succeed."""

    steps: int = 300_000
    """Expressions evaluated, loop rounds, list items and KiB of text handled, all together."""
    text: int = 4 * MIB
    """Bytes of text made, all together: a hundred variables of 1 MiB each would pass a limit on each."""
    string: int = MIB
    """Bytes of one text."""
    output: int = MIB
    """Bytes of the result."""
    range: int = 10_000
    """Numbers in one `range()`."""


class Stop(Exception):
    """Ends a render. The renderer adds the place."""


class Meter:
    """Counts what one render uses. One per render, so renders in several threads do not meet."""

    __slots__ = ("_steps", "_text", "bounds")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._steps = bounds.steps
        self._text = bounds.text

    def step(self, count: int = 1) -> None:
        """Pay for work that is about to be done."""
        self._steps -= count
        if self._steps < 0:
            raise Stop(f"the template does more than {self.bounds.steps} steps of work")

    def made(self, size: int) -> None:
        """Pay for a text of `size` bytes that is about to be made."""
        if size > self.bounds.string:
            raise Stop(f"a text grows over {self.bounds.string} bytes")
        self._text -= size
        if self._text < 0:
            raise Stop(f"the template makes more than {self.bounds.text} bytes of text")
        self.step(1 + (size >> 10))

    def size(self, text: str) -> int:
        """UTF-8 bytes of a text. One that is too long is refused before encoding it would double it."""
        if len(text) > self.bounds.string:
            raise Stop(f"a text is over {self.bounds.string} bytes")
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def search(self, text: str, part: str) -> None:
        """Pay for a search of `part` in `text`, at its worst case."""
        n, m = len(text), len(part)
        plain = n < _SHORT_TEXT or (m < _SHORT_PART and n < _MIDDLE_TEXT)
        self.step(1 + ((n * m if plain else 8 * (n + m)) >> 10))


def kind(value: Json | Missing) -> str:
    """What a value is, in words for a message."""
    words = {str: "text", bool: "true/false", dict: "a mapping", list: "a list", type(None): "null"}
    return words.get(type(value), "a number" if type(value) in (int, float) else "not plain data")


def wrong(what: str, value: Json | Missing) -> NoReturn:
    raise Stop(f"{what}, not {kind(value)}")


def scalar(value: Json, what: str) -> Scalar:
    if type(value) in (str, int, float, bool) or value is None:
        return value  # type: ignore[return-value]  # mypy does not narrow on type(), which is meant: see rule 1
    wrong(f"{what} must be text, a number, true/false or null", value)


def number(value: Json, what: str) -> Number:
    """A number that arithmetic may use. True is no number: `true + 1` is a mistake, not 2."""
    if type(value) is int and -LARGEST <= value <= LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) in (int, float):
        raise Stop(f"{what} must be a number within ±2**53")
    wrong(f"{what} must be a number", value)


def whole(value: Json, what: str, low: int = -LARGEST, high: int = LARGEST) -> int:
    if type(value) is not int:
        wrong(f"{what} must be a whole number", value)
    if not low <= value <= high:
        raise Stop(f"{what} must be between {low} and {high}")
    return value


def string(value: Json, what: str) -> str:
    if type(value) is not str:
        wrong(f"{what} must be text", value)
    return value


def mapping(value: Json, what: str) -> dict[str, Json]:
    if type(value) is not dict:
        wrong(f"{what} must be a mapping", value)
    return value


def sequence(meter: Meter, value: Json, what: str) -> list[Json]:
    """The items of a list, the keys of a mapping or the characters of a text, paid for one by one."""
    if type(value) is list or type(value) is dict or type(value) is str:
        meter.step(1 + len(value))
        return value if type(value) is list else list(value)
    wrong(f"{what} must be a list", value)


def text(value: Json) -> str:
    """The text of a scalar: text as it is, everything else as JSON writes it, in every locale and Python."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if (
        type(value) is int and value.bit_length() <= _LONGEST_INT_BITS
    ):  # str() of a longer one is quadratic, then raises
        return str(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) in (int, float):
        raise Stop("a number is too large, infinite or not a number")
    if type(value) is list or type(value) is dict:
        raise Stop(f"{kind(value)} cannot be written as text: use `|tojson` or `|join(', ')`")
    raise Stop("a value is not plain data")


def concat(meter: Meter, parts: list[str], between: str = "") -> str:
    """Join texts, their sum checked before any memory is used."""
    gap = meter.size(between)
    total = 0
    for part in parts:
        total += meter.size(part) + gap
        if (
            total > meter.bounds.string + gap
        ):  # before the end of the list: a thousand references to one long text are cheap
            break
    meter.made(max(0, total - gap))
    return between.join(parts)


def same(meter: Meter, left: Scalar, right: Scalar) -> bool:
    """Equality of JSON: 1 equals 1.0 but not true."""
    if type(left) is str and type(right) is str and len(left) == len(right):
        meter.step(len(left) >> 12)
    return (type(left) is bool) == (type(right) is bool) and left == right


def before(meter: Meter, left: Json, right: Json) -> bool:
    """`left < right`, for two numbers or two texts."""
    if type(left) is str and type(right) is str:
        meter.step(min(len(left), len(right)) >> 12)
        return left < right
    return number(left, "what is compared by order") < number(right, "what is compared by order")


def contains(meter: Meter, item: Json, container: Json) -> bool:
    """`item in container`."""
    wanted = scalar(item, "the left side of `in`")
    if type(container) is str:
        part = string(wanted, "the left side of `in` a text")
        meter.search(container, part)
        return part in container
    if type(container) is dict:
        return type(wanted) is str and wanted in container
    for other in sequence(meter, container, "the right side of `in`"):
        if type(other) not in (list, dict) and same(meter, wanted, scalar(other, "an item")):
            return True
    return False


def arithmetic(meter: Meter, sign: str, left: Json, right: Json) -> Json:
    """`+ - * / // %` on numbers; `+` on two texts. `'a' * 10**9` and `'%9999d' % 1` are not numbers."""
    if sign == "+" and type(left) is str and type(right) is str:
        return concat(meter, [left, right])
    a, b = number(left, f"the left side of `{sign}`"), number(right, f"the right side of `{sign}`")
    result: Number
    try:
        match sign:
            case "+":
                result = a + b
            case "-":
                result = a - b
            case "*":
                result = a * b
            case "/":
                result = a / b
            case "//":
                result = a // b
            case _:
                result = a % b
    except ZeroDivisionError:
        raise Stop("division by zero") from None
    return number(result, f"the result of `{sign}`")
