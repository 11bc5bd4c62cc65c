"""Read everything on a cassette as its readers do, and find credentials in it, whichever program recorded it.

Rule 1  Everything is read: metadata, addresses (also decoded), headers, raw bodies, every text of their JSON with its
        path, JSON inside texts, the joined pieces of a streamed text, and the same field of the items of a list.
Rule 2  A leak has the kind and the place of a credential. Its value is never printed.
Rule 3  The work is limited: nothing recurses, and `find_leaks` returns only the first `MAX_LEAKS` findings.

This is deliberately a second implementation. `redact_body.py` edits the documents of a body in place, and this module
reads them as a client would. So a bug there is noticed here, before a cassette is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, unquote_plus

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import parse_document
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.parsed_interaction import parse_reply
from agentrun.cassette.parsed_request import parse_request
from agentrun.cassette.redact_body import STREAM_MARKS
from agentrun.core.messages import Reply
from agentrun.providers.sse import SseDecoder
from agentrun.redactor import SHORTEST_SECRET, Redactor
from agentrun.secret import Secret, find_secrets, placeholder_name

MAX_LEAKS = 20
CONTEXT = 8
"""Messages before the new ones of a request that are searched again, because a value may be split between two."""
Steps = tuple[str | int, ...]


class PlacedText(NamedTuple):
    text: str
    steps: Steps = ()
    """Its path in a document."""
    least: int = 1
    """A path with fewer steps selects the text that contains this document."""
    kind: Literal["text", "document", "piece", "number"] = "text"
    """document: JSON whose texts are listed too. piece: the whole text is listed too, or it is joined from others."""
    place: str = ""
    """Such as `reply body`."""
    header: str | None = None

    @property
    def key(self) -> str | None:
        """The name of the header, or the key of the text or of the list that contains it."""
        return self.header or next((step for step in reversed(self.steps) if isinstance(step, str)), None)


class Leak(Struct, frozen=True):
    number: int
    """The interaction, from 1. 0: the metadata."""
    line: int
    place: str
    what: str
    """Its kind, or the environment variable whose value it is."""
    value: tuple[str, Secret] | None = None
    """The value with the name of its placeholder. None: it was known before."""


def find_leaks(cassette: Cassette, secrets: Redactor) -> list[Leak]:
    """The first credentials on a cassette, each kind once in each place."""
    leaks: dict[Leak, None] = {}
    for leak in search_cassette(cassette, secrets):
        leaks[replace(leak, value=None)] = None
        if len(leaks) == MAX_LEAKS:
            break
    return list(leaks)


def find_leaked_values(cassette: Cassette) -> list[tuple[str, Secret]]:
    """All credentials that `find_leaks` would report, each with the name of its placeholder."""
    return [leak.value for leak in search_cassette(cassette, Redactor(())) if leak.value is not None]


def search_cassette(cassette: Cassette, secrets: Redactor) -> Iterator[Leak]:
    """All credentials on a cassette."""
    metadata = (each._replace(place="metadata") for each in data_texts(cassette.metadata))
    texts: list[tuple[int, int, Iterable[PlacedText]]] = [(0, 1, metadata)]
    for number, whole in enumerate(cassette.interactions, 1):
        interaction = replace(whole, request=whole.short_call(CONTEXT))
        texts.append((number, interaction.line, chain(interaction_texts(interaction), _parsed_texts(interaction))))
    for number, line, found in texts:
        each_once = dict.fromkeys(found)
        has_known = secrets.find_first("\n".join(each.text for each in each_once)) is not None  # one search for all
        for each in each_once:
            if has_known and (name := secrets.find_first(each.text)) is not None:
                yield Leak(number, line, each.place, name)
                continue  # its shape may be known too, but the name says more
            for kind, value in _find_credentials(each):
                yield Leak(number, line, each.place, kind, value)


def _find_credentials(placed: PlacedText) -> Iterator[tuple[str, tuple[str, Secret]]]:
    text, key = placed.text, placed.key
    for start, end, kind in () if placed.kind == "number" else find_secrets(text, key):
        if kind == "private key" and text[start:end].endswith("-----"):
            continue  # the first line, without the key itself
        # Replaced everywhere, a short password would damage other words. With its signs it is unmistakable.
        is_short = kind == "password in a url" and end - start < SHORTEST_SECRET
        value = text[start - 1 : end + 1] if is_short else text[start:end]
        yield kind, (placeholder_name(kind, key), Secret(value))


# --- reading ----------------------------------------------------------------------------------------------------------


def interaction_texts(interaction: Interaction) -> Iterator[PlacedText]:
    call, reply, failure = interaction.call, interaction.reply, interaction.failure
    for text in dict.fromkeys((call.url, unquote(call.url), unquote_plus(call.url))):
        yield PlacedText(text, place="address")
    for message, kind in ((call, "request"), (reply, "reply")):
        for name, value in message.headers:
            cookies = [part.partition("=")[2].strip() for part in value.split(";")] if name.endswith("cookie") else []
            for text in (value, *cookies):
                yield PlacedText(text, place=f"{kind} header {name}", header=name)
    for message, kind in ((call, "request"), (reply, "reply")):
        yield from (each._replace(place=f"{kind} body") for each in body_texts(message.body))
    if failure:
        found = (PlacedText(failure.message), *data_texts(failure.fields))
        yield from (each._replace(place="failure") for each in found)


def _parsed_texts(interaction: Interaction) -> Iterator[PlacedText]:
    """The reply of a model as the run has read it."""
    request = parse_request(interaction.short_call())
    reply = None if request is None else parse_reply(interaction, request)
    if isinstance(reply, Reply):
        texts = (reply.message.text, *(each.arguments for each in reply.message.calls))
        yield from (each._replace(place="reply body") for text in texts for each in data_texts(text))


def body_texts(body: bytes) -> Iterator[PlacedText]:
    whole = body.decode("utf-8", "replace")
    data = parse_document(whole)
    if data is not None:
        yield PlacedText(whole, kind="document")
        yield from data_texts(data)
        yield from _joined_fields(data)
        return
    decoder = SseDecoder()
    events = [event.data for event in (*decoder.feed(body), *decoder.end())]
    parsed = [parse_document(event) for event in events or whole.splitlines()]
    if not events and None in parsed:  # a text
        yield PlacedText(whole)
        yield from (each for data in parsed if data is not None for each in data_texts(data))
        return
    yield PlacedText(whole, kind="document")
    yield PlacedText("".join(event for event, data in zip(events, parsed, strict=False) if data is None))
    groups: dict[Any, list[tuple[Steps, str]]] = {}
    for data in filter(None, parsed):
        yield from (each if each.kind == "number" else each._replace(kind="piece") for each in data_texts(data))
        kind = str(data.get("type")) if isinstance(data, dict) else ""
        for path, steps, text in _pieces(data):
            groups.setdefault((kind, path), []).append((steps, text))
    for pieces in groups.values():
        yield from data_texts("".join(text for _, text in pieces), pieces[0][0])


def data_texts(data: Any, steps: Steps = ()) -> Iterator[PlacedText]:
    """All texts, keys and numbers in a document, and in its texts that are JSON."""
    waiting: list[tuple[Any, Steps, int]] = [(data, steps, 1)]
    while waiting:
        data, steps, least = waiting.pop()
        match data:
            case dict():
                yield from map(PlacedText, data)
                waiting += [(item, (*steps, key), least) for key, item in reversed(data.items())]
            case list() | tuple():
                waiting += [(item, (*steps, index), least) for index, item in reversed([*enumerate(data)])]
            case str():
                inside = parse_document(data)
                yield PlacedText(data, steps, least, "text" if inside is None else "document")
                if inside is not None:
                    waiting += [(inside, steps, len(steps) + 1), (inside, (), 1)]
            case int() | float() if not isinstance(data, bool):
                for text in dict.fromkeys([getattr(data, "spelled", json.dumps(data)), json.dumps(data)]):
                    yield PlacedText(text, steps, least, "number")


def _pieces(data: Any) -> Iterator[tuple[tuple[Any, ...], Steps, str]]:
    """Each text in order. In its first path, a list has the index fields of the item and not its position."""
    waiting: list[tuple[tuple[Any, ...], Steps, Any]] = [((), (), data)]
    while waiting:
        path, steps, data = waiting.pop()
        match data:
            case str():
                yield path, steps, data
            case list():
                waiting += [(path, (*steps, index), item) for index, item in reversed([*enumerate(data)])]
            case dict():
                marks = tuple(
                    (name, repr(value))
                    for name in STREAM_MARKS
                    if (value := data.get(name)) and isinstance(value, str | int | float)
                )
                waiting += [((*path, marks, key), (*steps, key), item) for key, item in reversed(data.items())]


def _joined_fields(data: Any) -> Iterator[PlacedText]:
    """For every list: the joined texts of the same field of all its items."""
    waiting = [data]
    while waiting:
        match waiting.pop():
            case dict(fields):
                waiting += fields.values()
            case list(items):
                waiting += items
                if len(items) > 1:
                    yield from (PlacedText("".join(texts), kind="piece") for texts in _fields(items))


def is_split(items: list[Any], secrets: Redactor) -> bool:
    """Whether the items of a list together have a value or a credential. One item alone may have it too."""
    return any(
        secrets.redact_string(each.text) != each.text or any(_find_credentials(each)) for each in _joined_fields(items)
    )


def _fields(items: list[Any]) -> Iterable[list[str]]:
    fields: dict[str | None, list[str]] = {}
    for item in items:
        for key, text in item.items() if isinstance(item, dict) else [(None, item)]:
            if isinstance(text, str):
                fields.setdefault(key, []).append(text)
    return fields.values()
