"""The values that `replay.redact` points at.

Rule 1  A path leads into the documents of a recording: bodies, the events of streams, and texts that are JSON
        themselves. It may begin in such a text, or lead through it. What it leads to may be a whole object: then all
        in it is meant, but for keys.
Rule 2  A pattern is looked for in every text. In one that is JSON it is looked for in the texts of the document, where
        `[^ ]+@[^ ]+` is an address and not half of the JSON around it.
Rule 3  A number is the text that spells it. A placeholder is no value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_plus

from agentrun.cassette.bodies import GROUPINGS, contents, is_document
from agentrun.cassette.tape import Interaction
from agentrun.core.package import Redaction
from agentrun.core.policy import compiled_mask
from agentrun.secret import Secret

_placeholder = re.compile(r"\[redacted:[^\[\]]*\]")

SHORTEST = 3
"""Characters of a value: replacing a shorter one would make holes in every text."""


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


class _Told(NamedTuple):
    """A text, and where it is."""

    steps: tuple[str | int, ...]
    text: str
    least: int = 1
    """A path with fewer steps leads to something that is a text itself."""
    is_whole: bool = False
    """Whether it is JSON that is also told part by part."""


def values_in(interactions: Sequence[Interaction], redactions: Sequence[Redaction]) -> list[tuple[str, Secret]]:
    """The values, by the names of their redactions."""
    if not redactions:
        return []
    found: dict[tuple[str, str], None] = {}
    seen: set[_Told] = set()
    for interaction in interactions:
        for told in _told(interaction):
            if told not in seen:
                seen.add(told)
                found.update((value, None) for value in _values(told, redactions))
    return [(name, Secret(value)) for name, value in found]


def _values(told: _Told, redactions: Sequence[Redaction]) -> Iterator[tuple[str, str]]:
    for redaction in redactions:
        is_meant = not told.is_whole if redaction.path is None else _leads_to(redaction.path, told)
        if not is_meant:
            continue
        texts = [told.text] if redaction.path is not None else []
        if redaction.pattern is not None:
            matches = compiled_mask(redaction.pattern).finditer(_searched(told.text))
            texts = [told.text[slice(*match.span())] for match in matches]
        yield from ((redaction.name, text) for text in texts if len(_placeholder.sub("", text)) >= SHORTEST)


def _searched(text: str) -> str:
    """A lone surrogate is no UTF-8, which is all that RE2 takes. In a placeholder there is nothing to be found."""
    text = text.encode("utf-8", "replace").decode()
    return _placeholder.sub(lambda found: "\0" * len(found[0]), text)


def _leads_to(path: str, told: _Told) -> bool:
    steps = path.split(".")
    ways = [steps, steps[1:]] if steps[0] == "body" else [steps]
    return any(
        told.least <= len(way) <= len(told.steps)
        and all(fnmatchcase(str(have), step) for have, step in zip(told.steps, way, strict=False))
        for way in ways
    )


def _told(interaction: Interaction) -> Iterator[_Told]:
    call, reply, failure = interaction.call, interaction.reply, interaction.failure
    plain = [call.url, unquote(call.url), unquote_plus(call.url)]
    plain += [value for _, value in (*call.headers, *reply.headers)]
    yield from (_Told((), text) for text in plain)
    for body in (call.body, reply.body):
        yield from _in_body(body)
    if failure:
        yield _Told((), failure.message)
        yield from _in_data(failure.fields)


def _in_body(body: bytes) -> Iterator[_Told]:
    found = contents(body)
    if found is None:
        yield _Told((), body.decode("utf-8", "replace"))
        return
    documents = [_read(found.data[start:end]) for start, end in found.documents]
    if not found.is_stream:
        yield from _in_data(documents[0])
        return
    yield _Told((), b"".join(text.value for text in found.texts).decode("utf-8", "replace"))
    for group in found.together(GROUPINGS[0]):
        text = b"".join(leaf.text.value for leaf in group).decode("utf-8", "replace")
        yield from _in_data(text, group[0].steps)
    for document in documents:
        yield from (told for told in _in_data(document) if isinstance(told.text, _Number))


def _in_data(data: Any, steps: tuple[str | int, ...] = ()) -> Iterator[_Told]:
    """All texts and numbers in a document, and in the documents that are texts in it."""
    waiting: list[tuple[Any, tuple[str | int, ...], int]] = [(data, steps, 1)]
    while waiting:
        data, steps, least = waiting.pop()
        match data:
            case dict():
                yield from (_Told((), key) for key in data)
                waiting += [(item, (*steps, key), least) for key, item in reversed(data.items())]
            case list():
                waiting += [(item, (*steps, index), least) for index, item in reversed([*enumerate(data)])]
            case _Number():
                yield from (_Told(steps, _Number(text), least) for text in _spellings(data))
            case str():
                is_whole = is_document(data.encode("utf-8", "surrogatepass"))
                yield _Told(steps, data, least, is_whole)
                if is_whole:
                    inside = json.loads(data, strict=False, parse_int=_Number, parse_float=_Number)
                    waiting += [(inside, steps, len(steps) + 1), (inside, (), 1)]
            case int() | float() if not isinstance(data, bool):
                yield _Told(steps, json.dumps(data), least)


def _spellings(number: str) -> Iterable[str]:
    return {number: None, json.dumps(json.loads(number)): None}


def _read(document: bytes) -> Any:
    return json.loads(document.decode(), strict=False, parse_int=_Number, parse_float=_Number)
