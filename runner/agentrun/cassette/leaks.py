"""Find credentials on a cassette, whichever program recorded it.

Rule 1  Everything is searched: addresses, headers, metadata, raw bodies, every text of their JSON with its key, JSON
        inside texts, and the joined text of a streamed reply.
Rule 2  A finding has the kind and the place of a credential, never its value.
Rule 3  The work is limited: nothing recurses, and only the first `MAX_LEAKS` findings are returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from agentrun.canonical_json import NOT_JSON, read_json
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.parsed_interaction import parse_reply
from agentrun.cassette.parsed_request import parse_request
from agentrun.core.messages import Reply
from agentrun.net.environment import MIN_SECRET_LENGTH
from agentrun.redactor import Redactor
from agentrun.secret import Secret, find_secrets, names_credential

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
    """A redactor for the credentials of the environment, found by the name of the variable or by their shape."""
    values = []
    for name in sorted(environment):
        text = environment[name].strip()
        if names_credential(name):
            values.append((name, Secret(text)))
        values += [(name, Secret(text[start:end])) for start, end, _ in find_secrets(text, name)]
    return Redactor((name, value) for name, value in values if len(value.reveal()) >= MIN_SECRET_LENGTH)


def find_leaks(cassette: Cassette, secrets: Redactor) -> list[Leak]:
    """The first credentials on a cassette, each kind once in each place."""
    leaks: dict[Leak, None] = {}
    for leak in _iterate_leaks(cassette, secrets):
        leaks[leak] = None
        if len(leaks) == MAX_LEAKS:
            break
    return list(leaks)


def _iterate_leaks(cassette: Cassette, secrets: Redactor) -> Iterator[Leak]:
    for what in _find_in_texts(_walk(cassette.metadata), secrets):
        yield Leak(0, 1, "the metadata", what)
    for number, interaction in enumerate(cassette.interactions, 1):
        for where, texts in (("the request", _request_texts(interaction)), ("the reply", _reply_texts(interaction))):
            for what in _find_in_texts(texts, secrets):
                yield Leak(number, interaction.line, where, what)


def _find_in_texts(texts: Iterator[tuple[str | None, str]], secrets: Redactor) -> Iterator[str]:
    for key, text in texts:
        name = secrets.find_first(text)
        if name is not None:
            yield name
            continue  # its shape may be known too, but the name says more
        for _, _, kind in find_secrets(text, key):
            yield kind


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
        return


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
