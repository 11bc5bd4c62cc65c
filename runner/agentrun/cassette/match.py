"""When a request is the recorded one: who asks, method, declared endpoint, and the JSON of the body.

Spaces, the order of keys and the spelling of a whole number (`0`, `0.0`, `0e0`) do not count, nor do headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from agentrun.canon import NOT_JSON, compact, read_json
from agentrun.cassette.paths import places
from agentrun.wire import HttpCall

Key: TypeAlias = tuple[str, str, str, bytes]
Tier: TypeAlias = Literal["exact", "normalised"]
"""How well a request fits the recorded one: it is the same, or it is but for its volatile fields."""
TIERS: tuple[Tier, ...] = ("exact", "normalised")

_VOLATILE = "volatile"


def key_of(call: HttpCall, path: str = "") -> Key:
    """What equal requests have in common."""
    return _key(call, path, read_json)


def spelling_of(call: HttpCall, path: str = "") -> Key:
    """The same, but that a number counts as it is spelled. What our codecs write is its own spelling."""
    return _key(call, path, msgspec.json.decode)


def as_sent(call: HttpCall, path: str = "") -> Key:
    """The spelling of a request of ours, for which nothing needs to be read."""
    return path, call.method.upper(), call.url, call.body


def normalised(call: HttpCall, path: str, volatile: Sequence[str]) -> Key:
    """What requests have in common that differ in volatile fields only."""
    return _key(call, path, lambda body: _without(read_json(body), volatile))


def _key(call: HttpCall, path: str, read: Any) -> Key:
    try:
        body = compact(read(call.body))
    except NOT_JSON:
        body = call.body
    return path, call.method.upper(), call.url, body


def _without(data: Any, volatile: Sequence[str]) -> Any:
    """The document with volatile fields that are there, but without what they hold."""
    for field in volatile:
        for container, key in list(places(data, field)):
            container[key] = _VOLATILE
    return data
