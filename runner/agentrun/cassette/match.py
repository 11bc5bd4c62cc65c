"""When a request is the recorded one: method, declared endpoint, and the JSON of the body.

Spaces, the order of keys and the spelling of a whole number (`0`, `0.0`, `0e0`) do not count, nor do headers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from agentrun.canon import compact
from agentrun.wire import HttpCall

Key: TypeAlias = tuple[str, str, bytes]


def key_of(call: HttpCall) -> Key:
    """What equal requests have in common."""
    try:
        body = compact(json_of(call.body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = call.body
    return call.method.upper(), call.url, body


def json_of(body: bytes) -> Any:
    return _decoder.decode(body)


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_decoder = msgspec.json.Decoder(float_hook=_number)
