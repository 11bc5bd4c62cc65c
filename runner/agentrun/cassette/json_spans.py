"""Find the strings of a body with their positions in its bytes.

Rule 1  A body is one JSON document, plain text, or a stream: server-sent events, or lines with a JSON document each.
Rule 2  Positions are positions in the body. In an event of several lines, the bytes between its payloads count as
        spaces.
Rule 3  A string knows where each of its characters is in the bytes, so that an edit changes nothing around it.
Rule 4  In a stream, the pieces of one text are at the same place of successive events. There are three ways to group
        them (`GROUPINGS`); redaction tries all of them. In a single document, the pieces are the same field of the
        items of one list.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

from msgspec import Struct

JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
JSON_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
)
"""One escaped character. A surrogate pair is one, because not every parser accepts half of it."""

_decoder = json.JSONDecoder(strict=False)
_LONGEST_SCALAR = 128
STREAM_MARKS = ("index", "output_index", "content_index", "summary_index", "item_id", "thought")
"""Fields of an event that say which of several texts it continues."""
_NONE = (b"0", b"false", b"null", b'""')
"""Values that servers often leave out."""
_BOM = b"\xef\xbb\xbf"
_line = re.compile(rb"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_stem = re.compile(rb"[._][a-z]+\"\Z")


def decode_string(token: bytes) -> str:
    """The value of a string token, quotes included."""
    text: str = _decoder.decode(token.decode()) if b"\\" in token else token[1:-1].decode()
    return text


class TextSpan:
    """A string in some bytes, from `start` to `end`, without its quotes."""

    def __init__(self, data: bytes, start: int, end: int, *, escaped: bool = True) -> None:
        self.start = start
        self.end = end
        self._spelled = data[start:end]
        self._is_json = escaped
        self._escaped = escaped and b"\\" in self._spelled

    @cached_property
    def value(self) -> bytes:
        """The unescaped string, in UTF-8."""
        if not self._escaped:
            return self._spelled
        return decode_string(b'"' + self._spelled + b'"').encode("utf-8", "surrogatepass")

    def position_of(self, offset: int) -> int:
        """The position in the bytes of an offset in the value."""
        if not self._escaped:
            return self.start + offset
        offsets, places = self._borders
        index = bisect_right(offsets, offset) - 1
        return self.start + places[index] + offset - offsets[index]

    def encode(self, value: bytes) -> bytes:
        """A replacement, escaped for its place in this string."""
        return json.dumps(value.decode(), ensure_ascii=False)[1:-1].encode() if self._is_json else value

    @cached_property
    def _borders(self) -> tuple[list[int], list[int]]:
        """Matching offsets in the value and in the escaped bytes: before and after each escape."""
        offsets, places, growth = [0], [0], 0
        for escape in JSON_ESCAPE.finditer(self._spelled):
            length = len(decode_string(b'"' + escape[0] + b'"').encode("utf-8", "surrogatepass"))
            offsets.append(escape.start() + growth)
            growth += length - len(escape[0])
            offsets.append(escape.end() + growth)
            places += escape.span()
        return offsets, places


class Frame(Struct):
    """An object or a list on the path to a string."""

    parent: Frame | None
    is_list: bool
    key: str | None = None
    position: int = 0
    scalars: dict[str, bytes] = {}
    """The short strings and numbers of an object, as they are written."""


class TextLeaf:
    """A string that is a value (not a key), and its path in the document."""

    __slots__ = ("objects", "steps", "text")

    def __init__(self, frame: Frame | None, text: TextSpan) -> None:
        steps: list[str | int] = []
        self.objects: list[dict[str, bytes]] = []
        """The scalars of the objects around it, innermost first. Complete only after the whole document is read."""
        while frame is not None:
            if frame.key is None:
                steps.append(frame.position)
            else:
                steps.append(frame.key)
                self.objects.append(frame.scalars)
            frame = frame.parent
        self.steps = tuple(reversed(steps))
        self.text = text


def find_leaves(data: bytes, start: int, end: int) -> Iterator[TextLeaf]:
    frame: Frame | None = None
    for token in JSON_TOKEN.finditer(data, start, end):
        spelled = token[0]
        match spelled[:1]:
            case b"{" | b"[":
                frame = Frame(frame, is_list=spelled == b"[")
            case b"}" | b"]":
                frame = frame and frame.parent
            case b"," if frame is not None:
                frame.position += 1
                frame.key = None
            case b":":
                pass
            case first:
                if frame is not None and not frame.is_list:
                    if frame.key is None:
                        frame.key = decode_string(spelled)
                        continue
                    if len(spelled) <= _LONGEST_SCALAR:
                        frame.scalars[frame.key] = spelled
                if first == b'"':
                    yield TextLeaf(frame, TextSpan(data, token.start() + 1, token.end() - 1))


Grouping: TypeAlias = Callable[[TextLeaf], Any]
"""Returns the same key for the pieces of one text."""


class BodyContents:
    def __init__(self, data: bytes, documents: list[tuple[int, int]], *, is_stream: bool) -> None:
        self.data = data
        """The body, with spaces in place of bytes that are in no document."""
        self.documents = documents
        self.texts: list[TextSpan] = []
        """Events of a stream that are not JSON."""
        self.is_stream = is_stream

    @cached_property
    def leaves(self) -> list[TextLeaf]:
        return [leaf for start, end in self.documents for leaf in find_leaves(self.data, start, end)]

    def group_leaves(self, grouping: Grouping) -> Iterable[list[TextLeaf]]:
        groups: dict[Any, list[TextLeaf]] = {}
        for leaf in self.leaves:
            groups.setdefault(grouping(leaf), []).append(leaf)
        return groups.values()


def parse_body(body: bytes) -> BodyContents | None:
    """Find the documents of a body. None: it is neither JSON nor a stream."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    start = len(_BOM) if body.startswith(_BOM) else 0
    if is_json_document(body[start:]):
        return BodyContents(body, [(start, len(body))], is_stream=False)
    return _events(body) or _lines(body)


def is_json_document(data: bytes) -> bool:
    """Whether it is a JSON object, list or string. A bare number does not count."""
    if data.lstrip(b" \t\r\n")[:1] not in (b"{", b"[", b'"'):
        return False
    try:
        _decoder.decode(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _events(body: bytes) -> BodyContents | None:
    payloads: list[list[tuple[int, int]]] = [[]]
    for line in _line.finditer(body, len(_BOM) if body.startswith(_BOM) else 0):
        if not line[1]:
            payloads.append([])
        elif line[1].startswith(b"data:"):
            space = line[1][5:6] == b" "
            payloads[-1].append((line.start() + 5 + space, line.end(1)))
    events = [payload for payload in payloads if payload]
    if not events:
        return None
    pieces: list[bytes] = []
    at = 0
    for start, end in (place for event in events for place in event):
        pieces += [b" " * (start - at), body[start:end]]
        at = end
    data = b"".join(pieces)
    found = BodyContents(data, [], is_stream=True)
    for event in events:
        start, end = event[0][0], event[-1][1]
        if is_json_document(data[start:end]):
            found.documents.append((start, end))
        else:
            found.texts += [TextSpan(body, *place, escaped=False) for place in event]
    return found


def _lines(body: bytes) -> BodyContents | None:
    places = [line.span(1) for line in _line.finditer(body) if line[1].strip()]
    if len(places) < 2 or not all(is_json_document(body[start:end]) for start, end in places):
        return None
    return BodyContents(body, places, is_stream=True)


def _group_by_path(leaf: TextLeaf) -> Any:
    """The same field of the same kind of event. List positions count only if the items have an index field."""
    return _keys(leaf), _marks(leaf), _kind(leaf)


def _group_by_position(leaf: TextLeaf) -> Any:
    return leaf.steps, _marks(leaf), _kind(leaf)


def _group_by_name(leaf: TextLeaf) -> Any:
    """One kind of event may continue another: `content_block_start`, `content_block_delta`."""
    return _keys(leaf)[-1:], _marks(leaf), _stem.sub(b"", _kind(leaf))


def group_by_list(leaf: TextLeaf) -> Any:
    """The same field of the items of one list, because a document may have a text in parts."""
    positions = [index for index, step in enumerate(leaf.steps) if isinstance(step, int)]
    last = positions[-1] if positions else len(leaf.steps)
    return leaf.steps[:last], leaf.steps[last + 1 :]


def _keys(leaf: TextLeaf) -> tuple[str, ...]:
    return tuple(step for step in leaf.steps if isinstance(step, str))


def _kind(leaf: TextLeaf) -> bytes:
    return leaf.objects[-1].get("type", b"") if leaf.objects else b""


def _marks(leaf: TextLeaf) -> tuple[Any, ...]:
    return tuple(
        (depth, mark, one[mark])
        for depth, one in enumerate(leaf.objects)
        for mark in STREAM_MARKS
        if one.get(mark, b"0") not in _NONE
    )


GROUPINGS: tuple[Grouping, ...] = (_group_by_path, _group_by_position, _group_by_name)
