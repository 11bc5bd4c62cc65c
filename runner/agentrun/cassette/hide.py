"""A body without the values that a redactor knows.

Rule 1  What is said counts first: a text that is spelled with escapes, or comes in the pieces of a stream, is looked at
        as its reader gets it. What a reader gets afterwards is what the redactor makes of what came before.
Rule 2  Then the bytes count, whatever they mean.
Rule 3  Nothing else changes, not a space. A document stays a document.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from agentrun.cassette.bodies import GROUPINGS, Contents, Grouping, by_list, contents
from agentrun.cassette.edits import Body, Edit, edited
from agentrun.cassette.leaves import ESCAPE, TOKEN, Text
from agentrun.cassette.readings import document, in_parts
from agentrun.redact import Redactor


def without_values(body: Body, redactor: Redactor) -> Body:
    """The same object, if it has none."""
    if not body.data or not redactor:
        return body
    found = contents(body.data)
    for grouping in _groupings(found, redactor) if found else ():
        edits = [edit for texts in _texts(found, grouping) for edit in _said(texts, redactor)] if found else []
        if edits:
            body = edited(body, edits)
            found = contents(body.data)
    changes = redactor.changes(body.data)
    if not changes:
        return body
    return edited(body, _fitted(found, changes) if found else [Edit(*change) for change in changes])


def _groupings(found: Contents, redactor: Redactor) -> tuple[Grouping | None, ...]:
    if found.is_stream:
        return (*GROUPINGS, None)
    data = document(found.data.decode())
    # Reading a document with its places takes long, and a text in parts is seldom.
    return (by_list, None) if any(redactor.found(text) is not None for text in in_parts(data)) else (None,)


def _texts(found: Contents, grouping: Grouping | None) -> Iterator[Sequence[Text]]:
    """Texts to be looked at, those that belong together as one. Without grouping each for itself, if it has escapes."""
    if grouping is not None:
        yield found.texts
        for group in found.together(grouping):
            yield [leaf.text for leaf in group]
        return
    for start, end in found.documents:
        if found.data.find(b"\\", start, end) >= 0:
            strings = (token.span() for token in TOKEN.finditer(found.data, start, end) if b"\\" in token[0])
            yield from ([Text(found.data, first + 1, last - 1)] for first, last in strings)


def _said(texts: Sequence[Text], redactor: Redactor) -> Iterator[Edit]:
    """The placeholder stands where a value begins; the rest is taken out of the texts that follow."""
    changes = redactor.changes(b"".join(text.value for text in texts))
    if not changes:
        return
    starts = [0, *accumulate(len(text.value) for text in texts)]
    for start, end, new in changes:
        index = bisect_right(starts, start) - 1
        while starts[index] < end:
            text, begin = texts[index], starts[index]
            first, last = max(start, begin) - begin, min(end, starts[index + 1]) - begin
            if first < last:
                yield Edit(text.place(first), text.place(last), text.spelling(new))
                new = b""
            index += 1


def _fitted(found: Contents, changes: Iterable[tuple[int, int, bytes]]) -> Iterator[Edit]:
    """Changes of bytes, such that no escape is cut in two and what is replaced outside of texts becomes a text."""
    data, done = found.data, 0
    tokens = [token.span() for start, end in found.documents for token in TOKEN.finditer(data, start, end)]
    starts = [start for start, _ in tokens]
    for start, end, new in changes:
        first, last = _token(tokens, bisect_right(starts, start) - 1), _token(tokens, bisect_left(starts, end) - 1)
        begins_inside = data[first[0] : first[0] + 1] == b'"' and first[0] < start < first[1]
        ends_inside = data[last[0] : last[0] + 1] == b'"' and last[0] < end < last[1]
        if begins_inside:
            start = next((one.start() for one in _escapes(data, first) if one.start() < start < one.end()), start)
        if ends_inside:
            end = next((one.end() for one in _escapes(data, last) if one.start() < end < one.end()), end)
        if not begins_inside and not ends_inside and first[0] <= start < first[1] and last[0] < end <= last[1]:
            start, end, new = first[0], last[1], b'"' + new.strip(b'"') + b'"'
        if end > done:
            yield Edit(max(start, done), end, new)
            done = end


def _token(tokens: list[tuple[int, int]], index: int) -> tuple[int, int]:
    return tokens[index] if index >= 0 else (0, 0)


def _escapes(data: bytes, token: tuple[int, int]) -> Iterator[re.Match[bytes]]:
    return ESCAPE.finditer(data, token[0] + 1, token[1] - 1)
