"""All texts that a client can read from a body, used to check that redaction left no value behind.

This is deliberately a second implementation: `redact_body.py` finds texts by their byte positions, and this module
parses the body. A bug there is noticed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentrun.cassette.json_spans import STREAM_MARKS
from agentrun.providers.sse import SseDecoder

_decoder = json.JSONDecoder(strict=False)


def body_texts(body: bytes) -> Iterator[str | bytes]:
    """The bytes, the texts of their JSON documents, and the joined pieces of streamed texts."""
    yield body
    whole = body.decode("utf-8", "replace")
    data = parse_json_document(whole)
    if data is not None:
        yield from data_texts(data)
        yield from joined_list_texts(data)
        return
    decoder = SseDecoder()
    events = [event.data for event in (*decoder.feed(body), *decoder.end())] or whole.splitlines()
    joined: dict[Any, list[str]] = {}
    others: list[str] = []
    for event in events:
        data = parse_json_document(event)
        if data is None:
            others.append(event)
            continue
        yield from data_texts(data)
        kind = _marks(data, ("type",)) if isinstance(data, dict) else ()
        for path, text in _text_paths(data):
            joined.setdefault((kind, path), []).append(text)
    for texts in joined.values():
        yield from data_texts("".join(texts))
    yield "".join(others)


def data_texts(data: Any) -> Iterator[str]:
    """All texts and keys in plain data, also inside texts that are JSON with escapes."""
    waiting = [data]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
                waiting += [parse_json_document(text)] if "\\" in text else []
            case dict(items):
                waiting += [*items, *items.values()]
            case list(items) | tuple(items):
                waiting += items


def joined_list_texts(data: Any) -> Iterator[str]:
    """For every list: the joined texts of the same field of all its items."""
    waiting = [data]
    while waiting:
        match waiting.pop():
            case dict(fields):
                waiting += fields.values()
            case list(items):
                waiting += items
                if len(items) > 1:
                    yield from _join_fields(items)


def _join_fields(items: list[Any]) -> Iterator[str]:
    yield "".join(item for item in items if isinstance(item, str))
    fields: dict[str, list[str]] = {}
    for item in items:
        for key, text in item.items() if isinstance(item, dict) else ():
            if isinstance(text, str):
                fields.setdefault(key, []).append(text)
    yield from ("".join(texts) for texts in fields.values())


def parse_json_document(text: str) -> Any:
    """Parse a text as JSON. None: it is not JSON, or only a number."""
    try:
        data = _decoder.decode(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict | list | str) else None


def _text_paths(data: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Each text in order with its path. In a list, the path has the index fields of an item and not its position."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), data)]
    while waiting:
        path, data = waiting.pop()
        match data:
            case str():
                yield path, data
            case list():
                waiting += [(path, item) for item in reversed(data)]
            case dict():
                marks = _marks(data, STREAM_MARKS)
                waiting += [((*path, marks, key), item) for key, item in reversed(data.items())]


def _marks(data: dict[str, Any], names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    values = ((name, data.get(name)) for name in names)
    return tuple((name, repr(value)) for name, value in values if value and isinstance(value, str | int | float))
