"""Changes of a body's bytes, which keep the borders of the pieces it came in.

A border inside what is replaced moves to its end. A piece of which nothing is left is dropped.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from agentrun.cassette.body_texts import joined_list_texts, parse_json_document
from agentrun.cassette.json_spans import (
    GROUPINGS,
    JSON_ESCAPE,
    JSON_TOKEN,
    BodyContents,
    Grouping,
    TextSpan,
    group_by_list,
    is_json_document,
    parse_body,
)
from agentrun.redactor import Redactor


class ByteEdit(NamedTuple):
    """Bytes from `start` to `end` become others."""

    start: int
    end: int
    new: bytes


class ChunkedBody(NamedTuple):
    """Bytes, and the sizes of the pieces in which they came. Empty: in one."""

    data: bytes
    chunks: tuple[int, ...] = ()


def apply_edits(body: ChunkedBody, edits: Iterable[ByteEdit]) -> ChunkedBody:
    """The body after changes that do not overlap."""
    edits = sorted(edits)
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


# --- changes of bytes in JSON that leave it JSON --------------------------------------------------------------


_SIGNS = b"{}[],:"


def fit_edits_to_json(found: BodyContents, changes: Iterable[tuple[int, int, bytes]]) -> Iterator[ByteEdit]:
    """The changes as they can be made."""
    data, done = found.data, 0
    tokens = [token.span() for start, end in found.documents for token in JSON_TOKEN.finditer(data, start, end)]
    ends = [end for _, end in tokens]
    for start, end, new in changes:
        index, touched = bisect_right(ends, start), []
        while index < len(tokens) and tokens[index][0] < end:
            touched.append(tokens[index])
            index += 1
        for edit in _split_edit(data, touched, ByteEdit(start, end, new)):
            if edit.end > done:
                yield ByteEdit(max(edit.start, done), edit.end, edit.new)
                done = edit.end


def _split_edit(data: bytes, touched: list[tuple[int, int]], edit: ByteEdit) -> Iterator[ByteEdit]:
    texts = [(start + 1, end - 1) for start, end in touched if data[start : start + 1] == b'"']
    if not touched:
        yield edit
        return
    if len(touched) == len(texts) == 1 and _is_inside(texts[0], edit):
        yield _whole_escapes(data, texts[0], edit)
        return
    start, end = touched[0][0], touched[-1][1]
    is_covered = edit.start <= start and end <= edit.end
    if (is_covered or not texts) and _is_value(data[start:end]):
        yield ByteEdit(start, end, _quote(edit.new))
        return
    others = [one for one in touched if data[one[0]] not in _SIGNS and data[one[0] : one[0] + 1] != b'"']
    pieces = [ByteEdit(*one, _quote(edit.new)) for one in others]
    pieces += [_whole_escapes(data, text, edit) for text in texts if max(text[0], edit.start) < min(text[1], edit.end)]
    yield from sorted(pieces) or [edit]


def _is_inside(text: tuple[int, int], edit: ByteEdit) -> bool:
    return text[0] <= edit.start and edit.end <= text[1]


def _whole_escapes(data: bytes, text: tuple[int, int], edit: ByteEdit) -> ByteEdit:
    """The part of a change that is in a text."""
    start, end = max(text[0], edit.start), min(text[1], edit.end)
    for escape in JSON_ESCAPE.finditer(data, *text):
        if escape.start() < start < escape.end():
            start = escape.start()
        if escape.start() < end < escape.end():
            end = escape.end()
    return ByteEdit(start, end, edit.new)


def _is_value(data: bytes) -> bool:
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _quote(new: bytes) -> bytes:
    return b'"' + new.strip(b'"') + b'"'


# --- a body without the values that a redactor knows ----------------------------------------------------------


_ROUNDS = 5
"""What is taken out may bring together what was apart: it is looked again until nothing is found."""


def redact_body(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    """The same object, if it has none."""
    if not body.data or not redactor:
        return body
    for _ in range(_ROUNDS):
        before = body
        body = _redact_once(before, redactor)
        if body is before:
            break
    return body


def _redact_once(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    found = parse_body(body.data)
    for grouping in _groupings(found, redactor) if found else ():
        edits = (
            [edit for texts in _grouped_texts(found, grouping) for edit in _redact_texts(texts, redactor)]
            if found
            else []
        )
        if edits:
            body = apply_edits(body, edits)
            found = parse_body(body.data)
    changes = redactor.changes(body.data)
    if not changes:
        return body
    return apply_edits(body, fit_edits_to_json(found, changes) if found else [ByteEdit(*change) for change in changes])


def _groupings(found: BodyContents, redactor: Redactor) -> tuple[Grouping | None, ...]:
    if found.is_stream:
        return (*GROUPINGS, None)
    data = parse_json_document(found.data.decode())
    # Reading a document with its places takes long, and a text in parts is seldom.
    return (
        (group_by_list, None)
        if any(redactor.find_first(text) is not None for text in joined_list_texts(data))
        else (None,)
    )


def _grouped_texts(found: BodyContents, grouping: Grouping | None) -> Iterator[Sequence[TextSpan]]:
    """Texts to be looked at, those that belong together as one. Without grouping each for itself, if it has escapes."""
    if grouping is not None:
        yield found.texts
        for group in found.group_leaves(grouping):
            yield [leaf.text for leaf in group]
        return
    for start, end in found.documents:
        if found.data.find(b"\\", start, end) >= 0:
            strings = (token.span() for token in JSON_TOKEN.finditer(found.data, start, end) if b"\\" in token[0])
            yield from ([TextSpan(found.data, first + 1, last - 1)] for first, last in strings)


def _find_changes(said: bytes, redactor: Redactor) -> list[tuple[int, int, bytes]]:
    """What becomes what in a text. One that is JSON, as the arguments of a call are, may spell a value with escapes."""
    changes = redactor.changes(said)
    if changes or b"\\" not in said or not is_json_document(said):
        return changes
    for token in JSON_TOKEN.finditer(said):
        if token[0].startswith(b'"') and b"\\" in token[0]:
            text = TextSpan(said, token.start() + 1, token.end() - 1)
            inside = _find_changes(text.value, redactor)
            changes += [
                (text.position_of(start), text.position_of(end), text.encode(new)) for start, end, new in inside
            ]
    return changes


def _redact_texts(texts: Sequence[TextSpan], redactor: Redactor) -> Iterator[ByteEdit]:
    """The placeholder stands where a value begins; the rest is taken out of the texts that follow."""
    changes = _find_changes(b"".join(text.value for text in texts), redactor)
    if not changes:
        return
    starts = [0, *accumulate(len(text.value) for text in texts)]
    for start, end, new in changes:
        index = bisect_right(starts, start) - 1
        while starts[index] < end:
            text, begin = texts[index], starts[index]
            first, last = max(start, begin) - begin, min(end, starts[index + 1]) - begin
            if first < last:
                yield ByteEdit(text.position_of(first), text.position_of(last), text.encode(new))
                new = b""
            index += 1
