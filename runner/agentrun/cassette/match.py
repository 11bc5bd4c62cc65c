"""Match keys: a request matches a recorded one if its run path, method, declared endpoint and JSON body are equal.

Whitespace, the order of keys, the notation of a whole number (`0`, `0.0`, `0e0`) and headers do not count.

Volatile fields are named by dotted paths such as `user.email` or `messages.*.content`:

Rule 1  A step is a key, the position of a list item, or a pattern in which `*` matches any text.
Rule 2  A path may begin with `body.`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import msgspec

from agentrun.canonical_json import NOT_JSON, read_json, sorted_json
from agentrun.cassette.match_tiers import MatchTier
from agentrun.wire import HttpCall

MatchKey: TypeAlias = tuple[str, str, str, bytes]
_VOLATILE = "volatile"


def match_key(call: HttpCall, path: str = "") -> MatchKey:
    """The key that equal requests share."""
    return _key(call, path, read_json)


def spelled_key(call: HttpCall, path: str = "") -> MatchKey:
    """The same, except that numbers count as they are written. Our codecs always write them the same way."""
    return _key(call, path, msgspec.json.decode)


def sent_key(call: HttpCall, path: str = "") -> MatchKey:
    """The `spelled_key` of a request from our own codecs, which does not need to be parsed."""
    return path, call.method.upper(), call.url, call.body


def normalised_key(call: HttpCall, path: str, volatile: Sequence[str]) -> MatchKey:
    """The key of requests that differ only in volatile fields."""
    return _key(call, path, lambda body: _mask_volatile(read_json(body), volatile))


TIER_KEYS: dict[MatchTier, Callable[[HttpCall, str, Sequence[str]], MatchKey]] = {"normalised": normalised_key}
"""The key of a request in each tier below `exact`: of the request, its run path and the volatile fields."""


def _key(call: HttpCall, path: str, read: Any) -> MatchKey:
    try:
        body = sorted_json(read(call.body))
    except NOT_JSON:
        body = call.body
    return path, call.method.upper(), call.url, body


def _mask_volatile(data: Any, volatile: Sequence[str]) -> Any:
    for field in volatile:
        for container, key in list(find_locations(data, field)):
            container[key] = _VOLATILE
    return data


JsonLocation: TypeAlias = tuple[Any, Any]
"""A container, and the key or index in it."""


def find_locations(data: Any, path: str) -> Iterator[JsonLocation]:
    """All places of a document that a dotted path matches."""
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
