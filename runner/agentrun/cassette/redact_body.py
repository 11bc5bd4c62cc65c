"""Redact a body: replace known values by placeholders and change nothing else.

Rule 1  First the meaning: a text that has escapes, arrives in the chunks of a stream, or is JSON inside another text is
        searched as its reader gets it.
Rule 2  Then the raw bytes, whatever they mean.
Rule 3  Nothing else changes, not even a space. JSON stays JSON: no escape is cut in two, and a number or value that is
        replaced becomes a string. If a match covers several tokens, only the strings and numbers change. Only a match
        of nothing but punctuation breaks the JSON.
Rule 4  The chunk borders are kept. A border inside a replaced value moves to its end. An empty chunk is dropped.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from agentrun.cassette import json_spans
from agentrun.cassette.json_spans import BodyContents, Grouping, TextSpan
from agentrun.cassette.leaks import joined_list_texts, parse_json_document
from agentrun.redactor import Redactor

_SIGNS = b"{}[],:"
_ROUNDS = 5
"""Removing a value may join the parts of another one, so the search is repeated until nothing is found."""


class ByteEdit(NamedTuple):
    start: int
    end: int
    new: bytes


class ChunkedBody(NamedTuple):
    """Bytes, and the sizes of the chunks in which they arrived. Empty: in one."""

    data: bytes
    chunks: tuple[int, ...] = ()


def apply_edits(body: ChunkedBody, edits: Iterable[ByteEdit]) -> ChunkedBody:
    """Apply edits that do not overlap."""
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


def fit_edits_to_json(contents: BodyContents, changes: Iterable[tuple[int, int, bytes]]) -> Iterator[ByteEdit]:
    data, done = contents.data, 0
    tokens = [
        token.span() for start, end in contents.documents for token in json_spans.JSON_TOKEN.finditer(data, start, end)
    ]
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
    if len(touched) == len(texts) == 1 and texts[0][0] <= edit.start and edit.end <= texts[0][1]:
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


def _whole_escapes(data: bytes, text: tuple[int, int], edit: ByteEdit) -> ByteEdit:
    """The part of an edit that is inside a string, extended to whole escapes."""
    start, end = max(text[0], edit.start), min(text[1], edit.end)
    for escape in json_spans.JSON_ESCAPE.finditer(data, *text):
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


def redact_body(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    """Replace the values that a redactor knows. Returns the same object if there are none."""
    if not body.data or not redactor:
        return body
    for _ in range(_ROUNDS):
        before = body
        body = _redact_once(before, redactor)
        if body is before:
            break
    return body


def _redact_once(body: ChunkedBody, redactor: Redactor) -> ChunkedBody:
    contents = json_spans.parse_body(body.data)
    for grouping in _groupings(contents, redactor) if contents else ():
        groups = _grouped_texts(contents, grouping) if contents else ()
        if edits := [edit for texts in groups for edit in _redact_texts(texts, redactor)]:
            body = apply_edits(body, edits)
            contents = json_spans.parse_body(body.data)
    changes = redactor.changes(body.data)
    if not changes:
        return body
    edits = list(fit_edits_to_json(contents, changes)) if contents else [ByteEdit(*change) for change in changes]
    return apply_edits(body, edits)


def _groupings(contents: BodyContents, redactor: Redactor) -> tuple[Grouping | None, ...]:
    if contents.is_stream:
        return (*json_spans.GROUPINGS, None)
    texts = joined_list_texts(parse_json_document(contents.data.decode()))
    # Finding the positions in a document is slow, and a text in parts is rare.
    return (json_spans.group_by_list, None) if any(redactor.find_first(text) is not None for text in texts) else (None,)


def _grouped_texts(contents: BodyContents, grouping: Grouping | None) -> Iterator[Sequence[TextSpan]]:
    """The texts to search, with the pieces of one text together. Without grouping: each string that has escapes."""
    if grouping is not None:
        yield contents.texts
        for group in contents.group_leaves(grouping):
            yield [leaf.text for leaf in group]
        return
    for start, end in contents.documents:
        if contents.data.find(b"\\", start, end) >= 0:
            strings = (
                token.span() for token in json_spans.JSON_TOKEN.finditer(contents.data, start, end) if b"\\" in token[0]
            )
            yield from ([TextSpan(contents.data, first + 1, last - 1)] for first, last in strings)


def _find_changes(value: bytes, redactor: Redactor) -> list[tuple[int, int, bytes]]:
    """The replacements in a text. If the text is JSON, such as the arguments of a call, its values may have escapes."""
    changes = redactor.changes(value)
    if changes or b"\\" not in value or not json_spans.is_json_document(value):
        return changes
    for token in json_spans.JSON_TOKEN.finditer(value):
        if token[0].startswith(b'"') and b"\\" in token[0]:
            text = TextSpan(value, token.start() + 1, token.end() - 1)
            for start, end, new in _find_changes(text.value, redactor):
                changes.append((text.position_of(start), text.position_of(end), text.encode(new)))
    return changes


def _redact_texts(texts: Sequence[TextSpan], redactor: Redactor) -> Iterator[ByteEdit]:
    """Put the placeholder where a value begins, and remove the rest of the value from the texts that follow."""
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
