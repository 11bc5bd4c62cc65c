"""The filters that give text.

Rule 1  The size of a result is known, and paid for, before the result is made.
Rule 2  Lines end with `\\n`, capitals are Unicode's, JSON has sorted keys: no locale, hash seed or platform.
"""

from __future__ import annotations

import json
import re
from typing import Final

from agentrun.compiler.template_language.meter import DEEPEST, Json, Meter, Stop, concat, string, text, whole

_WORD_START: Final = re.compile(r"([-\s({\[<]+)")
_WORD: Final = re.compile(r"\w+")


def taken(meter: Meter, value: Json) -> str:
    """The text a filter works on, paid for as if it were copied once."""
    result = text(value)
    meter.made(meter.size(result))
    return result


def _given(meter: Meter, value: str) -> str:
    """A text that may have grown a little: 'ß' is 'SS' in capitals."""
    meter.made(meter.size(value))
    return value


def upper(meter: Meter, value: Json) -> Json:
    return _given(meter, taken(meter, value).upper())


def lower(meter: Meter, value: Json) -> Json:
    return _given(meter, taken(meter, value).lower())


def capitalize(meter: Meter, value: Json) -> Json:
    return _given(meter, taken(meter, value).capitalize())


def title(meter: Meter, value: Json) -> Json:
    given = taken(meter, value)
    meter.step(len(given))  # a list of a million words takes more memory than the text
    words = _WORD_START.split(given)
    return _given(meter, "".join(word[:1].upper() + word[1:].lower() for word in words))


def trim(meter: Meter, value: Json, chars: Json = None) -> Json:
    given = taken(meter, value)
    if chars is None:
        return given.strip()
    if len(string(chars, "chars")) > 64:  # strip() looks through `chars` once per character
        raise Stop("chars must be at most 64 characters")
    return given.strip(string(chars, "chars"))


def replace(meter: Meter, value: Json, old: Json, new: Json, count: Json = None) -> Json:
    given, gone, put = text(value), string(old, "what is replaced"), string(new, "the replacement")
    if not gone:  # Python would put the replacement between any two characters
        raise Stop("what is replaced must not be empty")
    most = -1 if count is None else whole(count, "count", 0)
    size = meter.size(given)
    meter.search(given, gone)
    found = given.count(gone) if most < 0 else min(most, given.count(gone))
    meter.made(size + found * (meter.size(put) - meter.size(gone)))
    return given.replace(gone, put, most)


def indent(meter: Meter, value: Json, width: Json = 4, first: Json = False, blank: Json = False) -> Json:
    given = taken(meter, value)
    if type(width) is str:
        if len(width) > 64:
            raise Stop("width must be at most 64 characters")
        pad = width
    else:
        pad = " " * whole(width, "width", 0, 64)
    meter.step(given.count("\n"))
    meter.made(meter.size(given) + (given.count("\n") + 1) * meter.size(pad))
    lines = given.split("\n")
    padded = [pad + line if line or blank else line for line in lines[1:]]
    return "\n".join([pad + lines[0] if first else lines[0], *padded])


def truncate(
    meter: Meter,
    value: Json,
    length: Json = 255,
    killwords: Json = False,
    end: Json = "...",
    leeway: Json = 5,
) -> Json:
    given, tail = text(value), string(end, "end")
    room = whole(length, "length", len(tail)) - len(tail)
    if len(given) <= room + len(tail) + whole(leeway, "leeway", 0):
        return given
    meter.made(room)  # a character is at least a byte; without this a slice of a huge value is made first
    start = given[:room]
    return concat(meter, [start if killwords else start.rsplit(" ", 1)[0], tail])


def wordcount(meter: Meter, value: Json) -> Json:
    given = taken(meter, value)
    meter.step(len(given) >> 2)
    return sum(1 for _ in _WORD.finditer(given))


def as_text(_meter: Meter, value: Json) -> Json:
    return text(value)


def _measured(meter: Meter, value: Json, indent: int) -> None:
    """Walk a value as the JSON writer will, and pay for it: shared parts are written each time again."""
    total = 0
    pending: list[tuple[Json, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > DEEPEST:
            raise Stop(f"a value is nested deeper than {DEEPEST} levels")
        if type(item) is dict:
            meter.step(2 * len(item))
            total += sum(meter.size(string(key, "a key")) + 4 for key in item)
            pending.extend((inner, depth + 1) for inner in item.values())
        elif type(item) is list:
            meter.step(len(item))
            pending.extend((inner, depth + 1) for inner in item)
        else:
            total += meter.size(text(item))
        meter.step()
        total += 2 + indent * (depth + 1)
        if total > 2 * meter.bounds.string:
            raise Stop(f"a text grows over {meter.bounds.string} bytes")
    meter.step(total >> 8)


def tojson(meter: Meter, value: Json, indent: Json = None) -> Json:
    width = None if indent is None else whole(indent, "indent", 0, 8)
    _measured(meter, value, width or 0)
    return _given(meter, json.dumps(value, indent=width, sort_keys=True, ensure_ascii=False))
