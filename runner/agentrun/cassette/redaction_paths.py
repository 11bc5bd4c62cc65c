"""Find the values that the rules of `replay.redact` select.

Rule 1  A path selects values in the JSON documents of a cassette: bodies, events of streams, and texts that are JSON.
        It may begin in such a text or lead through it. If it leads to an object, all values in it are selected.
Rule 2  A pattern is searched in every text. In a text that is JSON it is searched in the strings of the document, so
        that `[^ ]+@[^ ]+` matches an address and not the JSON around it.
Rule 3  A number counts as its text. A placeholder is not a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
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
"""Shorter values are not redacted, because they occur in every text."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _PathText(NamedTuple):
    steps: tuple[str | int, ...]
    text: str
    least: int = 1
    """A path with fewer steps selects the text that contains this document."""
    is_whole: bool = False
    """Whether it is JSON whose parts are listed too."""


def find_redacted_values(
    interactions: Sequence[Interaction], redactions: Sequence[RedactionRule]
) -> list[tuple[str, Secret]]:
    """The values with the names of their rules."""
    if not redactions:
        return []
    values: dict[tuple[str, str], None] = {}
    seen: set[_PathText] = set()
    for interaction in interactions:
        for each in _interaction_texts(interaction):
            if each not in seen:
                seen.add(each)
                values.update((value, None) for value in _matching_values(each, redactions))
    return [(name, Secret(value)) for name, value in values]


def _matching_values(each: _PathText, redactions: Sequence[RedactionRule]) -> Iterator[tuple[str, str]]:
    for redaction in redactions:
        is_selected = not each.is_whole if redaction.path is None else _leads_to(redaction.path, each)
        if not is_selected:
            continue
        texts = [each.text] if redaction.path is not None else []
        if redaction.pattern is not None:
            matches = compile_mask(redaction.pattern).finditer(_searchable(each.text))
            texts = [each.text[slice(*match.span())] for match in matches]
        yield from ((redaction.name, text) for text in texts if len(_placeholder.sub("", text)) >= MIN_VALUE_LENGTH)


def _searchable(text: str) -> str:
    """A text that RE2 accepts: no lone surrogates. Placeholders are blanked."""
    text = text.encode("utf-8", "replace").decode()
    return _placeholder.sub(lambda match: "\0" * len(match[0]), text)


def _leads_to(path: str, text: _PathText) -> bool:
    steps = path.split(".")
    return any(
        text.least <= len(each) <= len(text.steps)
        and all(fnmatchcase(str(have), step) for have, step in zip(text.steps, each, strict=False))
        for each in ([steps, steps[1:]] if steps[0] == "body" else [steps])
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
    contents = parse_body(body)
    if contents is None:
        yield _PathText((), body.decode("utf-8", "replace"))
        return
    documents = [_parse_json(contents.data[start:end].decode()) for start, end in contents.documents]
    if not contents.is_stream:
        yield from _texts_in_data(documents[0])
        return
    yield _PathText((), b"".join(text.value for text in contents.texts).decode("utf-8", "replace"))
    for group in contents.group_leaves(GROUPINGS[0]):
        text = b"".join(leaf.text.value for leaf in group).decode("utf-8", "replace")
        yield from _texts_in_data(text, group[0].steps)
    for document in documents:
        yield from (each for each in _texts_in_data(document) if isinstance(each.text, _Number))


def _texts_in_data(data: Any, steps: tuple[str | int, ...] = ()) -> Iterator[_PathText]:
    """All texts and numbers in a document, and in its texts that are JSON."""
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
                spellings = dict.fromkeys([data, json.dumps(json.loads(data))])
                yield from (_PathText(steps, _Number(text), least) for text in spellings)
            case str():
                is_whole = is_json_document(data.encode("utf-8", "surrogatepass"))
                yield _PathText(steps, data, least, is_whole)
                if is_whole:
                    inside = _parse_json(data)
                    waiting += [(inside, steps, len(steps) + 1), (inside, (), 1)]
            case int() | float() if not isinstance(data, bool):
                yield _PathText(steps, json.dumps(data), least)


def _parse_json(document: str) -> Any:
    return json.loads(document, strict=False, parse_int=_Number, parse_float=_Number)
