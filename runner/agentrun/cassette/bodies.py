"""What a body is made of: one JSON document, a stream of them, or text.

Rule 1  A stream is server-sent events, or lines of which each is a document.
Rule 2  Places are places in the body. Where an event has several lines, what stands between them is taken as spaces.
Rule 3  The texts of a stream that belong together are those at the same place of successive events, whatever its
        format. There are three ways to tell (`GROUPINGS`); a value that one of them finds is found.
Rule 4  In a single document they are the same field of the items of a list: what came in pieces may be sent so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeAlias

from agentrun.cassette.leaves import Leaf, Text, leaves

Grouping: TypeAlias = Callable[[Leaf], Any]
"""What the texts that belong together have in common."""

_MARKS = ("index", "output_index", "content_index", "summary_index", "item_id", "thought")
"""Fields that tell which of several texts an event brings a piece of."""
_NONE = (b"0", b"false", b"null", b'""')
"""Values of them that are often left out."""
_decoder = json.JSONDecoder(strict=False)
_BOM = b"\xef\xbb\xbf"

_line = re.compile(rb"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_stem = re.compile(rb"[._][a-z]+\"\Z")


class Contents:
    """The documents in a body."""

    def __init__(self, data: bytes, documents: list[tuple[int, int]], *, is_stream: bool) -> None:
        self.data = data
        """The body, with spaces for what is not in a document."""
        self.documents = documents
        """Where they stand."""
        self.texts: list[Text] = []
        """Events of a stream that are no JSON."""
        self.is_stream = is_stream

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The texts of the documents, in order."""
        return [leaf for start, end in self.documents for leaf in leaves(self.data, start, end)]

    def together(self, grouping: Grouping) -> Iterable[list[Leaf]]:
        """The texts that belong together."""
        groups: dict[Any, list[Leaf]] = {}
        for leaf in self.leaves:
            groups.setdefault(grouping(leaf), []).append(leaf)
        return groups.values()


def contents(body: bytes) -> Contents | None:
    """None: it is neither JSON nor a stream."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    start = len(_BOM) if body.startswith(_BOM) else 0
    if is_document(body[start:]):
        return Contents(body, [(start, len(body))], is_stream=False)
    return _events(body) or _lines(body)


def is_document(data: bytes) -> bool:
    """Whether it is JSON. A number alone is a text."""
    if data.lstrip(b" \t\r\n")[:1] not in (b"{", b"[", b'"'):
        return False
    try:
        _decoder.decode(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _events(body: bytes) -> Contents | None:
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
    found = Contents(data, [], is_stream=True)
    for event in events:
        start, end = event[0][0], event[-1][1]
        if is_document(data[start:end]):
            found.documents.append((start, end))
        else:
            found.texts += [Text(body, *place, escaped=False) for place in event]
    return found


def _lines(body: bytes) -> Contents | None:
    places = [line.span(1) for line in _line.finditer(body) if line[1].strip()]
    if len(places) < 2 or not all(is_document(body[start:end]) for start, end in places):
        return None
    return Contents(body, places, is_stream=True)


def _by_path(leaf: Leaf) -> Any:
    """The same field of the same kind of event. Positions in lists count only if the items say so themselves."""
    return _keys(leaf), _marks(leaf), _kind(leaf)


def _by_position(leaf: Leaf) -> Any:
    return leaf.steps, _marks(leaf), _kind(leaf)


def _by_name(leaf: Leaf) -> Any:
    """What one kind of event begins, another goes on with: `content_block_start`, `content_block_delta`."""
    return _keys(leaf)[-1:], _marks(leaf), _stem.sub(b"", _kind(leaf))


def by_list(leaf: Leaf) -> Any:
    """The same field of the items of one list: a document may have a text in parts."""
    positions = [index for index, step in enumerate(leaf.steps) if isinstance(step, int)]
    last = positions[-1] if positions else len(leaf.steps)
    return leaf.steps[:last], leaf.steps[last + 1 :]


def _keys(leaf: Leaf) -> tuple[str, ...]:
    return tuple(step for step in leaf.steps if isinstance(step, str))


def _kind(leaf: Leaf) -> bytes:
    return leaf.objects[-1].get("type", b"") if leaf.objects else b""


def _marks(leaf: Leaf) -> tuple[Any, ...]:
    return tuple(
        (depth, mark, one[mark])
        for depth, one in enumerate(leaf.objects)
        for mark in _MARKS
        if one.get(mark, b"0") not in _NONE
    )


GROUPINGS: tuple[Grouping, ...] = (_by_path, _by_position, _by_name)
