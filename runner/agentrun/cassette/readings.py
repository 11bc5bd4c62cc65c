"""What a reader may make of a body: the second opinion, after values were replaced.

It shares nothing with what replaces: a fault there is seen here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentrun.providers.sse import SseDecoder

_WHICH = ("index", "output_index", "content_index", "summary_index", "item_id", "thought")
"""What tells apart the texts that a stream brings in turns."""


def texts_of(body: bytes) -> Iterator[str | bytes]:
    """The bytes, the texts of their documents, and the texts that a stream brings in pieces."""
    yield body
    whole = body.decode("utf-8", "replace")
    document = _document(whole)
    if document is not None:
        yield from data_texts(document)
        return
    decoder = SseDecoder()
    events = [event.data for event in (*decoder.feed(body), *decoder.end())] or whole.splitlines()
    joined: dict[Any, list[str]] = {}
    for event in events:
        document = _document(event)
        yield from data_texts(document)
        kind = document.get("type") if isinstance(document, dict) else None
        for way, text in _ways(document):
            joined.setdefault((kind, way), []).append(text)
    yield from ("".join(texts) for texts in joined.values())
    yield "".join(event for event in events if _document(event) is None)


def data_texts(data: Any) -> Iterator[str]:
    """All texts and keys in plain data."""
    waiting = [data]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case dict(items):
                waiting += [*items, *items.values()]
            case list(items) | tuple(items):
                waiting += items


def _document(text: str) -> Any:
    try:
        data = json.loads(text.removeprefix("\ufeff"), strict=False)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict | list | str) else None


def _ways(data: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Each text in order, with what leads to it: in a list, what an item says of itself and not where it stands."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), data)]
    while waiting:
        way, data = waiting.pop()
        match data:
            case str():
                yield way, data
            case list():
                waiting += [(way, item) for item in reversed(data)]
            case dict():
                marks = tuple((mark, repr(data[mark])) for mark in _WHICH if data.get(mark))
                waiting += [((*way, marks, key), item) for key, item in reversed(data.items())]
