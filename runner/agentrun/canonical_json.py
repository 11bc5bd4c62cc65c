"""Canonical JSON and hashes: equal values give equal bytes.

Rule 1  Fingerprints use RFC 8785 JSON, because other languages can produce the same bytes.
Rule 2  Journal lines and match keys use compact JSON with sorted keys, which is forty times faster.
Rule 3  NaN has no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from operator import is_
from typing import Any, TypeVar

import msgspec

StructT = TypeVar("StructT", bound=msgspec.Struct)
_sorted_encoder = msgspec.json.Encoder(order="sorted")
sorted_json: Callable[[Any], bytes] = _sorted_encoder.encode
"""Compact JSON with sorted keys, for journal lines and match keys."""
_CONTAINERS, _NUMBERS = (dict, list, tuple), (int, float)
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def canonical_json(value: Any) -> bytes:
    """RFC 8785 canonical JSON of plain data or msgspec structs."""
    plain = msgspec.to_builtins(value, str_keys=True)
    try:
        packed = msgspec.msgpack.encode(plain)
    except (OverflowError, UnicodeEncodeError):  # the error of RFC 8785 is a better one
        packed = None
    return _dump_rfc8785(plain) if packed is None else _canonical(packed)


@lru_cache(maxsize=32)
def _canonical(packed: bytes) -> bytes:
    """Many runs use the same few packages, and each checks the fingerprint of its package."""
    return _dump_rfc8785(msgspec.msgpack.decode(packed))


def _dump_rfc8785(plain: Any) -> bytes:
    import rfc8785  # late: 12 ms of start-up that only fingerprints need

    return rfc8785.dumps(plain)


def fingerprint(value: Any) -> str:
    return data_hash(canonical_json(value))


def pretty_json(value: Any) -> str:
    """Indented JSON with sorted keys and a final newline, for files that people read and compare."""
    return msgspec.json.format(_sorted_encoder.encode(value), indent=2).decode() + "\n"


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


read_json: Callable[[bytes], Any] = msgspec.json.Decoder(float_hook=_number).decode
"""Parse JSON. Whole numbers become ints, also `1.0` and `1e3`. Raises one of NOT_JSON."""


class SpelledFloat(float):
    """A number that knows how it was written, such as 12.50."""

    def __init__(self, spelled: str) -> None:
        self.spelled = spelled


_lenient_decoder = json.JSONDecoder(strict=False, parse_float=SpelledFloat)


def parse_document(text: str) -> Any:
    """Parse a JSON object, list or string, even one with control characters. None: it is something else."""
    text = text.removeprefix("\ufeff")
    if text.lstrip(" \t\r\n")[:1] not in ("{", "[", '"'):
        return None
    try:
        return _lenient_decoder.decode(text)
    except (ValueError, RecursionError):
        return None


def is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except NOT_JSON:
        return False
    return True


def json_or_text(text: str | bytes) -> Any:
    try:
        return read_json(text.encode() if isinstance(text, str) else text)
    except (*NOT_JSON, UnicodeEncodeError):
        return text if isinstance(text, str) else text.decode("utf-8", "replace")


def data_hash(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def text_hash(text: str | bytes) -> str:
    """Line ends are not normalised."""
    return data_hash(text.encode() if isinstance(text, str) else text)


def same_json(one: Any, two: Any) -> bool:
    """Compare two JSON values. `true` and `1` are different."""
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same_json, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same_json(one[key], two[key]) for key in one)
    return bool(one == two) and isinstance(one, bool) == isinstance(two, bool)


def _same(value: Any) -> Any:
    return value


def map_json(
    value: Any, *, text: Callable[[str], Any] = _same, number: Callable[[Any], Any] = _same, keys: bool = False
) -> Any:
    """Change the texts and numbers of JSON data, with `keys` also its keys. Returns the same object if none changes."""

    holders: list[Any] = [[value]]
    starts = []
    for holder in holders:  # it grows. Nothing recurses, because data may be nested deeply
        starts.append(len(holders))
        items = holder.values() if isinstance(holder, dict) else holder
        holders += [item for item in items if isinstance(item, _CONTAINERS)]

    def change(item: Any) -> Any:
        if isinstance(item, str):
            return text(item)
        if isinstance(item, _CONTAINERS):
            return holders[next(children)]
        return number(item) if isinstance(item, _NUMBERS) and not isinstance(item, bool) else item

    for index in range(len(holders) - 1, -1, -1):  # those inside come first
        holder, children = holders[index], count(starts[index])
        if isinstance(holder, dict):
            names = [change(name) for name in holder] if keys else holder
            items = [change(item) for item in holder.values()]
            if not all(map(is_, names, holder)) or not all(map(is_, items, holder.values())):
                holders[index] = dict(zip(names, items, strict=True))
        else:
            items = [change(item) for item in holder]
            if not all(map(is_, items, holder)):
                holders[index] = type(holder)(items)
    return holders[0][0]


def escape_surrogates(struct: StructT) -> StructT:
    """Write each half of a surrogate pair as an escape, such as `\\ud83d`. UTF-8 has no form for it."""

    def escape(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    return msgspec.convert(map_json(msgspec.to_builtins(struct), text=escape, keys=True), type(struct))
