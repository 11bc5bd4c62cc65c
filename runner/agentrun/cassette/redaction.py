"""Keep secrets out of cassettes: known secrets, and the values that the spec's `replay.redact` selects.

Rule 1  A value that is found anywhere is replaced everywhere by its placeholder: addresses, headers, bodies, failures.
Rule 2  In a replay, a request is compared with its values redacted, because the cassette has placeholders. If a request
        differs from a recorded one only in a placeholder, its value is learned and redacted from then on.
Rule 3  After redaction the result is searched by a second method, `search_cassette`. Credentials that it finds by their
        shape are redacted too. If a value is still there, nothing is written; the error names its place, not the value.
Rule 4  Shown texts are redacted like the cassette, so that the journals of the recorded and the replayed run are equal.
Rule 5  A placeholder stands for at least one character, and its value is learned only if it is unambiguous. For
        `[redacted:a] [redacted:b]` and «Jo Ann Lee» only the whole text is learned. Placeholders are matched without
        regular expressions, because texts may be megabytes long.
Rule 6  A path of `replay.redact` selects values in JSON documents, and in texts that are JSON: it may begin in such a
        text or lead through it. If it leads to an object, all values in it are selected. A number counts as its text.
Rule 7  A pattern is searched in every text. In a text that is JSON it is searched in the strings of the document, so
        that `[^ ]+@[^ ]+` matches an address and not the JSON around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import map_json, read_json
from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.leaks import Leak, PlacedText, body_texts, interaction_texts, search_cassette
from agentrun.cassette.redact_body import ByteEdit, ChunkedBody, apply_edits, redact_body
from agentrun.core.package import RedactionRule
from agentrun.core.policy import compile_mask
from agentrun.errors import StorageError
from agentrun.redactor import Redactor
from agentrun.secret import Secret
from agentrun.wire import HttpCall, HttpReply

DataT = TypeVar("DataT")
NamedSecrets = list[tuple[str, Secret]]

MIN_VALUE_LENGTH = 3
"""Shorter values are not redacted, because they occur in every text."""
MAX_LEARNED_VALUES = 10_000
"""Values learned from a cassette. Each costs memory, and anyone can write a file with millions of placeholders."""
_NO_REPLY = HttpReply(0, (), b"")
_percent = re.compile(rb"%[0-9a-fA-F]{2}|.", re.DOTALL)
_MARK = "[redacted:"
_placeholder = re.compile(r"\[redacted:([A-Za-z0-9_.-]+)\]")
_any_placeholder = re.compile(r"\[redacted:[^\[\]]*\]")


class RunRedaction:
    def __init__(self, rules: Sequence[RedactionRule] = (), redactor: Redactor = Redactor(())) -> None:  # noqa: B008  # frozen
        """`redactor`: knows the secrets of the environment."""
        self.rules = tuple(rules)
        self._patterns = tuple(rule for rule in self.rules if rule.path is None)
        self.redactor = redactor
        self._learned: dict[tuple[str, str], None] = {}
        self._stretches: dict[str, str] = {}
        """Texts that were learned only as a whole, with their placeholders."""

    @property
    def is_active(self) -> bool:
        """Whether there is anything to redact: a known value or a pattern."""
        return bool(self._patterns or self._stretches or self.redactor)

    def redact_request(self, call: HttpCall) -> HttpCall:
        interaction = Interaction(call, _NO_REPLY)
        self.learn(find_redacted_values([interaction], self.rules))
        return redact_interaction(interaction, self.redactor).call

    def text(self, text: str) -> str:
        if not self.is_active:
            return text
        if self._patterns:
            self.learn(_select_values(body_texts(text.encode("utf-8", "surrogatepass")), self._patterns))
        for raw, words in self._stretches.items():
            text = text.replace(raw, words)
        return self.redactor.redact_string(text)

    def data(self, value: DataT) -> DataT:
        def number(value: float) -> float | str:
            clean = self.text(spelled := msgspec.json.encode(value).decode())
            return value if clean == spelled else clean

        clean: DataT = map_json(value, text=self.text, number=number, keys=True)
        return clean

    def learn_placeholders(self, recorded: HttpCall, call: HttpCall) -> bool:
        """Whether a request equals the recorded one except for its placeholders. If so, their values are learned."""
        new = match_placeholders(recorded, call)
        if new is None:
            return False
        if len(self._learned) + len(self._stretches) + len(new.values) + len(new.stretches) <= MAX_LEARNED_VALUES:
            self.learn(new.values)
            self._stretches.update((raw.reveal(), words) for raw, words in new.stretches)
        return True

    @property
    def learned_count(self) -> int:
        return len(self._learned)

    def learned(self, start: int) -> NamedSecrets:
        """The values that were found in this run, after the first `start`."""
        return [(name, Secret(value)) for name, value in islice(self._learned, start, None)]

    def learn(self, values: NamedSecrets) -> None:
        """Redact these values from now on."""
        new = [(name, value) for name, value in values if (name, value.reveal()) not in self._learned]
        if new:
            self._learned.update(((name, value.reveal()), None) for name, value in new)
            self.redactor = self.redactor.with_values(new, shortest=MIN_VALUE_LENGTH)


def redact_interaction(interaction: Interaction, redactor: Redactor) -> Interaction:
    """Redact an interaction. Returns the same object if there is nothing to redact."""
    if not redactor:
        return interaction
    whole = interaction.call
    call, reply, failure = whole, interaction.reply, interaction.failure
    if failure is not None:
        fields = redactor.redact_data(failure.fields, numbers=True)
        failure = replace(failure, message=redactor.redact_string(failure.message), fields=fields)
    body = redact_body(ChunkedBody(reply.body, interaction.chunks), redactor)
    reply = replace(reply, headers=_redact_headers(reply.headers, redactor), body=body.data)
    url, sent = _redact_url(call.url, redactor), redact_body(ChunkedBody(call.body), redactor).data
    call = replace(call, url=url, headers=_redact_headers(call.headers, redactor), body=sent)
    clean = replace(interaction, request=call, reply=reply, chunks=body.chunks, failure=failure)
    return interaction if clean == replace(interaction, request=whole) else clean


def _redact_headers(headers: tuple[tuple[str, str], ...], redactor: Redactor) -> tuple[tuple[str, str], ...]:
    return tuple((name, redactor.redact_text(value)) for name, value in headers)


def _redact_url(url: str, redactor: Redactor) -> str:
    """Redact an address and its percent-decoded form."""
    data = redactor.redact_text(url).encode("utf-8", "surrogatepass")
    for space in (b"+", b" "):
        if b"%" in data or space == b" ":
            data = _redact_decoded(data, space, redactor)
    return data.decode("utf-8", "surrogatepass")


def _redact_decoded(data: bytes, plus: bytes, redactor: Redactor) -> bytes:
    """`plus`: the character that a `+` decodes to."""
    units = [unit.span() for unit in _percent.finditer(data)]
    decoded = unquote_to_bytes(data.replace(b"+", plus))
    edits = (ByteEdit(units[start][0], units[end - 1][1], new) for start, end, new in redactor.changes(decoded))
    return apply_edits(ChunkedBody(data), edits).data


def equals_except_placeholders(recorded: Any, value: Any) -> bool:
    """Whether two documents are equal, where a placeholder in the recorded one stands for any text."""
    return _match_documents(recorded, value, PlaceholderValues([], []))


class PlaceholderValues(Struct, frozen=True):
    values: list[tuple[str, Secret]] = []
    stretches: list[tuple[Secret, str]] = []
    """Texts that are known only as a whole, with their placeholders."""


def match_placeholders(recorded: HttpCall, call: HttpCall) -> PlaceholderValues | None:
    """Match a request with a recorded one that has placeholders. None: they differ in something else."""
    is_marked = _MARK.encode() in recorded.body or _MARK in recorded.url
    if not is_marked or recorded.method.upper() != call.method.upper():
        return None
    learned = PlaceholderValues([], [])
    try:
        was, now = read_json(recorded.body), read_json(call.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        was, now = recorded.body.decode("utf-8", "replace"), call.body.decode("utf-8", "replace")
    matches = _match_documents(recorded.url, call.url, learned) and _match_documents(was, now, learned)
    return learned if matches else None


def _match_documents(was: Any, now: Any, learned: PlaceholderValues) -> bool:
    """Whether two documents are equal except for placeholders in the first."""
    match was, now:
        case dict(), dict():
            return was.keys() == now.keys() and all(_match_documents(was[key], now[key], learned) for key in was)
        case list(), list():
            return len(was) == len(now) and all(map(_match_documents, was, now, [learned] * len(was)))
        case str(), str() if _MARK in was and was != now:
            return _match_text(was, now, learned)
        case str(), int() | float() if _MARK in was and not isinstance(now, bool):
            return _match_text(was, msgspec.json.encode(now).decode(), learned)
        case _:
            return bool(was == now) and isinstance(was, bool) == isinstance(now, bool)


def _match_text(was: str, now: str, learned: PlaceholderValues) -> bool:
    """Whether two texts are equal except for placeholders in the first, each of which stands for some text."""
    names = [match[1] for match in _placeholder.finditer(was)]
    pieces = _placeholder.split(was)[::2]
    first = _earliest_positions(pieces, now)
    if first is None or not names:
        return False
    mirrored = _earliest_positions([piece[::-1] for piece in reversed(pieces)], now[::-1])
    assert mirrored is not None, "it has matched"
    last = [len(now) - at - len(piece) for at, piece in zip(reversed(mirrored), pieces, strict=True)]
    begin = 0
    for index in range(len(names)):
        if index + 1 < len(names) and first[index + 1] != last[index + 1]:
            continue  # the text after this placeholder matches in several places
        start, end = first[begin] + len(pieces[begin]), last[index + 1]
        value = Secret(now[start:end])
        if begin == index:
            learned.values.append((names[index], value))
        else:
            words = (f"{_MARK}{names[n]}]{pieces[n + 1]}" for n in range(begin, index))
            learned.stretches.append((value, "".join(words) + f"{_MARK}{names[index]}]"))
        begin = index + 1
    return True


def _earliest_positions(pieces: list[str], text: str) -> list[int] | None:
    """The earliest positions in a text of the pieces between the placeholders. None: there is no match."""
    if not text.startswith(pieces[0]):
        return None
    places, at = [0], len(pieces[0])
    for piece in pieces[1:-1]:
        place = text.find(piece, at + 1)
        if place < 0:
            return None
        places.append(place)
        at = place + len(piece)
    end = len(text) - len(pieces[-1])
    return [*places, end] if len(pieces) > 1 and end > at and text.endswith(pieces[-1]) else None


def find_redacted_values(interactions: Iterable[Interaction], rules: Sequence[RedactionRule]) -> NamedSecrets:
    """The values that the rules select, each with the name of its rule."""
    return _select_values((each for one in interactions for each in interaction_texts(one)), rules) if rules else []


def _select_values(texts: Iterable[PlacedText], rules: Sequence[RedactionRule]) -> NamedSecrets:
    values: dict[tuple[str, str], None] = {}
    for each in dict.fromkeys(each for each in texts if each.kind != "piece"):
        for rule in rules:
            is_selected = each.kind != "document" if rule.path is None else _leads_to(rule.path, each)
            found = [each.text] if is_selected and (rule.path or rule.pattern) else []
            if found and rule.pattern is not None:
                matches = compile_mask(rule.pattern).finditer(_searchable(each.text))
                found = [each.text[slice(*match.span())] for match in matches]
            long = (text for text in found if len(_any_placeholder.sub("", text)) >= MIN_VALUE_LENGTH)
            values.update(((rule.name, text), None) for text in long)
    return [(name, Secret(value)) for name, value in values]


def _searchable(text: str) -> str:
    """A text that RE2 accepts: no lone surrogates. Placeholders are blanked."""
    text = text.encode("utf-8", "replace").decode()
    return _any_placeholder.sub(lambda match: "\0" * len(match[0]), text)


def _leads_to(path: str, text: PlacedText) -> bool:
    steps = path.split(".")
    return any(
        text.least <= len(each) <= len(text.steps)
        and all(fnmatchcase(str(have), step) for have, step in zip(text.steps, each, strict=False))
        for each in ([steps, steps[1:]] if steps[0] == "body" else [steps])
    )


def redact_cassette(
    redaction: RunRedaction, interactions: Sequence[Interaction], metadata: Mapping[str, Any], first: int = 1
) -> Cassette:
    """The cassette as it is written. `first`: the number of the first interaction. Raises `storage.failed` if a secret
    could not be redacted."""
    redaction.learn(find_redacted_values(interactions, redaction.rules))
    clean, leaks = _redact_and_search(redaction, interactions, metadata)
    unknown = [leak.value for leak in leaks if leak.value is not None]
    if unknown:
        redaction.learn(unknown)
        clean, leaks = _redact_and_search(redaction, interactions, metadata)
    for leak in leaks:
        place = f"interaction {leak.number + first - 1}, {leak.place}" if leak.number else leak.place
        message = f"nothing was recorded because a secret ({leak.what}) could not be redacted in {place}"
        raise StorageError("storage.failed", message, fields={"path": "cassette", "place": place})
    return clean


def _redact_and_search(
    redaction: RunRedaction, interactions: Sequence[Interaction], metadata: Mapping[str, Any]
) -> tuple[Cassette, list[Leak]]:
    redacted = tuple(redact_interaction(each, redaction.redactor) for each in interactions)
    clean = Cassette(redacted, dict(redaction.data(metadata)), 0)
    return clean, list(search_cassette(clean, redaction.redactor))
