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

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.json_spans import GROUPINGS, is_json_document, parse_body
from agentrun.core.package import RedactionRule
from agentrun.core.policy import compile_mask
from agentrun.secret import Secret

_placeholder = re.compile(r"\[redacted:[^\[\]]*\]")

MIN_VALUE_LENGTH = 3
"""Characters of a value: replacing a shorter one would make holes in every text."""


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


class _PathText(NamedTuple):
    """A text, and where it is."""

    steps: tuple[str | int, ...]
    text: str
    least: int = 1
    """A path with fewer steps leads to something that is a text itself."""
    is_whole: bool = False
    """Whether it is JSON that is also told part by part."""


def find_redacted_values(
    interactions: Sequence[Interaction], redactions: Sequence[RedactionRule]
) -> list[tuple[str, Secret]]:
    """The values, by the names of their redactions."""
    if not redactions:
        return []
    found: dict[tuple[str, str], None] = {}
    seen: set[_PathText] = set()
    for interaction in interactions:
        for told in _interaction_texts(interaction):
            if told not in seen:
                seen.add(told)
                found.update((value, None) for value in _matching_values(told, redactions))
    return [(name, Secret(value)) for name, value in found]


def _matching_values(told: _PathText, redactions: Sequence[RedactionRule]) -> Iterator[tuple[str, str]]:
    for redaction in redactions:
        is_meant = not told.is_whole if redaction.path is None else _leads_to(redaction.path, told)
        if not is_meant:
            continue
        texts = [told.text] if redaction.path is not None else []
        if redaction.pattern is not None:
            matches = compile_mask(redaction.pattern).finditer(_searchable(told.text))
            texts = [told.text[slice(*match.span())] for match in matches]
        yield from ((redaction.name, text) for text in texts if len(_placeholder.sub("", text)) >= MIN_VALUE_LENGTH)


def _searchable(text: str) -> str:
    """A lone surrogate is no UTF-8, which is all that RE2 takes. In a placeholder there is nothing to be found."""
    text = text.encode("utf-8", "replace").decode()
    return _placeholder.sub(lambda found: "\0" * len(found[0]), text)


def _leads_to(path: str, told: _PathText) -> bool:
    steps = path.split(".")
    ways = [steps, steps[1:]] if steps[0] == "body" else [steps]
    return any(
        told.least <= len(way) <= len(told.steps)
        and all(fnmatchcase(str(have), step) for have, step in zip(told.steps, way, strict=False))
        for way in ways
    )


def _interaction_texts(interaction: Interaction) -> Iterator[_PathText]:
    call, reply, failure = interaction.call, interaction.reply, interaction.failure
    plain = [call.url, unquote(call.url), unquote_plus(call.url)]
    plain += [value for _, value in (*call.headers, *reply.headers)]
    yield from (_PathText((), text) for text in plain)
    for body in (call.body, reply.body):
        yield from _texts_in_body(body)
    if failure:
        yield _PathText((), failure.message)
        yield from _texts_in_data(failure.fields)


def _texts_in_body(body: bytes) -> Iterator[_PathText]:
    found = parse_body(body)
    if found is None:
        yield _PathText((), body.decode("utf-8", "replace"))
        return
    documents = [_parse_document(found.data[start:end]) for start, end in found.documents]
    if not found.is_stream:
        yield from _texts_in_data(documents[0])
        return
    yield _PathText((), b"".join(text.value for text in found.texts).decode("utf-8", "replace"))
    for group in found.group_leaves(GROUPINGS[0]):
        text = b"".join(leaf.text.value for leaf in group).decode("utf-8", "replace")
        yield from _texts_in_data(text, group[0].steps)
    for document in documents:
        yield from (told for told in _texts_in_data(document) if isinstance(told.text, _Number))


def _texts_in_data(data: Any, steps: tuple[str | int, ...] = ()) -> Iterator[_PathText]:
    """All texts and numbers in a document, and in the documents that are texts in it."""
    waiting: list[tuple[Any, tuple[str | int, ...], int]] = [(data, steps, 1)]
    while waiting:
        data, steps, least = waiting.pop()
        match data:
            case dict():
                yield from (_PathText((), key) for key in data)
                waiting += [(item, (*steps, key), least) for key, item in reversed(data.items())]
            case list():
                waiting += [(item, (*steps, index), least) for index, item in reversed([*enumerate(data)])]
            case _Number():
                yield from (_PathText(steps, _Number(text), least) for text in _spellings(data))
            case str():
                is_whole = is_json_document(data.encode("utf-8", "surrogatepass"))
                yield _PathText(steps, data, least, is_whole)
                if is_whole:
                    inside = json.loads(data, strict=False, parse_int=_Number, parse_float=_Number)
                    waiting += [(inside, steps, len(steps) + 1), (inside, (), 1)]
            case int() | float() if not isinstance(data, bool):
                yield _PathText(steps, json.dumps(data), least)


def _spellings(number: str) -> Iterable[str]:
    return {number: None, json.dumps(json.loads(number)): None}


def _parse_document(document: bytes) -> Any:
    return json.loads(document.decode(), strict=False, parse_int=_Number, parse_float=_Number)
