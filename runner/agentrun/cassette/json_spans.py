"""The texts in a JSON document, with their places in its bytes.

Rule 1  Only what is JSON comes here: nothing is checked again.
Rule 2  A text knows where each of its characters is spelled, so that a change touches nothing around it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
JSON_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
)
"""One character. Both halves of a pair are one: half of it alone is not JSON to everybody."""


_string_decoder = json.JSONDecoder(strict=False)


def decode_string(token: bytes) -> str:
    """What a text in quotes says."""
    text: str = _string_decoder.decode(token.decode()) if b"\\" in token else token[1:-1].decode()
    return text


class TextSpan:
    """A piece of text in some bytes, from `start` to `end`, without its quotes."""

    def __init__(self, data: bytes, start: int, end: int, *, escaped: bool = True) -> None:
        self.start = start
        self.end = end
        self._spelled = data[start:end]
        self._is_json = escaped
        self._escaped = escaped and b"\\" in self._spelled

    @cached_property
    def value(self) -> bytes:
        """What it says, in UTF-8."""
        if not self._escaped:
            return self._spelled
        return decode_string(b'"' + self._spelled + b'"').encode("utf-8", "surrogatepass")

    def position_of(self, offset: int) -> int:
        """Where what is at an offset of the value stands in the bytes."""
        if not self._escaped:
            return self.start + offset
        offsets, places = self._borders
        index = bisect_right(offsets, offset) - 1
        return self.start + places[index] + offset - offsets[index]

    def encode(self, value: bytes) -> bytes:
        """How something is spelled that takes a place in it."""
        return json.dumps(value.decode(), ensure_ascii=False)[1:-1].encode() if self._is_json else value

    @cached_property
    def _borders(self) -> tuple[list[int], list[int]]:
        """Offsets in the value and in its spelling that belong together: before and after each escape."""
        offsets, places, growth = [0], [0], 0
        for escape in JSON_ESCAPE.finditer(self._spelled):
            length = len(decode_string(b'"' + escape[0] + b'"').encode("utf-8", "surrogatepass"))
            offsets.append(escape.start() + growth)
            growth += length - len(escape[0])
            offsets.append(escape.end() + growth)
            places += escape.span()
        return offsets, places


class Frame:
    """An object or a list on the way to a text."""

    __slots__ = ("is_list", "key", "parent", "position", "scalars")

    def __init__(self, parent: Frame | None, *, is_list: bool) -> None:
        self.parent = parent
        self.is_list = is_list
        self.key: str | None = None
        self.position = 0
        self.scalars: dict[str, bytes] = {}
        """The short texts and numbers in an object, as they are spelled."""


class TextLeaf:
    """A text that is a value, and where in the document it is."""

    __slots__ = ("objects", "steps", "text")

    def __init__(self, frame: Frame | None, text: TextSpan) -> None:
        steps: list[str | int] = []
        self.objects: list[dict[str, bytes]] = []
        """What else is in the objects around it, from the inside out. Whole only when the document is read."""
        while frame is not None:
            if frame.key is None:
                steps.append(frame.position)
            else:
                steps.append(frame.key)
                self.objects.append(frame.scalars)
            frame = frame.parent
        self.steps = tuple(reversed(steps))
        """Keys, and positions in lists."""
        self.text = text


_LONGEST_SCALAR = 128


def find_leaves(data: bytes, start: int, end: int) -> Iterator[TextLeaf]:
    """The texts of one document that are values."""
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


# --- what a body is made of: one JSON document, a stream of them, or text -------------------------------------


Grouping: TypeAlias = Callable[[TextLeaf], Any]
"""What the texts that belong together have in common."""

_MARKS = ("index", "output_index", "content_index", "summary_index", "item_id", "thought")
"""Fields that tell which of several texts an event brings a piece of."""
_NONE = (b"0", b"false", b"null", b'""')
"""Values of them that are often left out."""
_decoder = json.JSONDecoder(strict=False)
_BOM = b"\xef\xbb\xbf"

_line = re.compile(rb"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_stem = re.compile(rb"[._][a-z]+\"\Z")


class BodyContents:
    """The documents in a body."""

    def __init__(self, data: bytes, documents: list[tuple[int, int]], *, is_stream: bool) -> None:
        self.data = data
        """The body, with spaces for what is not in a document."""
        self.documents = documents
        """Where they stand."""
        self.texts: list[TextSpan] = []
        """Events of a stream that are no JSON."""
        self.is_stream = is_stream

    @cached_property
    def leaves(self) -> list[TextLeaf]:
        """The texts of the documents, in order."""
        return [leaf for start, end in self.documents for leaf in find_leaves(self.data, start, end)]

    def group_leaves(self, grouping: Grouping) -> Iterable[list[TextLeaf]]:
        """The texts that belong together."""
        groups: dict[Any, list[TextLeaf]] = {}
        for leaf in self.leaves:
            groups.setdefault(grouping(leaf), []).append(leaf)
        return groups.values()


def parse_body(body: bytes) -> BodyContents | None:
    """None: it is neither JSON nor a stream."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    start = len(_BOM) if body.startswith(_BOM) else 0
    if is_json_document(body[start:]):
        return BodyContents(body, [(start, len(body))], is_stream=False)
    return _events(body) or _lines(body)


def is_json_document(data: bytes) -> bool:
    """Whether it is JSON. A number alone is a text."""
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
    """The same field of the same kind of event. Positions in lists count only if the items say so themselves."""
    return _keys(leaf), _marks(leaf), _kind(leaf)


def _group_by_position(leaf: TextLeaf) -> Any:
    return leaf.steps, _marks(leaf), _kind(leaf)


def _group_by_name(leaf: TextLeaf) -> Any:
    """What one kind of event begins, another goes on with: `content_block_start`, `content_block_delta`."""
    return _keys(leaf)[-1:], _marks(leaf), _stem.sub(b"", _kind(leaf))


def group_by_list(leaf: TextLeaf) -> Any:
    """The same field of the items of one list: a document may have a text in parts."""
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
        for mark in _MARKS
        if one.get(mark, b"0") not in _NONE
    )


GROUPINGS: tuple[Grouping, ...] = (_group_by_path, _group_by_position, _group_by_name)
