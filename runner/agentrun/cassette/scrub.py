"""A recording without sensitive values.

Rule 1  Every value that is known is replaced wherever it stands: address, headers, bodies, failures.
Rule 2  What is still found is looked for in another way than it was replaced: in the bytes, and in what a reader makes
        of them. A place is told, never a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote, unquote_plus

from msgspec.structs import replace

from agentrun.cassette.edits import Body
from agentrun.cassette.hide import without_values
from agentrun.cassette.pointed import values_in
from agentrun.cassette.readings import data_texts, texts_of
from agentrun.cassette.tape import Failure, Interaction
from agentrun.redact import Redactor

__all__ = ["leftover", "scrubbed", "values_in"]

_percent = re.compile(rb"%[0-9a-fA-F]{2}|.", re.DOTALL)


def scrubbed(interaction: Interaction, redactor: Redactor) -> Interaction:
    """An interaction without the values. The same object, if there are none in it."""
    if not redactor:
        return interaction
    call, reply = interaction.call, interaction.reply
    body = without_values(Body(reply.body, interaction.chunks), redactor)
    clean = replace(
        interaction,
        call=replace(
            call,
            url=_address(call.url, redactor),
            headers=_fields(call.headers, redactor),
            body=without_values(Body(call.body), redactor).data,
        ),
        reply=replace(reply, headers=_fields(reply.headers, redactor), body=body.data),
        chunks=body.chunks,
        failure=interaction.failure and _failure(interaction.failure, redactor),
    )
    return interaction if clean == interaction else clean


def _fields(headers: tuple[tuple[str, str], ...], redactor: Redactor) -> tuple[tuple[str, str], ...]:
    return tuple((name, redactor.text(value)) for name, value in headers)


def _failure(failure: Failure, redactor: Redactor) -> Failure:
    return replace(failure, message=redactor.text(failure.message), fields=redactor.data(failure.fields))


def _address(url: str, redactor: Redactor) -> str:
    """An address may encode any of its characters, needed or not: it is looked at decoded too."""
    data = redactor.text(url).encode("utf-8", "surrogatepass")
    for space in (b"+", b" "):
        if b"%" in data or space == b" ":
            data = _decoded_away(data, space, redactor)
    return data.decode("utf-8", "surrogatepass")


def _decoded_away(data: bytes, plus: bytes, redactor: Redactor) -> bytes:
    """`plus`: what a + stands for."""
    units = [unit.span() for unit in _percent.finditer(data)]
    said = b"".join(
        plus if (one := data[a:b]) == b"+" else one if b - a == 1 else bytes([int(one[1:], 16)]) for a, b in units
    )
    pieces, at = [], 0
    for start, end, new in redactor.changes(said):
        pieces += [data[at : units[start][0]], new]
        at = units[end - 1][1]
    return b"".join([*pieces, data[at:]])


def leftover(interactions: Sequence[Interaction], redactor: Redactor) -> str | None:
    """The first place where a value is still found, such as `interaction 3, reply body`."""
    if not redactor:
        return None
    for number, interaction in enumerate(interactions, 1):
        for place, texts in _places(interaction):
            if any(_is_in(text, redactor) for text in texts):
                return f"interaction {number}, {place}"
    return None


def _is_in(text: str | bytes, redactor: Redactor) -> bool:
    return redactor.found(text) is not None if isinstance(text, str) else redactor.raw(text) is not text


def _places(interaction: Interaction) -> Iterator[tuple[str, Iterable[str | bytes]]]:
    call, reply, failure = interaction.call, interaction.reply, interaction.failure
    yield "address", (call.url, unquote(call.url), unquote_plus(call.url))
    for kind, message in (("request", call), ("reply", reply)):
        for name, value in message.headers:
            yield f"{kind} header {name}", (value,)
        yield f"{kind} body", texts_of(message.body)
    if failure:
        yield "failure", (failure.message, *data_texts(failure.fields))
