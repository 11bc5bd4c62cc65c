"""Credentials that stand on a tape, whoever recorded it.

Rule 1  Everything is looked at: addresses, headers, metadata, bodies as they stand, every text of their JSON with the
        key above it, JSON inside texts, and what a streamed reply says as a whole.
Rule 2  A finding says what and where, never the value.
Rule 3  The work is bounded: nothing here recurses, and of many findings only the first are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
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
"""Findings of one tape that are told."""
_LONGEST_INNER = 1024 * 1024


class Leak(Struct, frozen=True):
    """A credential on a tape."""

    number: int
    """The interaction, from 1. 0: the metadata."""
    line: int
    where: str
    """`the request`, `the reply` or `the metadata`."""
    what: str
    """Its kind, or the variable of the environment whose value it is."""


def credentials_redactor(environment: Mapping[str, str]) -> Redactor:
    """Knows the credentials of the environment: by the name of the variable, or by their shape."""
    values = []
    for name in sorted(environment):
        text = environment[name].strip()
        if names_credential(name):
            values.append((name, Secret(text)))
        values += [(name, Secret(text[start:end])) for start, end, _ in find_secrets(text, name)]
    return Redactor((name, value) for name, value in values if len(value.reveal()) >= MIN_SECRET_LENGTH)


def find_leaks(tape: Cassette, known: Redactor) -> list[Leak]:
    """The first credentials on a tape, each kind once in each place."""
    return list(islice(_distinct(_iterate_leaks(tape, known)), MAX_LEAKS))


def _distinct(found: Iterator[Leak]) -> Iterator[Leak]:
    seen: set[Leak] = set()
    for leak in found:
        if leak not in seen:
            seen.add(leak)
            yield leak


def _iterate_leaks(tape: Cassette, known: Redactor) -> Iterator[Leak]:
    for what in _find_in_texts(_walk(tape.metadata), known):
        yield Leak(0, 1, "the metadata", what)
    for number, interaction in enumerate(tape.interactions, 1):
        for where, texts in (("the request", _request_texts(interaction)), ("the reply", _reply_texts(interaction))):
            for what in _find_in_texts(texts, known):
                yield Leak(number, interaction.line, where, what)


def _find_in_texts(texts: Iterator[tuple[str | None, str]], known: Redactor) -> Iterator[str]:
    for key, text in texts:
        name = known.find_first(text)
        if name is not None:
            yield name
            continue  # it has a shape as well, but the name says more
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
    question = parse_request(interaction.call)
    reply = None if question is None else parse_reply(interaction, question)
    if isinstance(reply, Reply):  # what came in pieces, as one
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
    """The texts in a text that is JSON itself."""
    yield None, text
    if text[:1] in ("{", "[") and len(text) < _LONGEST_INNER:
        try:
            yield from _walk(read_json(text.encode()), inside=True)
        except (*NOT_JSON, UnicodeEncodeError):
            return


def _walk(value: Any, *, inside: bool = False) -> Iterator[tuple[str | None, str]]:
    """Every text in plain data, with the key above it."""
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
