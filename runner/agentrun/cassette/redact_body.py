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

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from agentrun.redactor import Redactor, placeholder

STREAM_MARKS = ("index", "output_index", "content_index", "summary_index", "item_id", "thought")
"""Fields of an event that say which of several texts it continues."""
_ROUNDS = 5
"""Removing a value may join the parts of another one, so the search is repeated until nothing is found."""
_BOM = b"\xef\xbb\xbf"
_line = re.compile(rb"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_stem = re.compile(r"[._][a-z]+\Z")


class SpelledFloat(float):
    """A number that knows how it was written, such as 12.50."""

    def __init__(self, spelled: str) -> None:
        self.spelled = spelled


_decoder = json.JSONDecoder(strict=False, parse_float=SpelledFloat)


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
    pieces: list[bytes] = []
    at = 0
    for start, end, new in edits:
        pieces += [body.data[at:start], new]
        at = end
    data = b"".join([*pieces, body.data[at:]])
    if not body.chunks:
        return ChunkedBody(data)
    borders = _move_borders([0, *accumulate(body.chunks)], edits)
    return ChunkedBody(data, tuple(end - start for start, end in pairwise(borders) if end > start))


def _move_borders(borders: list[int], edits: list[ByteEdit]) -> list[int]:
    moved, growth, waiting = [], 0, iter([*edits, None])
    edit = next(waiting)
    for border in borders:
        while edit is not None and edit.end <= border:
            growth += len(edit.new) - (edit.end - edit.start)
            edit = next(waiting)
        if edit is not None and edit.start < border:
            moved.append(edit.start + growth + len(edit.new))
        else:
            moved.append(border + growth)
    return moved


class BodyDocument(Struct):
    """A JSON document in a body, or an event of a stream that is not JSON."""

    start: int
    end: int
    data: Any
    is_json: bool = True
    is_changed: bool = False

    def encode(self, before: bytes) -> bytes:
        """The document with the spaces of its former text after `,` and `:`, in one line."""
        if not self.is_json:
            return self.data.encode("utf-8", "surrogatepass")  # type: ignore[no-any-return]  # a text
        separators = (", ", ": ") if b'": ' in before else (",", ":")
        text = json.dumps(self.data, ensure_ascii=False, separators=separators)
        try:
            return text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return json.dumps(self.data, separators=separators).encode()


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
    data = parse_document(body[start:])
    if data is not None:
        return BodyContents([BodyDocument(start, len(body), data)], is_stream=False)
    return _events(body, start) or _lines(body)


def parse_document(data: bytes) -> Any:
    """Parse a JSON object, list or string. None: it is something else. A bare number does not count."""
    if data.lstrip(b" \t\r\n")[:1] not in (b"{", b"[", b'"'):
        return None
    try:
        return _decoder.decode(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None


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
        data = parse_document(b"\n".join(body[start:end] for start, end in event))
        if data is not None:
            documents.append(BodyDocument(event[0][0], event[-1][1], data))
        else:
            documents += [BodyDocument(start, end, body[start:end].decode(), is_json=False) for start, end in event]
    return BodyContents(documents, is_stream=True) if documents else None


def _lines(body: bytes) -> BodyContents | None:
    places = [line.span(1) for line in _line.finditer(body) if line[1].strip()]
    found = [BodyDocument(start, end, parse_document(body[start:end])) for start, end in places]
    if len(found) < 2 or any(document.data is None for document in found):
        return None
    return BodyContents(found, is_stream=True)


def _group_by_path(leaf: TextLeaf) -> Any:
    """The same field of the same kind of event. List positions count only if the items have an index field."""
    return _keys(leaf), _marks(leaf), _kind(leaf)


def _group_by_position(leaf: TextLeaf) -> Any:
    return leaf.steps, _marks(leaf), _kind(leaf)


def _group_by_name(leaf: TextLeaf) -> Any:
    """One kind of event may continue another: `content_block_start`, `content_block_delta`."""
    return _keys(leaf)[-1:], _marks(leaf), _stem.sub("", _kind(leaf))


def group_by_list(leaf: TextLeaf) -> Any:
    """The same field of the items of one list, because a document may have a text in parts."""
    positions = [index for index, step in enumerate(leaf.steps) if isinstance(step, int)]
    last = positions[-1] if positions else len(leaf.steps)
    return leaf.steps[:last], leaf.steps[last + 1 :]


def _keys(leaf: TextLeaf) -> tuple[str, ...]:
    return tuple(step for step in leaf.steps if isinstance(step, str))


def _kind(leaf: TextLeaf) -> str:
    return str(leaf.objects[0].get("type", "")) if leaf.objects else ""


def _marks(leaf: TextLeaf) -> tuple[Any, ...]:
    """The index fields of the objects around it. Servers often leave out those that are 0 or empty."""
    found = ((depth, mark, one.get(mark)) for depth, one in enumerate(reversed(leaf.objects)) for mark in STREAM_MARKS)
    return tuple((depth, mark, value) for depth, mark, value in found if value and isinstance(value, str | int | float))


GROUPINGS: tuple[Grouping, ...] = (_group_by_path, _group_by_position, _group_by_name)


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
    for grouping in GROUPINGS if contents.is_stream else (group_by_list,):
        for group in contents.group_leaves(grouping):
            _redact_pieces(group, redactor)
    edits = []
    for document in contents.documents:
        if contents.is_stream:
            _redact_document(document, redactor)
        if document.is_changed:
            before = body.data[document.start : document.end]
            edits.append(ByteEdit(document.start, document.end, document.encode(before)))
    return apply_edits(body, edits)


def _form(contents: BodyContents) -> list[bool]:
    return [contents.is_stream, *(document.is_json for document in contents.documents)]


def _redact_document(document: BodyDocument, redactor: Redactor) -> None:
    """Redact the texts, numbers and keys of a JSON document. It may be nested deeply, so nothing recurses."""
    if not document.is_json:
        return  # it is a piece of a text

    def clean(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = json.dumps(value)
            return value if redactor.redact_text(text) is text else redactor.redact_text(text)
        return redact_string(value, redactor) if isinstance(value, str) else value

    whole = [document.data]
    left: list[Any] = [whole]
    while left:
        holder = left.pop()
        before = list(holder.items() if isinstance(holder, dict) else enumerate(holder))
        after = [(clean(key) if isinstance(key, str) else key, clean(value)) for key, value in before]
        if after != before:
            document.is_changed = True
            if isinstance(holder, dict):
                holder.clear()
                holder.update(after)
            else:
                holder[:] = [value for _, value in after]
        left += [value for _, value in after if isinstance(value, dict | list)]
    document.data = whole[0]


def redact_string(text: str, redactor: Redactor) -> str:
    """Redact a text. If it is JSON, such as the arguments of a call, its values are searched first, without their
    escapes. Returns the same text if it contains no value."""
    if not redactor or (redactor.redact_text(text) is text and "\\" not in text):
        return text
    data = text.encode("utf-8", "surrogatepass")
    document = BodyDocument(0, len(data), parse_document(data))
    if document.data is not None:
        _redact_document(document, redactor)
    return redactor.redact_text(document.encode(data).decode() if document.is_changed else text)


def _redact_pieces(leaves: Sequence[TextLeaf], redactor: Redactor) -> None:
    """Put the placeholder where a value begins, and remove the rest of the value from the pieces that follow."""
    if len(leaves) < 2 and leaves[0].document.is_json:
        return  # it is redacted with its document
    texts = [leaf.text for leaf in leaves]
    joined = "".join(texts)
    clean = redact_string(joined, redactor)
    if clean == joined:
        return
    spans = [(start, end, placeholder(name)) for start, end, name in redactor.spans(joined)]
    if clean == _cut(joined, spans, 0, len(joined)):
        borders = [0, *accumulate(map(len, texts))]
        texts = [_cut(joined, spans, start, end) for start, end in pairwise(borders)]
    else:  # JSON with escapes or numbers
        first = next(index for index, text in enumerate(texts) if text)
        texts = [clean if index == first else "" for index in range(len(texts))]
    for leaf, text in zip(leaves, texts, strict=True):
        leaf.put(text)


def _cut(joined: str, spans: Sequence[tuple[int, int, str]], start: int, end: int) -> str:
    """The part of a text from `start` to `end`, with placeholders for the values that begin there."""
    pieces, at = [], start
    for first, last, new in spans:
        if last > start and first < end:
            pieces += [joined[at : max(at, first)], new if start <= first else ""]
            at = max(at, min(last, end))
    return "".join([*pieces, joined[at:end]])
