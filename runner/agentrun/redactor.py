"""Redaction of known secret values: every encoded form is replaced by a placeholder with the name of the secret.

Rule 1  A value is found as it is, escaped for JSON (also twice: arguments of tool calls are JSON inside JSON),
        escaped for HTML, percent-encoded, in upper and lower case, in base64 at any alignment, and in hex.
Rule 2  If forms overlap, the leftmost wins; if they start at the same place, the longest wins.
Rule 3  Placeholders are never searched, so redacting twice gives the same result as redacting once. If a value itself
        contains placeholders, the parts between them are the values to look for.
Rule 4  A value of a few digits is found only if no other digit is next to it: 123 is not found in 91234.
Rule 5  The time is linear for any number of values. No value appears in a repr or in an error.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any
from urllib.parse import quote_from_bytes

import msgspec
import re2
from msgspec import Struct, ValidationError, convert, to_builtins

from agentrun.canonical_json import StructT, map_json, parse_document
from agentrun.secret import Secret, placeholder

SHORTEST_SECRET = 8
"""Shorter values are not treated as secrets, because redacting them would damage every text. Also used for base64."""

_URL_SAFE = ("", "/", "!*'()", "!$&'()*+,;=", "!$&'()*+,;=:@/?")
"""The characters that URL encoders do not escape: two of Python, one of JavaScript, two of RFC 3986."""
_GO_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
"""Go's JSON encoder escapes the characters that are special in HTML."""
_DOTNET_ESCAPES = str.maketrans({char: f"\\u{ord(char):04X}" for char in "<>&'+`"})
_HTML_QUOTES = ("'", "&#39;", "&#039;", "&#x27;", "&apos;")
_HTML_DOUBLE_QUOTES = ('"', "&quot;", "&#34;")

_compile_text: Callable[[str], Any] = re2.compile  # google-re2 ships no type information
_escape = _compile_text(r"(?s)\\(?:u[0-9a-f]{4}|.)")
_percent = _compile_text(r"%[0-9A-F]{2}")
_ANCHOR = 24
"""RE2 looks for this many bytes of a form. A private key of kilobytes would need an RE2 program of megabytes."""
_MEMORY = 1 << 28  # an upper limit: a few thousand values need a tenth of it
_OPEN = b"[redacted:"
_REVEALING_LENGTH = 4
"""The first characters of a value reveal something about it from this length on."""


def encoded_forms(value: str) -> Iterator[str]:
    # A short value, which a spec selects, would be found in other words.
    cases = (value, value.upper(), value.lower()) if len(value) >= SHORTEST_SECRET else (value,)
    for text in dict.fromkeys([*cases, _as_shown(value)]):
        yield from _text_forms(text)
    for text in dict.fromkeys([value, *_python_json(value)]):
        raw = text.encode("utf-8", "surrogatepass")
        if text != value:
            yield from _percent_cases(quote_from_bytes(raw, ""))
        base64 = (form for encode in (b64encode, urlsafe_b64encode) for form in _base64_forms(raw, encode))
        for form in (raw.hex(), raw.hex().upper(), *base64):
            if len(form) >= SHORTEST_SECRET:
                yield form
                yield quote_from_bytes(form.encode(), "")


def _as_shown(value: str) -> str:
    """A variable may have bytes that are not UTF-8. Python reads them as surrogates, and other readers as U+FFFD."""
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # other surrogates
        return value


def _text_forms(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    yield from (repr(value)[1:-1], ascii(value)[1:-1], repr(raw)[2:-1])
    yield from _json_forms(value)
    yield from _html_forms(value)
    for safe in _URL_SAFE:
        yield from _percent_cases(quote_from_bytes(raw, safe))
    yield from _percent_cases(quote_from_bytes(raw, " ").replace(" ", "+"))


def _python_json(value: str) -> tuple[str, str]:
    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]


def _json_forms(value: str) -> set[str]:
    low, plain = _python_json(value)
    high = _escape.sub(lambda match: "\\u" + match[0][2:].upper() if len(match[0]) > 2 else match[0], low)
    once = {low, plain, high, low.translate(_GO_ESCAPES), plain.translate(_GO_ESCAPES)}
    once.add(high.replace('\\"', "\\u0022").translate(_DOTNET_ESCAPES))
    once |= {text.replace("/", "\\/") for text in once}
    return once | {form for text in once for form in _python_json(text)}


def _html_forms(value: str) -> Iterator[str]:
    plain = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if plain == value and not {"'", '"', "+"} & {*value}:
        return
    for single in _HTML_QUOTES:
        for double in _HTML_DOUBLE_QUOTES:
            yield plain.replace('"', double).replace("'", single)
    yield plain.replace('"', "&#34;").replace("'", "&#39;").replace("+", "&#43;")


def _percent_cases(quoted: str) -> Iterator[str]:
    yield quoted
    yield _percent.sub(lambda match: match[0].lower(), quoted)


def _base64_forms(raw: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """The base64 of the value alone, and the characters that depend only on the value if 0, 1 or 2 bytes precede it."""
    alone = encode(raw).decode()
    yield alone
    yield alone.rstrip("=")
    for before in range(3):
        text = encode(bytes(before) + raw).decode()
        yield text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]


def _compile_bytes(pattern: bytes) -> Any:
    options = re2.Options()
    options.log_errors = False  # RE2 would write the pattern to standard error
    options.encoding = re2.Options.Encoding.LATIN1  # any bytes
    options.never_capture = True
    options.max_mem = _MEMORY
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # RE2 has no types


def _any_of(texts: Iterable[bytes]) -> Any:
    # If the texts are sorted, RE2 builds one tree of them with a third of the states.
    pattern = _compile_bytes(b"|".join(map(re2.escape, sorted(texts))))
    re2.purge()  # type: ignore[no-untyped-call]  # its cache would keep the values in memory
    return pattern


_any_placeholder = _compile_bytes(rb"\[redacted:[^\[\]]*\]")


class _Finder:
    def __init__(self, values: Iterable[tuple[str, Secret]]) -> None:
        self._names: dict[bytes, str] = {}
        names = []
        for name, value in values:
            names.append(name)
            for text in encoded_forms(value.reveal()):
                self._names.setdefault(_bytes(text), name)
        self.placeholders = [placeholder(name) for name in dict.fromkeys(names)]
        self._guarded = {form for form in self._names if form.isdigit() and len(form) < SHORTEST_SECRET}
        self._by_anchor: dict[bytes, list[bytes]] = {}
        for form in sorted(self._names, key=len, reverse=True):
            self._by_anchor.setdefault(form[:_ANCHOR], []).append(form)
        self._lengths = sorted(set(map(len, self._by_anchor)), reverse=True)
        self._begins = _any_of(self._by_anchor)
        self._made = _any_of(map(_bytes, self.placeholders))

    @cached_property
    def tokens(self) -> list[bytes]:
        return sorted({*self._names, *map(_bytes, self.placeholders)})

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.tokens))

    def may_contain(self, data: bytes) -> bool:
        """Whether something begins like a form. One search rules out most data."""
        return self._begins.search(data) is not None

    def placeholder_spans(self, data: bytes, start: int = 0) -> list[tuple[int, int]]:
        return [match.span() for match in self._made.finditer(data, start)] if _OPEN in data else []

    def spans(self, data: bytes, start: int = 0) -> Iterator[tuple[int, int, str]]:
        """The values in some bytes, in order: (start, end, name)."""
        for stop, after in (*self.placeholder_spans(data, start), (len(data), len(data))):
            while (begins := self._begins.search(data, start, stop)) is not None:
                first = begins.start()
                form = self._form_at(data, first, stop)
                start = first + (len(form) or 1)
                if form:
                    yield first, start, self._names[form]
            start = after

    def changes(self, data: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
        return ((first, end, placeholder(name).encode()) for first, end, name in self.spans(data, start))

    def undecided(self, data: bytes, at: int) -> int:
        """The first index from which the rest may be the beginning of a form or placeholder."""
        tokens = self.tokens
        for start in range(max(at, len(data) - self.longest + 1), len(data)):
            rest = data[start:]
            index = bisect_left(tokens, rest)
            index += index < len(tokens) and tokens[index] == rest
            if index < len(tokens) and tokens[index].startswith(rest):
                return start
        return len(data)

    def open_placeholder(self, data: bytes) -> int:
        """The index of a placeholder that is not complete yet, or the length of the data."""
        start = data.rfind(b"[")
        rest = data[start:].decode("utf-8", "replace")
        is_open = start >= 0 and any(one != rest and one.startswith(rest) for one in self.placeholders)
        return start if is_open else len(data)

    def _form_at(self, data: bytes, first: int, stop: int) -> bytes:
        for length in self._lengths:
            for form in self._by_anchor.get(data[first : first + length], ()):
                end = first + len(form)
                if end <= stop and data.startswith(form, first) and not self._has_digit_beside(form, data, first, end):
                    return form
        return b""

    def _has_digit_beside(self, form: bytes, data: bytes, first: int, end: int) -> bool:
        return form in self._guarded and (data[first - 1 : first].isdigit() or data[end : end + 1].isdigit())


class Redactor:
    def __init__(self, values: Iterable[tuple[str, Secret]], *, shortest: int = SHORTEST_SECRET) -> None:
        """Values with fewer characters than `shortest` are ignored. Several may share a name."""
        self._values = [
            (name, Secret(part))
            for name, value in values
            for part in map(_text, _any_placeholder.split(_bytes(value.reveal())))
            if part and len(part) >= shortest
        ]

    @cached_property
    def _finder(self) -> _Finder:
        return _Finder(self._values)

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return f"Redactor({len(self._values)} values)"

    def with_values(self, values: Iterable[tuple[str, Secret]], *, shortest: int = SHORTEST_SECRET) -> Redactor:
        more = Redactor(values, shortest=shortest)
        more._values = self._values + more._values
        return more

    def redact_text(self, text: str) -> str:
        """Redact a text. Returns the same object if it contains no value."""
        data = _bytes(text)
        clean = self.redact_bytes(data)
        return text if clean is data else _text(clean)

    def redact_excerpt(self, text: str) -> str:
        """Redact a text that contains shortened texts: also remove the beginning of a value before `…`."""
        *shortened, last = self.redact_text(text).split("…")
        return "…".join([*map(self._redact_shortened, shortened), last])

    def _redact_shortened(self, text: str) -> str:
        stream = self.stream()
        safe = stream.feed(text)
        return safe if len(stream.end()) >= _REVEALING_LENGTH else text

    def find_first(self, text: str) -> str | None:
        return next((name for _, _, name in self._finder.spans(_bytes(text))), None) if self._values else None

    def redact_bytes(self, data: bytes) -> bytes:
        pieces, at = [], 0
        for start, end, new in self.changes(data):
            pieces += [data[at:start], new]
            at = end
        return b"".join([*pieces, data[at:]]) if pieces else data

    def changes(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """The replacements in bytes, in order: (start, end, new)."""
        return list(self._finder.changes(data)) if self._values and self._finder.may_contain(data) else []

    def redact_string(self, text: str) -> str:
        """Redact a text. If it is JSON, such as the arguments of a call, its values are searched first, without their
        escapes. Returns the same object if it contains no value."""
        if not self._values or ("\\" not in text and self.redact_text(text) is text):
            return text
        data = parse_document(text)
        clean = data if data is None else self.redact_data(data, numbers=True)
        return self.redact_text(text if clean is data else encode_document(clean, text))

    def redact_data(self, value: Any, *, numbers: bool = False) -> Any:
        """Redact the texts and keys of plain JSON data, with `numbers` also its numbers, which become texts. Returns
        the same object if it contains no value."""

        def redact_number(value: float) -> float | str:
            clean = self.redact_text(text := json.dumps(value))
            return value if clean is text else clean

        number: Any = redact_number if numbers else lambda value: value
        return map_json(value, text=self.redact_string, number=number, keys=True)

    def redact_struct(self, struct: StructT) -> StructT:
        """Redact the texts of a struct, such as a fact, and its numbers where a text is possible."""
        if not self._values or self._is_clean(struct):
            return struct
        data = to_builtins(struct)
        clean = self.redact_data(data, numbers=True)
        if clean is data:
            return struct
        try:
            return convert(clean, type(struct))
        except ValidationError:  # a field that must be a number, with the digits of a password by chance
            return convert(self.redact_data(data), type(struct))

    def _is_clean(self, struct: Struct) -> bool:
        """Whether one search finds nothing. A text with a backslash may have a value in inner JSON."""
        try:
            data = msgspec.json.encode(struct)
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
        return b"\\\\" not in data and not self.changes(data)

    def stream(self) -> RedactedStream:
        return RedactedStream(self._finder if self._values else None)


def encode_document(data: Any, before: str) -> str:
    """Encode JSON in one line, with the spaces of its former text after `,` and `:`."""
    separators = (", ", ": ") if '": ' in before else (",", ":")
    text = json.dumps(data, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(data, separators=separators)
    return text


class RedactedStream:
    """Redacts a text that arrives in pieces. All returned pieces together are the redacted text."""

    def __init__(self, finder: _Finder | None) -> None:
        self._finder = finder
        self._before = b""
        """The end of the text that was returned so far, not redacted."""
        self._held = b""

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now. Only a possible beginning of a value is held back."""
        return piece if self._finder is None else self._pass(self._finder, _bytes(piece), ended=False)

    def end(self) -> str:
        return "" if self._finder is None else self._pass(self._finder, b"", ended=True)

    def _pass(self, finder: _Finder, piece: bytes, *, ended: bool) -> str:
        data = self._before + self._held + piece
        at, shown = len(self._before), []
        undecided = len(data) if ended else finder.undecided(data, at)
        opened = len(data) if ended else finder.open_placeholder(data)
        placeholders = ((start, end, data[start:end]) for start, end in finder.placeholder_spans(data, at))
        for start, end, new in sorted([*finder.changes(data, at), *placeholders]):
            if at > undecided:
                undecided = finder.undecided(data, at)
            is_open = not ended and end == len(data) and data[start:end].isdigit()  # see rule 4
            if start >= undecided or start < opened < end or is_open:
                undecided = min(undecided, start)
                break
            shown += [data[at:start], new]
            at = end
        if at > undecided:
            undecided = finder.undecided(data, at)
        shown.append(data[at:undecided])
        self._before, self._held = data[:undecided][-1:], data[undecided:]
        return _text(b"".join(shown))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
