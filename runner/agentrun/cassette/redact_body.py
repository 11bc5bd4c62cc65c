"""Redact a body: replace known values by placeholders.

Rule 1  A body is one JSON document, plain text, or a stream: server-sent events, or lines with a JSON document each.
Rule 2  A document is searched as its reader gets it: texts without their escapes, JSON inside texts, numbers, keys. If
        something is replaced, the document is encoded again; a number becomes a text. Other documents do not change.
        A text becomes what `redact_string` makes of it, which is also what the journal of the run has.
Rule 3  Then the raw bytes are searched, whatever they mean. A replacement that would break JSON is not made, so that
        the check before writing refuses the body.
Rule 4  In a stream, the pieces of one text are at the same place of successive events. There are three ways to group
        them (`GROUPINGS`); all are tried. In a single document, the pieces are the same field of the items of one list.
Rule 5  The chunk borders are kept. A border inside a document or text that was replaced moves to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from agentrun.canonical_json import parse_document
from agentrun.redactor import Redactor, encode_document

STREAM_MARKS = ("index", "output_index", "content_index", "summary_index", "item_id", "thought")
"""Fields of an event that say which of several texts it continues."""
_ROUNDS = 5
"""Removing a value may join the parts of another one, so the search is repeated until nothing is found."""
_BOM = b"\xef\xbb\xbf"
_line = re.compile(rb"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_stem = re.compile(r"[._][a-z]+\Z")


class ByteEdit(NamedTuple):
    start: int
    end: int
    new: bytes


class ChunkedBody(NamedTuple):
    """Bytes, and the sizes of the chunks in which they arrived. Empty: in one."""

    data: bytes
    chunks: tuple[int, ...] = ()


def apply_edits(body: ChunkedBody, edits: Iterable[ByteEdit]) -> ChunkedBody:
    """Apply edits that do not overlap. Returns the same object if there are none."""
    edits = sorted(edits)
    if not edits:
        return body
    pieces = _edited_pieces(body.data, edits, [0, *accumulate(body.chunks)] if body.chunks else [0, len(body.data)])
    return ChunkedBody(b"".join(pieces), tuple(filter(None, map(len, pieces))) if body.chunks else ())


def _edited_pieces(data: bytes, edits: Sequence[ByteEdit], borders: Sequence[int]) -> list[bytes]:
    """The pieces between the borders, after the edits. A border inside an edit moves to its end."""
    parts, moved, at, growth, left = [], [], 0, 0, [*reversed(edits)]
    for border in borders:
        while left and left[-1].end <= border:
            start, end, new = left.pop()
            parts += [data[at:start], new]
            at, growth = end, growth + len(new) - (end - start)
        is_inside = left and left[-1].start < border
        moved.append(growth + (left[-1].start + len(left[-1].new) if is_inside else border))
    whole = b"".join([*parts, data[at:]])
    return [whole[start:end] for start, end in pairwise(moved)]


class BodyDocument(Struct):
    """A JSON document in a body, or an event of a stream that is not JSON."""

    start: int
    end: int
    data: Any
    is_json: bool = True
    is_changed: bool = False


class BodyContents(NamedTuple):
    documents: list[BodyDocument]
    is_stream: bool

    @property
    def leaves(self) -> Iterator[TextLeaf]:
        for document in self.documents:
            yield from _find_leaves(document)

    def group_leaves(self, grouping: Grouping) -> Iterable[list[TextLeaf]]:
        """The pieces of each text. Events that are not JSON are one text."""
        groups: dict[Any, list[TextLeaf]] = {}
        for leaf in self.leaves:
            groups.setdefault(grouping(leaf) if leaf.steps else (), []).append(leaf)
        return groups.values()


class TextLeaf(NamedTuple):
    """A string that is a value (not a key), and its path in the document."""

    document: BodyDocument
    holder: Any
    key: Any
    steps: tuple[str | int, ...]
    objects: tuple[dict[str, Any], ...]
    """The objects around it, outermost first."""

    @property
    def text(self) -> str:
        found: str = self.document.data if self.holder is None else self.holder[self.key]
        return found

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(step for step in self.steps if isinstance(step, str))

    @property
    def kind(self) -> str:
        return str(self.objects[0].get("type", "")) if self.objects else ""

    @property
    def marks(self) -> tuple[Any, ...]:
        """The index fields of the objects around it. Servers often leave out those that are 0 or empty."""
        around = enumerate(reversed(self.objects))
        found = ((depth, mark, one.get(mark)) for depth, one in around for mark in STREAM_MARKS)
        return tuple(each for each in found if each[2] and isinstance(each[2], str | int | float))

    def put(self, text: str) -> None:
        if text != self.text:
            self.document.is_changed = True
            if self.holder is None:
                self.document.data = text
            else:
                self.holder[self.key] = text


Grouping: TypeAlias = Callable[[TextLeaf], Any]
"""Returns the same key for the pieces of one text."""


def _find_leaves(document: BodyDocument) -> Iterator[TextLeaf]:
    left: list[tuple[Any, Any, Any, tuple[str | int, ...], tuple[dict[str, Any], ...]]] = []
    left.append((document.data, None, None, (), ()))
    while left:
        data, holder, key, steps, objects = left.pop()
        match data:
            case str():
                yield TextLeaf(document, holder, key, steps, objects)
            case dict():
                inside = (*objects, data)
                left += [(data[name], data, name, (*steps, name), inside) for name in reversed(data)]
            case list():
                items = reversed([*enumerate(data)])
                left += [(item, data, index, (*steps, index), objects) for index, item in items]


def parse_body(body: bytes) -> BodyContents | None:
    """Find the documents of a body. None: it is neither JSON nor a stream."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    start = len(_BOM) if body.startswith(_BOM) else 0
    data = parse_document(body[start:].decode())
    if data is not None:
        return BodyContents([BodyDocument(start, len(body), data)], is_stream=False)
    return _events(body, start) or _lines(body)


def _events(body: bytes, start: int) -> BodyContents | None:
    payloads: list[list[tuple[int, int]]] = [[]]
    for line in _line.finditer(body, start):
        if not line[1]:
            payloads.append([])
        elif line[1].startswith(b"data:"):
            space = line[1][5:6] == b" "
            payloads[-1].append((line.start() + 5 + space, line.end(1)))
    documents: list[BodyDocument] = []
    for event in filter(None, payloads):
        data = parse_document(b"\n".join(body[start:end] for start, end in event).decode())
        if data is not None:
            documents.append(BodyDocument(event[0][0], event[-1][1], data))
        else:
            documents += [BodyDocument(start, end, body[start:end].decode(), is_json=False) for start, end in event]
    return BodyContents(documents, is_stream=True) if documents else None


def _lines(body: bytes) -> BodyContents | None:
    places = [line.span(1) for line in _line.finditer(body) if line[1].strip()]
    found = [BodyDocument(start, end, parse_document(body[start:end].decode())) for start, end in places]
    if len(found) < 2 or any(document.data is None for document in found):
        return None
    return BodyContents(found, is_stream=True)


GROUPINGS: tuple[Grouping, ...] = (
    # The same field of the same kind of event. List positions count only if the items have an index field.
    lambda leaf: (leaf.keys, leaf.marks, leaf.kind),
    lambda leaf: (leaf.steps, leaf.marks, leaf.kind),
    # One kind of event may continue another: `content_block_start`, `content_block_delta`.
    lambda leaf: (leaf.keys[-1:], leaf.marks, _stem.sub("", leaf.kind)),
)


def _group_by_list(leaf: TextLeaf) -> Any:
    """The same field of the items of one list, because a document may have a text in parts."""
    positions = [index for index, step in enumerate(leaf.steps) if isinstance(step, int)]
    last = positions[-1] if positions else len(leaf.steps)
    return leaf.steps[:last], leaf.steps[last + 1 :]


def redact_body(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    """Replace the values that a redactor knows. Returns the same object if there are none."""
    if not body.data or not redactor:
        return body
    for _ in range(_ROUNDS):
        before = body
        body = _redact_raw(_redact_documents(before, redactor), redactor)
        if body is before:
            break
    return body


def _redact_raw(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    changes = redactor.changes(body.data)
    contents = parse_body(body.data) if changes else None
    if contents is None:
        return apply_edits(body, (ByteEdit(*change) for change in changes))
    for quote in (b"", b'"'):  # quoted: the value is a JSON document inside this one
        raw = apply_edits(body, (ByteEdit(start, end, quote + new + quote) for start, end, new in changes))
        now = parse_body(raw.data)
        if now is not None and _form(now) == _form(contents):
            return raw
    return body


def _redact_documents(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    contents = parse_body(body.data)
    if contents is None:
        return body
    if not contents.is_stream:
        _redact_document(contents.documents[0], redactor)
    for grouping in GROUPINGS if contents.is_stream else (_group_by_list,):
        for group in contents.group_leaves(grouping):
            _redact_pieces(group, redactor)
    edits = []
    for document in contents.documents:
        _redact_document(document, redactor)
        if document.is_changed:
            before = body.data[document.start : document.end].decode()
            text = encode_document(document.data, before) if document.is_json else document.data
            edits.append(ByteEdit(document.start, document.end, text.encode("utf-8", "surrogatepass")))
    return apply_edits(body, edits)


def _form(contents: BodyContents) -> list[bool]:
    return [contents.is_stream, *(document.is_json for document in contents.documents)]


def _redact_document(document: BodyDocument, redactor: Redactor) -> None:
    if document.is_json:  # otherwise it is a piece of a text
        clean = redactor.redact_data(document.data, numbers=True)
        document.is_changed |= clean is not document.data
        document.data = clean


def _redact_pieces(leaves: Sequence[TextLeaf], redactor: Redactor) -> None:
    """Put the placeholder where a value begins, and remove the rest of the value from the pieces that follow."""
    if len(leaves) < 2 and leaves[0].document.is_json:
        return  # it is redacted with its document
    texts = [leaf.text for leaf in leaves]
    joined = "".join(texts)
    clean = redactor.redact_string(joined)
    if clean == joined:
        return
    pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
    edits = [ByteEdit(*change) for change in redactor.changes(b"".join(pieces))]
    cut = _edited_pieces(b"".join(pieces), edits, [0, *accumulate(map(len, pieces))])
    if b"".join(cut) == clean.encode("utf-8", "surrogatepass"):
        texts = [piece.decode("utf-8", "surrogatepass") for piece in cut]
    else:  # JSON with escapes or numbers
        first = next(index for index, text in enumerate(texts) if text)
        texts = [clean if index == first else "" for index in range(len(texts))]
    for leaf, text in zip(leaves, texts, strict=True):
        leaf.put(text)
