"""A body without the values that a redactor knows.

Rule 1  What is said counts first: a text that is spelled with escapes, or comes in the pieces of a stream, is looked at
        as its reader gets it, and so is a text in a text that is JSON. What a reader gets afterwards is what the
        redactor makes of what came before.
Rule 2  Then the bytes count, whatever they mean.
Rule 3  Nothing else changes, not a space. A document stays a document.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from agentrun.cassette.bodies import GROUPINGS, Contents, Grouping, by_list, contents, is_document
from agentrun.cassette.edits import Body, Edit, edited
from agentrun.cassette.fit import fitted
from agentrun.cassette.leaves import TOKEN, Text
from agentrun.cassette.readings import document, in_parts
from agentrun.redact import Redactor

_ROUNDS = 5
"""What is taken out may bring together what was apart: it is looked again until nothing is found."""


def without_values(body: Body, redactor: Redactor) -> Body:
    """The same object, if it has none."""
    if not body.data or not redactor:
        return body
    for _ in range(_ROUNDS):
        before = body
        body = _once(before, redactor)
        if body is before:
            break
    return body


def _once(body: Body, redactor: Redactor) -> Body:
    found = contents(body.data)
    for grouping in _groupings(found, redactor) if found else ():
        edits = [edit for texts in _texts(found, grouping) for edit in _said(texts, redactor)] if found else []
        if edits:
            body = edited(body, edits)
            found = contents(body.data)
    changes = redactor.changes(body.data)
    if not changes:
        return body
    return edited(body, fitted(found, changes) if found else [Edit(*change) for change in changes])


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


def _changes(said: bytes, redactor: Redactor) -> list[tuple[int, int, bytes]]:
    """What becomes what in a text. One that is JSON, as the arguments of a call are, may spell a value with escapes."""
    changes = redactor.changes(said)
    if changes or b"\\" not in said or not is_document(said):
        return changes
    for token in TOKEN.finditer(said):
        if token[0].startswith(b'"') and b"\\" in token[0]:
            text = Text(said, token.start() + 1, token.end() - 1)
            inside = _changes(text.value, redactor)
            changes += [(text.place(start), text.place(end), text.spelling(new)) for start, end, new in inside]
    return changes


def _said(texts: Sequence[Text], redactor: Redactor) -> Iterator[Edit]:
    """The placeholder stands where a value begins; the rest is taken out of the texts that follow."""
    changes = _changes(b"".join(text.value for text in texts), redactor)
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
