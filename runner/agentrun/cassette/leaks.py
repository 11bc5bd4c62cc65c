"""Find credentials on a cassette, whichever program recorded it.

Rule 1  Everything is searched: addresses, headers, metadata, raw bodies, every text of their JSON with its key, JSON
        inside texts, and the joined text of a streamed reply.
Rule 2  A finding has the kind and the place of a credential, never its value.
Rule 3  The work is limited: nothing recurses, and only the first `MAX_LEAKS` findings are returned.

`body_texts` reads all texts of a body as a client would. It is deliberately a second implementation: `redact_body.py`
finds texts by their byte positions, and this module parses the body. A bug there is noticed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from agentrun.canonical_json import NOT_JSON, read_json
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.parsed_interaction import parse_reply
from agentrun.cassette.parsed_request import parse_request
from agentrun.cassette.redact_body import STREAM_MARKS
from agentrun.core.messages import Reply
from agentrun.credentials import find_credentials
from agentrun.providers.sse import SseDecoder
from agentrun.redactor import SHORTEST_SECRET, Redactor
from agentrun.secret import Secret, find_secrets, placeholder_name

MAX_LEAKS = 20
_LONGEST_INNER = 1024 * 1024


class Leak(Struct, frozen=True):
    number: int
    """The interaction, from 1. 0: the metadata."""
    line: int
    where: str
    """`the request`, `the reply` or `the metadata`."""
    what: str
    """Its kind, or the environment variable whose value it is."""


def credentials_redactor(environment: Mapping[str, str]) -> Redactor:
    return Redactor(find_credentials(environment))


def find_leaks(cassette: Cassette, secrets: Redactor) -> list[Leak]:
    """The first credentials on a cassette, each kind once in each place."""
    leaks: dict[Leak, None] = {}
    for leak in _iterate_leaks(cassette, secrets):
        leaks[leak] = None
        if len(leaks) == MAX_LEAKS:
            break
    return list(leaks)


def find_leaked_values(cassette: Cassette) -> list[tuple[str, Secret]]:
    """All credentials that `find_leaks` would report, each with the name of its placeholder."""
    values: dict[str, str] = {}
    for _, _, _, texts in _texts_by_place(cassette):
        for key, text in texts:
            for start, end, kind in _find_credentials(text, key):
                # Replaced everywhere, a short password would damage other words. With its signs it is unmistakable.
                is_short = kind == "password in a url" and end - start < SHORTEST_SECRET
                value = text[start - 1 : end + 1] if is_short else text[start:end]
                values.setdefault(value, placeholder_name(kind, key))
    return [(name, Secret(value)) for value, name in values.items()]


def _iterate_leaks(cassette: Cassette, secrets: Redactor) -> Iterator[Leak]:
    for number, line, where, texts in _texts_by_place(cassette):
        for what in _find_in_texts(texts, secrets):
            yield Leak(number, line, where, what)


def _texts_by_place(cassette: Cassette) -> Iterator[tuple[int, int, str, Iterator[tuple[str | None, str]]]]:
    yield 0, 1, "the metadata", _walk(cassette.metadata)
    for number, interaction in enumerate(cassette.interactions, 1):
        yield number, interaction.line, "the request", _request_texts(interaction)
        yield number, interaction.line, "the reply", _reply_texts(interaction)


def _find_in_texts(texts: Iterator[tuple[str | None, str]], secrets: Redactor) -> Iterator[str]:
    for key, text in texts:
        name = secrets.find_first(text)
        if name is not None:
            yield name
            continue  # its shape may be known too, but the name says more
        for _, _, kind in _find_credentials(text, key):
            yield kind


def _find_credentials(text: str, key: str | None) -> Iterator[tuple[int, int, str]]:
    """The secrets in a text. The first line of a private key, without the key itself, is none."""
    for start, end, kind in find_secrets(text, key):
        if kind != "private key" or not text[start:end].endswith("-----"):
            yield start, end, kind


def _request_texts(interaction: Interaction) -> Iterator[tuple[str | None, str]]:
    call = interaction.call
    yield None, call.url
    yield from _headers(call.headers)
    yield from _body(call.body)


def _reply_texts(interaction: Interaction) -> Iterator[tuple[str | None, str]]:
    yield from _headers(interaction.reply.headers)
    yield from _body(interaction.reply.body)
    if interaction.failure is not None:
        yield None, interaction.failure.message
        yield from _walk(interaction.failure.fields)
    request = parse_request(interaction.call)
    reply = None if request is None else parse_reply(interaction, request)
    if isinstance(reply, Reply):  # the joined chunks
        yield None, reply.message.text
        for call in reply.message.calls:
            yield from _inner(call.arguments)


def _headers(headers: tuple[tuple[str, str], ...]) -> Iterator[tuple[str | None, str]]:
    for name, value in headers:
        yield name, value
        if name.endswith("cookie"):
            for part in value.split(";"):
                yield name, part.partition("=")[2].strip()


def _body(body: bytes) -> Iterator[tuple[str | None, str]]:
    yield None, body.decode("utf-8", "replace")
    try:
        yield from _walk(read_json(body))
    except NOT_JSON:
        yield from ((None, text) for text in body_texts(body) if isinstance(text, str))


def _inner(text: str) -> Iterator[tuple[str | None, str]]:
    """A text, and the texts inside it if it is JSON."""
    yield None, text
    if text[:1] in ("{", "[") and len(text) < _LONGEST_INNER:
        try:
            yield from _walk(read_json(text.encode()), inside=True)
        except (*NOT_JSON, UnicodeEncodeError):
            return


def _walk(value: Any, *, inside: bool = False) -> Iterator[tuple[str | None, str]]:
    """Every text in plain data with its key."""
    left: list[tuple[str | None, Any]] = [(None, value)]
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
            left += ((None, each) for each in value)
        elif isinstance(value, list):
            left += ((key, each) for each in value)
        elif isinstance(value, str):
            yield key, value
            if not inside:
                yield from _inner(value)


# --- the texts of a body ----------------------------------------------------------------------------------------------

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
    """All texts and keys in plain data, including those inside texts that are JSON with escapes."""
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
