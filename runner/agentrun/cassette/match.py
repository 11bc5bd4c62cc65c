"""When a request is the recorded one: who asks, method, declared endpoint, and the JSON of the body.

Spaces, the order of keys and the spelling of a whole number (`0`, `0.0`, `0e0`) do not count, nor do headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec

from agentrun.canonical_json import NOT_JSON, read_json, sorted_json
from agentrun.wire import HttpCall

MatchKey: TypeAlias = tuple[str, str, str, bytes]
MatchTier: TypeAlias = Literal["exact", "normalised"]
"""How well a request fits the recorded one: it is the same, or it is but for its volatile fields."""
MATCH_TIERS: tuple[MatchTier, ...] = ("exact", "normalised")

_VOLATILE = "volatile"


def match_key(call: HttpCall, path: str = "") -> MatchKey:
    """What equal requests have in common."""
    return _key(call, path, read_json)


def spelled_key(call: HttpCall, path: str = "") -> MatchKey:
    """The same, but that a number counts as it is spelled. What our codecs write is its own spelling."""
    return _key(call, path, msgspec.json.decode)


def sent_key(call: HttpCall, path: str = "") -> MatchKey:
    """The spelling of a request of ours, for which nothing needs to be read."""
    return path, call.method.upper(), call.url, call.body


def normalised_key(call: HttpCall, path: str, volatile: Sequence[str]) -> MatchKey:
    """What requests have in common that differ in volatile fields only."""
    return _key(call, path, lambda body: _mask_volatile(read_json(body), volatile))


def _key(call: HttpCall, path: str, read: Any) -> MatchKey:
    try:
        body = sorted_json(read(call.body))
    except NOT_JSON:
        body = call.body
    return path, call.method.upper(), call.url, body


def _mask_volatile(data: Any, volatile: Sequence[str]) -> Any:
    """The document with volatile fields that are there, but without what they hold."""
    for field in volatile:
        for container, key in list(find_locations(data, field)):
            container[key] = _VOLATILE
    return data


# --- fields of a JSON document, by dotted paths such as `user.email` or `messages.*.content` ------------------


JsonLocation: TypeAlias = tuple[Any, Any]
"""A container, and the key or index in it."""


def find_locations(data: Any, path: str) -> Iterator[JsonLocation]:
    """Where in a document a path leads."""
    steps = path.split(".")
    yield from _below(data, steps)
    if steps[0] == "body" and len(steps) > 1:
        yield from _below(data, steps[1:])


def _below(data: Any, steps: list[str]) -> Iterator[JsonLocation]:
    first, *rest = steps
    for key, value in _items(data, first):
        if rest:
            yield from _below(value, rest)
        else:
            yield data, key


def _items(data: Any, step: str) -> Iterator[tuple[Any, Any]]:
    if isinstance(data, dict):
        yield from ((key, data[key]) for key in sorted(data) if key == step or ("*" in step and fnmatchcase(key, step)))
    elif isinstance(data, list):
        yield from ((index, item) for index, item in enumerate(data) if fnmatchcase(str(index), step))
