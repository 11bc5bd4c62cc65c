"""The operators, methods, tests and functions of templates, each with its cost.

A method, test or function is allowed only if its cost is in a table. `template_meter.py` says what a cost is.
"""

# ruff: noqa: ARG001 - a cost takes the arguments of its operation, including those that cost nothing

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2.runtime import LoopContext
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Namespace
from markupsafe import Markup

from agentrun.compiler.template_meter import (
    LISTS,
    TEXT,
    VIEWS,
    Cost,
    RenderMeter,
    RenderStopped,
    check_number,
    escaped_length,
    pay_format,
    pay_nothing,
    pay_padding,
    pay_replace,
    pay_same_length,
    pay_strip,
    pay_words,
)


def pay_operator(meter: RenderMeter, sign: str, left: Any, right: Any) -> None:
    """Pay for `left sign right`."""
    meter.step()
    if type(left) in VIEWS or type(right) in VIEWS:
        raise RenderStopped("`keys()`, `values()` and `items()` have no operators: add `|list`")
    bits = check_number(left).bit_length(), check_number(right).bit_length()
    meter.step(bits[1] >> 4 if sign == "**" else 0)
    if sign == "+" and type(left) in TEXT and type(right) in TEXT:
        is_markup = Markup in (type(left), type(right))
        meter.reserve(sum(escaped_length(part) if is_markup else len(part) for part in (left, right)))
    elif sign == "+" and type(left) in LISTS and type(right) in LISTS:
        meter.step(len(left) + len(right))
    elif (sign == "*" and sum(bits) > 512) or (sign == "**" and _power_bits(left, right) > 512):
        check_number(1 << 513)
    elif sign == "*":
        for repeated, times in ((left, right), (right, left)):
            if type(repeated) in TEXT:
                meter.reserve(len(repeated) * check_number(times))
            elif type(repeated) in LISTS:
                meter.step(len(repeated) * max(0, check_number(times)))
    elif sign == "%" and type(left) in TEXT:
        pay_format(meter, left, right)


def _power_bits(left: Any, right: Any) -> int:
    """The bits of `left ** right` at most, if it is a whole number. With a negative exponent it is a float."""
    numbers = isinstance(left, int) and isinstance(right, int)
    return (abs(left) - 1).bit_length() * right if numbers and left else 0


def _expandtabs(meter: RenderMeter, value: str, tabsize: Any = 8) -> None:
    meter.reserve(len(value) + value.count("\t") * max(0, check_number(tabsize)))


def _join_method(meter: RenderMeter, value: str, iterable: Any) -> None:
    """`', '.join(list)`. A generator is a list already."""
    total = 0
    for item in meter.items(iterable):
        is_escaped = type(value) is Markup and type(item) in TEXT
        meter.step()
        total += len(value) + (escaped_length(item) if is_escaped else meter.printed_size(item))
        meter.reserve(total - len(value))


def _look(meter: RenderMeter, value: str) -> None:
    """`isdigit()` and the like."""
    meter.step(1 + (len(value) >> 8))


def _find(meter: RenderMeter, value: str, part: Any, *_: Any) -> None:
    meter.search(value, part if type(part) in TEXT else "")


def _find_backwards(meter: RenderMeter, value: str, part: Any, *_: Any) -> None:
    meter.search(value, part if type(part) in TEXT else "", backwards=True)


def _affix(meter: RenderMeter, value: str, part: Any, *_: Any) -> None:
    """`startswith('a')`, with a text or a tuple; `removesuffix('a')`."""
    meter.size(part)


def _split(meter: RenderMeter, value: str, sep: Any = None, maxsplit: Any = -1) -> None:
    meter.search(pay_words(meter, value), sep if type(sep) in TEXT else "")


def _split_backwards(meter: RenderMeter, value: str, sep: Any = None, maxsplit: Any = -1) -> None:
    meter.search(pay_words(meter, value), sep if type(sep) in TEXT else "", backwards=True)


def _partition(meter: RenderMeter, value: str, sep: Any) -> None:
    _find(meter, value, sep)
    meter.pay_characters(len(value))


def _partition_backwards(meter: RenderMeter, value: str, sep: Any) -> None:
    _find_backwards(meter, value, sep)
    meter.pay_characters(len(value))


def _search_list(meter: RenderMeter, value: Any, item: Any, *_: Any) -> None:
    meter.contains(value, item)


def _copy(meter: RenderMeter, value: Any) -> None:
    meter.step(len(value))


def _get(meter: RenderMeter, value: Any, key: Any, default: Any = None) -> None:
    meter.key(key)


def _changed(meter: RenderMeter, loop: LoopContext, *values: Any) -> None:
    meter.size(values)


_STR: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(("capitalize", "casefold", "lower", "swapcase", "title", "upper"), pay_same_length),
    **dict.fromkeys(("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower"), _look),
    **dict.fromkeys(("isnumeric", "isprintable", "isspace", "istitle", "isupper"), _look),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), pay_padding),
    **dict.fromkeys(("lstrip", "rstrip", "strip"), pay_strip),
    **dict.fromkeys(("count", "find", "index"), _find),
    **dict.fromkeys(("rfind", "rindex"), _find_backwards),
    **dict.fromkeys(("endswith", "removeprefix", "removesuffix", "startswith"), _affix),
    "expandtabs": _expandtabs,
    "join": _join_method,
    "partition": _partition,
    "replace": pay_replace,
    "rpartition": _partition_backwards,
    "rsplit": _split_backwards,
    "split": _split,
    "splitlines": pay_words,
}
METHODS: Final[Mapping[type, Mapping[str, Cost]]] = {
    **dict.fromkeys(TEXT, _STR),
    **dict.fromkeys((*LISTS, range), dict.fromkeys(("count", "index"), _search_list)),
    list: {"copy": _copy, "count": _search_list, "index": _search_list},
    dict: {"copy": _copy, "get": _get, **dict.fromkeys(("items", "keys", "values"), pay_nothing)},
    LoopContext: {"changed": _changed, "cycle": pay_nothing},
}
"""The methods of values: all that can be called."""


def _equal(meter: RenderMeter, value: Any, other: Any = None) -> None:
    meter.compare(value, other)


def _remainder(meter: RenderMeter, value: Any, num: Any = 2) -> None:
    """`odd`, `even` and `divisibleby` use `%`, which would format a text."""
    if type(value) in TEXT:
        raise RenderStopped("text cannot be odd, even or divisible")
    pay_operator(meter, "%", value, num)


def _upper_or_lower(meter: RenderMeter, value: Any) -> None:
    _look(meter, meter.text(value))


_COMPARING: Final = (
    *("==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">=", "<", "lt", "lessthan", "<=", "le"),
)
TESTS: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(sorted(JINJA_TESTS.keys() - {"callable", "escaped", "filter", "test"}), pay_nothing),
    **dict.fromkeys(_COMPARING, _equal),
    **dict.fromkeys(("divisibleby", "even", "odd"), _remainder),
    **dict.fromkeys(("lower", "upper"), _upper_or_lower),
}
"""The tests of templates (`x is defined`): all there are. `in` is that of the environment."""


def _range(meter: RenderMeter, /, *ends: Any) -> range:
    for end in ends:
        check_number(end)
    numbers = range(*ends)
    if len(numbers) > meter.bounds.range:
        raise RenderStopped(f"`range` gives more than {meter.bounds.range} numbers")
    return numbers


def _dict(meter: RenderMeter, /, *args: Any, **kwargs: Any) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for given in args[:1]:
        for key, value in given.items() if type(given) is dict else meter.items(given):
            pairs[meter.key(key)] = value
    return dict(pairs, *args[1:], **kwargs)  # more than one argument is an error of `dict`


def _namespace(meter: RenderMeter, /, *args: Any, **kwargs: Any) -> Namespace:
    return Namespace(_dict(meter, *args, **kwargs))


FUNCTIONS: Final[Mapping[str, Cost]] = {"dict": _dict, "namespace": _namespace, "range": _range}
"""The functions of templates: all there are. They pay, and do their work."""
