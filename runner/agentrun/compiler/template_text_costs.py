"""What it costs to read and make text, for operators, filters and methods.

Rule 1  A cost takes the meter and the arguments of its operation. It pays for the worst case that these arguments
        allow, in CPython and in Jinja, and returns the value that the operation works on.
Rule 2  An argument that an operation has no use for is refused, if Python would accept it and its cost is not known.
"""

# ruff: noqa: ARG001 - a cost takes the arguments of its operation, also those that cost nothing

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from markupsafe import Markup

from agentrun.compiler.template_meter import (
    TEXT,
    RenderMeter,
    RenderStopped,
    check_defined,
    check_number,
    describe_value,
)

Cost: TypeAlias = Callable[..., Any]
_MAX_NUMBER_WIDTH: Final = 400
"""The largest number has 309 digits."""
_FIELD: Final = re.compile(r"%(?:\(([^()]*)\))?[-#0 +]*(\d{0,3})(?:\.(\d{0,3}))?[hlL]?([diouxXeEfFgGcsra%])|%")


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
            total += meter.size(value) * longer
        elif letter != "%":
            next(values, None)
            total += _MAX_NUMBER_WIDTH
        meter.reserve(total)
