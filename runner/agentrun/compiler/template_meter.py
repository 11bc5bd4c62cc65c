"""What a template may use up, and the operations on values that could use up too much.

Rule 1  A value is plain JSON data, of exactly these types: a subclass could print or compare as it likes.
Rule 2  Work is paid before it is done: `step` for time (one step is about a microsecond), `made` for memory.
Rule 3  No operation puts containers into a container, so what a template builds is no larger than its values.
Rule 4  A message names types and bounds, never values: it may end in a log.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias

import msgspec
from jinja2 import nodes

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
TemplateScalar: TypeAlias = "str | int | float | bool | None"
TemplateNumber: TypeAlias = "int | float"


class Missing(enum.Enum):
    """The type of `MISSING`: what a look-up gives when there is nothing there."""

    MISSING = 0


MISSING: Final = Missing.MISSING
MIB: Final = 1 << 20
MAX_TEMPLATE_NUMBER: Final = 2**53
"""Whole numbers up to here are exact in every JSON reader; arithmetic stays within it."""
MAX_VALUE_DEPTH: Final = 64
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


class RenderStopped(Exception):
    """Ends a render. The renderer adds the place."""


class RenderMeter:
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
            raise RenderStopped(f"the template does more than {self.bounds.steps} steps of work")

    def made(self, size: int) -> None:
        """Pay for a text of `size` bytes that is about to be made."""
        if size > self.bounds.string:
            raise RenderStopped(f"a text grows over {self.bounds.string} bytes")
        self._text -= size
        if self._text < 0:
            raise RenderStopped(f"the template makes more than {self.bounds.text} bytes of text")
        self.step(1 + (size >> 10))

    def size(self, text: str) -> int:
        """UTF-8 bytes of a text. One that is too long is refused before encoding it would double it."""
        if len(text) > self.bounds.string:
            raise RenderStopped(f"a text is over {self.bounds.string} bytes")
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
    raise RenderStopped(f"{what}, not {kind(value)}")


def scalar(value: Json, what: str) -> TemplateScalar:
    if type(value) in (str, int, float, bool) or value is None:
        return value  # type: ignore[return-value]  # mypy does not narrow on type(), which is meant: see rule 1
    wrong(f"{what} must be text, a number, true/false or null", value)


def number(value: Json, what: str) -> TemplateNumber:
    """A number that arithmetic may use. True is no number: `true + 1` is a mistake, not 2."""
    if type(value) is int and -MAX_TEMPLATE_NUMBER <= value <= MAX_TEMPLATE_NUMBER:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) in (int, float):
        raise RenderStopped(f"{what} must be a number within ±2**53")
    wrong(f"{what} must be a number", value)


def whole_number(value: Json, what: str, low: int = -MAX_TEMPLATE_NUMBER, high: int = MAX_TEMPLATE_NUMBER) -> int:
    if type(value) is not int:
        wrong(f"{what} must be a whole number", value)
    if not low <= value <= high:
        raise RenderStopped(f"{what} must be between {low} and {high}")
    return value


def require_string(value: Json, what: str) -> str:
    if type(value) is not str:
        wrong(f"{what} must be text", value)
    return value


def require_mapping(value: Json, what: str) -> dict[str, Json]:
    if type(value) is not dict:
        wrong(f"{what} must be a mapping", value)
    return value


def sequence(meter: RenderMeter, value: Json, what: str) -> list[Json]:
    """The items of a list, the keys of a mapping or the characters of a text, paid for one by one."""
    if type(value) is list or type(value) is dict or type(value) is str:
        meter.step(1 + len(value))
        return value if type(value) is list else list(value)
    wrong(f"{what} must be a list", value)


def scalar_text(value: Json) -> str:
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
        raise RenderStopped("a number is too large, infinite or not a number")
    if type(value) is list or type(value) is dict:
        raise RenderStopped(f"{kind(value)} cannot be written as text: use `|tojson` or `|join(', ')`")
    raise RenderStopped("a value is not plain data")


def concat(meter: RenderMeter, parts: list[str], between: str = "") -> str:
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


def scalars_equal(meter: RenderMeter, left: TemplateScalar, right: TemplateScalar) -> bool:
    """Equality of JSON: 1 equals 1.0 but not true."""
    if type(left) is str and type(right) is str and len(left) == len(right):
        meter.step(len(left) >> 12)
    return (type(left) is bool) == (type(right) is bool) and left == right


def before(meter: RenderMeter, left: Json, right: Json) -> bool:
    """`left < right`, for two numbers or two texts."""
    if type(left) is str and type(right) is str:
        meter.step(min(len(left), len(right)) >> 12)
        return left < right
    return number(left, "what is compared by order") < number(right, "what is compared by order")


def json_contains(meter: RenderMeter, item: Json, container: Json) -> bool:
    """`item in container`."""
    wanted = scalar(item, "the left side of `in`")
    if type(container) is str:
        part = require_string(wanted, "the left side of `in` a text")
        meter.search(container, part)
        return part in container
    if type(container) is dict:
        return type(wanted) is str and wanted in container
    for other in sequence(meter, container, "the right side of `in`"):
        if type(other) not in (list, dict) and scalars_equal(meter, wanted, scalar(other, "an item")):
            return True
    return False


def arithmetic(meter: RenderMeter, sign: str, left: Json, right: Json) -> Json:
    """`+ - * / // %` on numbers; `+` on two texts. `'a' * 10**9` and `'%9999d' % 1` are not numbers."""
    if sign == "+" and type(left) is str and type(right) is str:
        return concat(meter, [left, right])
    a, b = number(left, f"the left side of `{sign}`"), number(right, f"the right side of `{sign}`")
    result: TemplateNumber
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
        raise RenderStopped("division by zero") from None
    return number(result, f"the result of `{sign}`")


# --- the tests of templates (`x is defined`): all there are ---------------------------------------------------


def _equal(meter: RenderMeter, value: Json, other: Json) -> bool:
    return scalars_equal(meter, scalar(value, "what is compared"), scalar(other, "what is compared"))


TESTS: Final[Mapping[str, Callable[..., bool]]] = {
    "boolean": lambda meter, value: type(value) is bool,
    "defined": lambda meter, value: value is not MISSING,
    "divisibleby": lambda meter, value, num: arithmetic(meter, "%", value, num) == 0,
    "eq": _equal,
    "even": lambda meter, value: whole_number(value, "what is even") % 2 == 0,
    "false": lambda meter, value: value is False,
    "ge": lambda meter, value, other: not before(meter, value, other),
    "gt": lambda meter, value, other: before(meter, other, value),
    "in": json_contains,
    "le": lambda meter, value, other: not before(meter, other, value),
    "lt": before,
    "mapping": lambda meter, value: type(value) is dict,
    "ne": lambda meter, value, other: not _equal(meter, value, other),
    "none": lambda meter, value: value is None,
    "number": lambda meter, value: type(value) in (int, float),
    "odd": lambda meter, value: whole_number(value, "what is odd") % 2 == 1,
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


def filter_arguments(function: Callable[..., object]) -> list[str]:
    """The names of what may stand in the brackets after a filter or test."""
    return list(_signature(function).parameters)[2:]


# --- the filters that give text -------------------------------------------------------------------------------


_WORD_START: Final = re.compile(r"([-\s({\[<]+)")
_WORD: Final = re.compile(r"\w+")


def charged_text(meter: RenderMeter, value: Json) -> str:
    """The text a filter works on, paid for as if it were copied once."""
    result = scalar_text(value)
    meter.made(meter.size(result))
    return result


def _charged_result(meter: RenderMeter, value: str) -> str:
    """A text that may have grown a little: 'ß' is 'SS' in capitals."""
    meter.made(meter.size(value))
    return value


def upper(meter: RenderMeter, value: Json) -> Json:
    return _charged_result(meter, charged_text(meter, value).upper())


def lower(meter: RenderMeter, value: Json) -> Json:
    return _charged_result(meter, charged_text(meter, value).lower())


def capitalize(meter: RenderMeter, value: Json) -> Json:
    return _charged_result(meter, charged_text(meter, value).capitalize())


def title(meter: RenderMeter, value: Json) -> Json:
    given = charged_text(meter, value)
    meter.step(len(given))  # a list of a million words takes more memory than the text
    words = _WORD_START.split(given)
    return _charged_result(meter, "".join(word[:1].upper() + word[1:].lower() for word in words))


def trim(meter: RenderMeter, value: Json, chars: Json = None) -> Json:
    given = charged_text(meter, value)
    if chars is None:
        return given.strip()
    if len(require_string(chars, "chars")) > 64:  # strip() looks through `chars` once per character
        raise RenderStopped("chars must be at most 64 characters")
    return given.strip(require_string(chars, "chars"))


def replace(meter: RenderMeter, value: Json, old: Json, new: Json, count: Json = None) -> Json:
    given, gone, put = (
        scalar_text(value),
        require_string(old, "what is replaced"),
        require_string(new, "the replacement"),
    )
    if not gone:  # Python would put the replacement between any two characters
        raise RenderStopped("what is replaced must not be empty")
    most = -1 if count is None else whole_number(count, "count", 0)
    size = meter.size(given)
    meter.search(given, gone)
    found = given.count(gone) if most < 0 else min(most, given.count(gone))
    meter.made(size + found * (meter.size(put) - meter.size(gone)))
    return given.replace(gone, put, most)


def indent(meter: RenderMeter, value: Json, width: Json = 4, first: Json = False, blank: Json = False) -> Json:
    given = charged_text(meter, value)
    if type(width) is str:
        if len(width) > 64:
            raise RenderStopped("width must be at most 64 characters")
        pad = width
    else:
        pad = " " * whole_number(width, "width", 0, 64)
    meter.step(given.count("\n"))
    meter.made(meter.size(given) + (given.count("\n") + 1) * meter.size(pad))
    lines = given.split("\n")
    padded = [pad + line if line or blank else line for line in lines[1:]]
    return "\n".join([pad + lines[0] if first else lines[0], *padded])


def truncate(
    meter: RenderMeter,
    value: Json,
    length: Json = 255,
    killwords: Json = False,
    end: Json = "...",
    leeway: Json = 5,
) -> Json:
    given, tail = scalar_text(value), require_string(end, "end")
    room = whole_number(length, "length", len(tail)) - len(tail)
    if len(given) <= room + len(tail) + whole_number(leeway, "leeway", 0):
        return given
    meter.made(room)  # a character is at least a byte; without this a slice of a huge value is made first
    start = given[:room]
    return concat(meter, [start if killwords else start.rsplit(" ", 1)[0], tail])


def wordcount(meter: RenderMeter, value: Json) -> Json:
    given = charged_text(meter, value)
    meter.step(len(given) >> 2)
    return sum(1 for _ in _WORD.finditer(given))


def string_filter(_meter: RenderMeter, value: Json) -> Json:
    return scalar_text(value)


def _measured(meter: RenderMeter, value: Json, indent: int) -> None:
    """Walk a value as the JSON writer will, and pay for it: shared parts are written each time again."""
    total = 0
    pending: list[tuple[Json, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_VALUE_DEPTH:
            raise RenderStopped(f"a value is nested deeper than {MAX_VALUE_DEPTH} levels")
        if type(item) is dict:
            meter.step(2 * len(item))
            total += sum(meter.size(require_string(key, "a key")) + 4 for key in item)
            pending.extend((inner, depth + 1) for inner in item.values())
        elif type(item) is list:
            meter.step(len(item))
            pending.extend((inner, depth + 1) for inner in item)
        else:
            total += meter.size(scalar_text(item))
        meter.step()
        total += 2 + indent * (depth + 1)
        if total > 2 * meter.bounds.string:
            raise RenderStopped(f"a text grows over {meter.bounds.string} bytes")
    meter.step(total >> 8)


def tojson(meter: RenderMeter, value: Json, indent: Json = None) -> Json:
    width = None if indent is None else whole_number(indent, "indent", 0, 8)
    _measured(meter, value, width or 0)
    return _charged_result(meter, json.dumps(value, indent=width, sort_keys=True, ensure_ascii=False))


ARITHMETIC: Final[Mapping[type[nodes.Node], str]] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
}
