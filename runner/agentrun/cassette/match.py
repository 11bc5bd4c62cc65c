"""Match keys: a request matches a recorded one if its run path, method, declared endpoint and JSON body are equal.

Whitespace, the order of keys, the notation of a whole number (`0`, `0.0`, `0e0`) and headers do not count.

Volatile fields are named by dotted paths (`FieldPath`), which may begin with `body.`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from agentrun.canonical_json import NOT_JSON, read_json, sorted_json
from agentrun.cassette.match_tiers import MatchTier
from agentrun.spec.v1.field_types import replace_at_path
from agentrun.wire import HttpCall

MatchKey: TypeAlias = tuple[str, str, str, bytes]
_VOLATILE = "volatile"


def match_key(call: HttpCall, path: str = "") -> MatchKey:
    return _key(call, path, read_json)


def sent_key(call: HttpCall, path: str = "") -> MatchKey:
    """The same, except that numbers count as they are written. Our codecs always write them the same way, so that a
    request does not need to be parsed."""
    return path, call.method.upper(), call.url, call.body


def normalised_key(call: HttpCall, path: str, volatile: Sequence[str]) -> MatchKey:
    """The key of requests that differ only in volatile fields."""
    return _key(call, path, lambda body: _mask_volatile(read_json(body), volatile))


TIER_KEYS: Mapping[MatchTier, Callable[[HttpCall, str, Sequence[str]], MatchKey]] = {"normalised": normalised_key}
"""The key of each tier after the first. It gets the request, its run path and the volatile fields of the spec."""


def json_bytes(body: bytes, read: Callable[[bytes], Any] = msgspec.json.decode) -> bytes:
    """A body as our codecs write it: compact, with sorted keys. Unchanged if it is not JSON."""
    try:
        return sorted_json(read(body))
    except NOT_JSON:
        return body


def _key(call: HttpCall, path: str, read: Any) -> MatchKey:
    return path, call.method.upper(), call.url, json_bytes(call.body, read)


def _mask_volatile(data: Any, volatile: Sequence[str]) -> Any:
    for path in volatile:
        replace_at_path(data, path, _VOLATILE)
        if path.startswith("body."):
            replace_at_path(data, path.removeprefix("body."), _VOLATILE)
    return data
