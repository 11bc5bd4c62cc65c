"""The forms in which a value may stand in a text.

As it is, escaped for JSON once and twice (arguments of calls are JSON in JSON), in HTML, percent-encoded, in base64
with anything around it, in hex, and as Python writes it into errors.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import re2

SHORTEST = 8
"""A value that is shorter is no secret, and hiding it would make holes in every text. The same goes for base64."""

_SAFE = ("", "/", "!*'()", "!$&'()*+,;=", "!$&'()*+,;=:@/?")
"""What encoders of addresses leave as it is: Python's two, JavaScript's, and two of the standard."""
_GO = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
"""Some encoders of JSON escape what means something to HTML."""
_NET = str.maketrans({char: f"\\u{ord(char):04X}" for char in "<>&'+`"})
"""And some more than that."""
_QUOTES = ("'", "&#39;", "&#039;", "&#x27;", "&apos;")
_DOUBLE = ('"', "&quot;", "&#34;")

_compile: Callable[[str], Any] = re2.compile  # google-re2 ships no type information
_escape = _compile(r"(?s)\\(?:u[0-9a-f]{4}|.)")
_percent = _compile(r"%[0-9A-F]{2}")


def forms(value: str) -> Iterator[str]:
    """All forms; some may be equal."""
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    yield repr(value)[1:-1]
    yield from _escaped(value)
    yield from _in_html(value)
    for safe in _SAFE:
        yield from _both_cases(quote_from_bytes(raw, safe))
    yield from _both_cases(quote_from_bytes(raw, " ").replace(" ", "+"))
    for text in (raw.hex(), raw.hex().upper(), *_base64(raw, b64encode), *_base64(raw, urlsafe_b64encode)):
        if len(text) >= SHORTEST:
            yield text
            yield quote_from_bytes(text.encode(), "")


def _escaped(value: str) -> set[str]:
    low, plain = (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    high = _escape.sub(lambda found: "\\u" + found[0][2:].upper() if len(found[0]) > 2 else found[0], low)
    once = {low, plain, high, low.translate(_GO), plain.translate(_GO)}
    once.add(high.replace('\\"', "\\u0022").translate(_NET))
    once |= {text.replace("/", "\\/") for text in once}
    return once | {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in once for ascii_only in (True, False)}


def _in_html(value: str) -> Iterator[str]:
    plain = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if plain == value and not {"'", '"', "+"} & {*value}:
        return
    for single in _QUOTES:
        for double in _DOUBLE:
            yield plain.replace('"', double).replace("'", single)
    yield plain.replace('"', "&#34;").replace("'", "&#39;").replace("+", "&#43;")


def _both_cases(quoted: str) -> Iterator[str]:
    yield quoted
    yield _percent.sub(lambda found: found[0].lower(), quoted)


def _base64(raw: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """Alone, and the characters that the value alone decides when 0, 1 or 2 bytes stand before it."""
    alone = encode(raw).decode()
    yield alone
    yield alone.rstrip("=")
    for before in range(3):
        text = encode(bytes(before) + raw).decode()
        yield text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
