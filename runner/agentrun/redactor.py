"""Values that are known and must not be shown: found in every form, replaced by the placeholder of their name.

Rule 1  A value is found as it is, escaped for JSON (twice too: arguments of calls are JSON in JSON), percent-encoded,
        inside base64 at any alignment, and in hex.
Rule 2  Of forms that overlap the leftmost counts, of those that begin at one place the longest.
Rule 3  A placeholder is never looked into, so replacing twice is replacing once. A value that itself has placeholders
        in it is known by what stands between them.
Rule 4  A value of a few digits is found only where no other digit touches it: 123 is not in 91234.
Rule 5  A number that is a value in JSON becomes a text: its placeholder is quoted, and the JSON stays JSON.
Rule 6  RE2 finds the places where a form may begin: the time is linear, whatever the number of values.
Rule 7  No value is in a repr or in an error.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any
from urllib.parse import quote_from_bytes

import re2

from agentrun.secret import MASK, Secret, find_secrets, mask_spans

# --- the forms in which a value may stand in a text -----------------------------------------------------------


SHORTEST_SECRET = 8
"""A value that is shorter is no secret, and hiding it would make holes in every text. The same goes for base64."""

_URL_SAFE = ("", "/", "!*'()", "!$&'()*+,;=", "!$&'()*+,;=:@/?")
"""What encoders of addresses leave as it is: Python's two, JavaScript's, and two of the standard."""
_GO_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
"""Some encoders of JSON escape what means something to HTML."""
_DOTNET_ESCAPES = str.maketrans({char: f"\\u{ord(char):04X}" for char in "<>&'+`"})
"""And some more than that."""
_HTML_QUOTES = ("'", "&#39;", "&#039;", "&#x27;", "&apos;")
_HTML_DOUBLE_QUOTES = ('"', "&quot;", "&#34;")

_compile_text: Callable[[str], Any] = re2.compile  # google-re2 ships no type information
_escape = _compile_text(r"(?s)\\(?:u[0-9a-f]{4}|.)")
_percent = _compile_text(r"%[0-9A-F]{2}")


def encoded_forms(value: str) -> Iterator[str]:
    """All forms; some may be equal."""
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    yield repr(value)[1:-1]
    yield from _json_forms(value)
    yield from _html_forms(value)
    for safe in _URL_SAFE:
        yield from _percent_cases(quote_from_bytes(raw, safe))
    yield from _percent_cases(quote_from_bytes(raw, " ").replace(" ", "+"))
    for text in (raw.hex(), raw.hex().upper(), *_base64_forms(raw, b64encode), *_base64_forms(raw, urlsafe_b64encode)):
        if len(text) >= SHORTEST_SECRET:
            yield text
            yield quote_from_bytes(text.encode(), "")


def _json_forms(value: str) -> set[str]:
    low, plain = (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    high = _escape.sub(lambda found: "\\u" + found[0][2:].upper() if len(found[0]) > 2 else found[0], low)
    once = {low, plain, high, low.translate(_GO_ESCAPES), plain.translate(_GO_ESCAPES)}
    once.add(high.replace('\\"', "\\u0022").translate(_DOTNET_ESCAPES))
    once |= {text.replace("/", "\\/") for text in once}
    return once | {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in once for ascii_only in (True, False)}


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
    yield _percent.sub(lambda found: found[0].lower(), quoted)


def _base64_forms(raw: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """Alone, and the characters that the value alone decides when 0, 1 or 2 bytes stand before it."""
    alone = encode(raw).decode()
    yield alone
    yield alone.rstrip("=")
    for before in range(3):
        text = encode(bytes(before) + raw).decode()
        yield text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]


# --- values that are known and must not be shown: found in every form -----------------------------------------


_ANCHOR = 24
"""How much of a form RE2 looks for: a private key of kilobytes would make a program of megabytes."""
_MEMORY = 1 << 28  # allowed, not taken: a few thousand values need a tenth of it
_OPEN = b"[redacted:"

_REVEALING_LENGTH = 4
"""How much of the beginning of a value says something of it."""
_JSON_CONTEXT = 256
"""How far around a number it is looked whether it is JSON."""


def _compile_bytes(pattern: bytes) -> Any:
    options = re2.Options()
    options.log_errors = False  # it would write the pattern to standard error
    options.encoding = re2.Options.Encoding.LATIN1  # any bytes
    options.never_capture = True
    options.max_mem = _MEMORY
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # RE2 has no types


def _any_of(texts: Iterable[bytes]) -> Any:
    # Sorted, RE2 makes one tree of them, with a third of the states.
    pattern = _compile_bytes(b"|".join(map(re2.escape, sorted(texts))))
    re2.purge()  # type: ignore[no-untyped-call]  # it keeps patterns, and values would outlive whoever knows them
    return pattern


_space = rb"(?:[ \t\r\n]|\\+[nrt])*"
_any_placeholder = _compile_bytes(rb"\[redacted:[^\[\]]*\]")
_placeholder = _compile_bytes(rb"\[redacted:[A-Za-z0-9_.-]{1,128}\]")
_number = _compile_bytes(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_before_value = _compile_bytes(rb"[:\[,]" + _space + rb"\z")
_after_value = _compile_bytes(_space + rb"[,\]}]")
_to_the_end = _compile_bytes(_space + rb"\\*\z")


def placeholder(name: str) -> str:
    """What stands in the place of a value. A name has no brackets in it."""
    return f"[redacted:{name}]"


def mask_except_placeholders(text: str) -> str:
    """The text with everything that may be a credential replaced by `***`, but for placeholders."""
    pieces, end = [], 0
    for start, stop in mask_spans_except_placeholders(text):
        pieces += [text[end:start], MASK]
        end = stop
    return "".join(pieces) + text[end:]


def mask_spans_except_placeholders(text: str) -> list[tuple[int, int]]:
    """What is hidden of a text. A placeholder after `token: ` is no secret, and stays whole: it says which one."""
    return [(start, stop) for start, stop in mask_spans(text) if not _is_placeholder(text[start : stop + 1])]


def _is_placeholder(text: str) -> bool:
    """A placeholder, and perhaps a sign after it. What has the shape of a key is no name, also in brackets."""
    found = _placeholder.match(_bytes(text))
    return found is not None and found.end() >= len(text) - 1 and not find_secrets(text)


class _Finder:
    """Finds forms in bytes."""

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
        has_numbers = any(map(_number.fullmatch, self._names))
        self.context = _JSON_CONTEXT if has_numbers else 1
        """How many characters before a place may count for what is found there."""
        self._made = _any_of(map(_bytes, self.placeholders))

    @cached_property
    def tokens(self) -> list[str]:
        """All that a text may be the beginning of, sorted."""
        return sorted({*map(_text, self._names), *self.placeholders})

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.tokens))

    def placeholder_spans(self, data: bytes, start: int = 0) -> list[tuple[int, int]]:
        """Where our placeholders stand."""
        return [found.span() for found in self._made.finditer(data, start)] if _OPEN in data else []

    def spans(self, data: bytes, start: int = 0) -> Iterator[tuple[int, int, str]]:
        if len(data) - start < self._lengths[-1]:
            return
        for stop, after in (*self.placeholder_spans(data, start), (len(data), len(data))):
            while (begins := self._begins.search(data, start, stop)) is not None:
                first = begins.start()
                form = self._form_at(data, first, stop)
                start = first + (len(form) or 1)
                if form:
                    yield first, start, self._names[form]
            start = after

    def changes(self, data: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """What becomes what."""
        for first, end, name in self.spans(data, start):
            quote = _quote(data, first, end) if self.context > 1 else b""
            yield first, end, quote + placeholder(name).encode() + quote

    def _form_at(self, data: bytes, first: int, stop: int) -> bytes:
        for length in self._lengths:
            for form in self._by_anchor.get(data[first : first + length], ()):
                end = first + len(form)
                if end <= stop and data.startswith(form, first) and not self._touched(form, data, first, end):
                    return form
        return b""

    def _touched(self, form: bytes, data: bytes, first: int, end: int) -> bool:
        return form in self._guarded and (data[first - 1 : first].isdigit() or data[end : end + 1].isdigit())


def _quote(data: bytes, start: int, end: int) -> bytes:
    """What makes a text of a number that is a value in JSON, or in JSON in JSON. Empty: it is none."""
    before = data[max(0, start - _JSON_CONTEXT) : start]
    is_value = _number.fullmatch(data, start, end) and _before_value.search(before)
    if not is_value or not _after_value.match(data, end, end + _JSON_CONTEXT):
        return b""
    outside = before[: max(0, before.rfind(b'"'))]
    return b"\\" * (len(outside) - len(outside.rstrip(b"\\"))) + b'"'


class Redactor:
    """Knows values by name."""

    def __init__(self, values: Iterable[tuple[str, Secret]], *, shortest: int = SHORTEST_SECRET) -> None:
        """Values with fewer characters than `shortest` are left alone. Several may share a name."""
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
        """One that knows these too."""
        more = Redactor(values, shortest=shortest)
        more._values = self._values + more._values
        return more

    def redact_text(self, text: str) -> str:
        """A text without the values. Itself, if there are none in it."""
        data = _bytes(text)
        clean = self.redact_bytes(data)
        return text if clean is data else _text(clean)

    def redact_excerpt(self, text: str) -> str:
        """The same of a text in which others were cut: before `…` the beginning of a value is left out as well."""
        *cut, last = self.redact_text(text).split("…")
        return "…".join([*map(self._cut, cut), last])

    def _cut(self, text: str) -> str:
        passing = self.stream()
        sure = passing.feed(text)
        return sure if len(passing.end()) >= _REVEALING_LENGTH else text

    def find_first(self, text: str) -> str | None:
        """The name of the first value in a text."""
        return next((name for _, _, name in self._byte_spans(text)), None)

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where values stand, in order: (start, end, name)."""
        spans = list(self._byte_spans(text))
        if not spans or text.isascii():
            return spans
        data, at, chars, moved = _bytes(text), 0, 0, []
        for start, end, name in spans:
            first = chars + len(_text(data[at:start]))
            chars = first + len(_text(data[start:end]))
            at = end
            moved.append((first, chars, name))
        return moved

    def redact_bytes(self, data: bytes) -> bytes:
        """Bytes without the values: forms are looked for as UTF-8."""
        pieces, at = [], 0
        for start, end, new in self.changes(data):
            pieces += [data[at:start], new]
            at = end
        return b"".join([*pieces, data[at:]]) if pieces else data

    def changes(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """What becomes what in bytes, in order: (start, end, new)."""
        return list(self._finder.changes(data)) if self._values else []

    def redact_data(self, value: Any) -> Any:
        """Plain JSON data without the values, in texts and in keys. The same object, if there are none in it."""
        match value:
            case str():
                return self.redact_text(value)
            case dict():
                items = [(self.redact_data(key), self.redact_data(item)) for key, item in value.items()]
                same = all(a is b and c is d for (a, c), (b, d) in zip(items, value.items(), strict=True))
                return value if same else dict(items)
            case list() | tuple():
                parts = [self.redact_data(item) for item in value]
                return value if all(map(_is, parts, value)) else type(value)(parts)
        return value

    def stream(self) -> RedactedStream:
        """For a text that comes in pieces."""
        return RedactedStream(self._finder if self._values else None)

    def _byte_spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Spans in the text's bytes."""
        return self._finder.spans(_bytes(text)) if self._values else iter(())


class RedactedStream:
    """A text on its way: what was given out of all pieces together is the redacted text."""

    def __init__(self, finder: _Finder | None) -> None:
        self._finder = finder
        self._before = ""
        """What was shown last, as it came."""
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may be shown now. Held back is only what may still become a value."""
        if self._finder is None:
            return piece
        return self._pass(self._before + self._held + piece, ended=False)

    def end(self) -> str:
        """The rest."""
        return "" if self._finder is None else self._pass(self._before + self._held, ended=True)

    def _pass(self, text: str, *, ended: bool) -> str:
        assert self._finder is not None
        at, shown = len(self._before), []
        undecided = len(text) if ended else self._undecided(text, at)
        opened = len(text) if ended else self._open_placeholder(text)
        for start, end, new in self._tokens(text, at):
            if at > undecided:
                undecided = self._undecided(text, at)
            if start >= undecided or start < opened < end or (not ended and self._unsure(text, start, end)):
                undecided = min(undecided, start)
                break
            shown += [text[at:start], new]
            at = end
        if at > undecided:
            undecided = self._undecided(text, at)
        shown.append(text[at:undecided])
        self._before, self._held = text[:undecided][-self._finder.context :], text[undecided:]
        return "".join(shown)

    def _tokens(self, text: str, at: int) -> Iterator[tuple[int, int, str]]:
        """Values and placeholders from a place on, in order, with what is shown of them."""
        assert self._finder is not None
        data = _bytes(text)
        first = len(_bytes(text[:at]))
        found = [(start, end, new.decode()) for start, end, new in self._finder.changes(data, first)]
        found += [(start, end, data[start:end].decode()) for start, end in self._finder.placeholder_spans(data, first)]
        for start, end, new in sorted(found):
            yield (start, end, new) if text.isascii() else (_chars(data, start), _chars(data, end), new)

    def _undecided(self, text: str, at: int) -> int:
        """The first place from which all the rest is the beginning of something."""
        assert self._finder is not None
        tokens, longest = self._finder.tokens, self._finder.longest
        for start in range(max(at, len(text) - longest + 1), len(text)):
            rest = text[start:]
            index = bisect_left(tokens, rest)
            index += index < len(tokens) and tokens[index] == rest
            if index < len(tokens) and tokens[index].startswith(rest):
                return start
        return len(text)

    def _unsure(self, text: str, start: int, end: int) -> bool:
        """Whether what follows a number decides what becomes of it, and is not here yet."""
        rest = _bytes(text[end:])
        is_number = _number.fullmatch(_bytes(text[start:end])) is not None
        return is_number and len(rest) < _JSON_CONTEXT and _to_the_end.match(rest) is not None

    def _open_placeholder(self, text: str) -> int:
        """Where a placeholder begins that is not whole yet."""
        assert self._finder is not None
        start = text.rfind("[")
        rest = text[start:]
        is_open = start >= 0 and any(one != rest and one.startswith(rest) for one in self._finder.placeholders)
        return start if is_open else len(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _chars(data: bytes, end: int) -> int:
    return len(_text(data[:end]))


def _is(one: object, other: object) -> bool:
    return one is other
