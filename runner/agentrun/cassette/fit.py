"""Changes of bytes in JSON that leave it JSON.

Rule 1  Inside of one text no escape is cut in two.
Rule 2  What is a value, or a piece of a number, becomes a text.
Rule 3  Of what goes over several tokens only the texts and numbers change, and the signs between them stay. Only where
        there is nothing but signs the JSON is lost.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from agentrun.cassette.bodies import Contents
from agentrun.cassette.edits import Edit
from agentrun.cassette.leaves import ESCAPE, TOKEN

_SIGNS = b"{}[],:"


def fitted(found: Contents, changes: Iterable[tuple[int, int, bytes]]) -> Iterator[Edit]:
    """The changes as they can be made."""
    data, done = found.data, 0
    tokens = [token.span() for start, end in found.documents for token in TOKEN.finditer(data, start, end)]
    ends = [end for _, end in tokens]
    for start, end, new in changes:
        index, touched = bisect_right(ends, start), []
        while index < len(tokens) and tokens[index][0] < end:
            touched.append(tokens[index])
            index += 1
        for edit in _edits(data, touched, Edit(start, end, new)):
            if edit.end > done:
                yield Edit(max(edit.start, done), edit.end, edit.new)
                done = edit.end


def _edits(data: bytes, touched: list[tuple[int, int]], edit: Edit) -> Iterator[Edit]:
    texts = [(start + 1, end - 1) for start, end in touched if data[start : start + 1] == b'"']
    if not touched:
        yield edit
        return
    if len(touched) == len(texts) == 1 and _inside(texts[0], edit):
        yield _whole_escapes(data, texts[0], edit)
        return
    start, end = touched[0][0], touched[-1][1]
    is_covered = edit.start <= start and end <= edit.end
    if (is_covered or not texts) and _is_value(data[start:end]):
        yield Edit(start, end, _quoted(edit.new))
        return
    others = [one for one in touched if data[one[0]] not in _SIGNS and data[one[0] : one[0] + 1] != b'"']
    pieces = [Edit(*one, _quoted(edit.new)) for one in others]
    pieces += [_whole_escapes(data, text, edit) for text in texts if max(text[0], edit.start) < min(text[1], edit.end)]
    yield from sorted(pieces) or [edit]


def _inside(text: tuple[int, int], edit: Edit) -> bool:
    return text[0] <= edit.start and edit.end <= text[1]


def _whole_escapes(data: bytes, text: tuple[int, int], edit: Edit) -> Edit:
    """The part of a change that is in a text."""
    start, end = max(text[0], edit.start), min(text[1], edit.end)
    for escape in ESCAPE.finditer(data, *text):
        if escape.start() < start < escape.end():
            start = escape.start()
        if escape.start() < end < escape.end():
            end = escape.end()
    return Edit(start, end, edit.new)


def _is_value(data: bytes) -> bool:
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _quoted(new: bytes) -> bytes:
    return b'"' + new.strip(b'"') + b'"'
