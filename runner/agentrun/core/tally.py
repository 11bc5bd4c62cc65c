"""Counters that can be extended without copying.

Adding returns a new tally that shares the common part. All tallies of a run use one list of keys, each a prefix of it.
The positions of each key are indexed, so a count is a binary search and not a scan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Self

_FNV_START, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def fnv1a(text: str) -> str:
    value = _FNV_START
    for byte in text.encode("utf-8", "replace"):
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


class Tally:
    __slots__ = ("_keys", "_length", "_places", "_start")

    def __init__(self, start: Mapping[str, int] | None = None, keys: Iterable[str] = ()) -> None:
        self._start = dict(start or {})
        self._keys = list(keys)
        self._length = len(self._keys)
        self._places: dict[str, list[int]] = {}
        for place, key in enumerate(self._keys):
            self._places.setdefault(key, []).append(place)

    def plus(self, key: str) -> Self:
        if len(self._keys) > self._length:  # another tally was extended from here
            return type(self)(self._start, [*self._keys[: self._length], key])
        self._places.setdefault(key, []).append(self._length)
        self._keys.append(key)
        longer = type(self).__new__(type(self))  # skips the work of `__init__`
        longer._start, longer._keys = self._start, self._keys  # noqa: SLF001  # its own
        longer._places, longer._length = self._places, self._length + 1  # noqa: SLF001  # as above
        return longer

    def count(self, key: str) -> int:
        return self._at_start(key) + bisect_left(self._places.get(key, ()), self._length)

    def totals(self) -> dict[str, int]:
        counts = {self._name(key): self.count(key) for key in self._keys[: self._length]}
        return dict(sorted((self._start | counts).items()))

    def _at_start(self, key: str) -> int:
        return self._start.get(key, 0)

    @staticmethod
    def _name(key: str) -> str:
        return key

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Tally) and self.totals() == other.totals()

    __hash__ = None  # type: ignore[assignment]  # equal by content

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.totals()!r})"


class TextTally(Tally):
    """The counts at the start and the totals have hashes as keys. FNV-1a is slow, so texts are hashed late."""

    __slots__ = ()

    def _at_start(self, key: str) -> int:
        return self._start.get(fnv1a(key), 0) if self._start else 0

    @staticmethod
    def _name(key: str) -> str:
        return fnv1a(key)
