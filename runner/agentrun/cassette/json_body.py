"""JSON objects that share their parts: each item of a list is kept once, and hashed once.

A conversation repeats itself in every request. A body that continues an earlier one costs as much as its new items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from agentrun.canonical_json import NOT_JSON, sorted_json

LARGE_TEXT = 1024
"""Characters."""


class SharedList:
    """The first `length` items of a list, which longer lists may continue. Items are compact JSON."""

    __slots__ = ("_items", "length", "size")

    def __init__(self, items: list[bytes], size: int | None = None) -> None:
        self._items = items
        self.length = len(items)
        self.size = sum(map(len, items)) if size is None else size

    def __getitem__(self, place: slice) -> list[bytes]:
        start, stop, _ = place.indices(self.length)
        return self._items[start:stop]

    def continued(self, new: list[bytes]) -> SharedList:
        """This list and new items. Nothing is copied, unless another list continues this one already."""
        if self.length < len(self._items):
            return SharedList(self[:] + new)
        self._items += new
        return SharedList(self._items, self.size + sum(map(len, new)))

    def common_length(self, other: SharedList) -> int:
        """How many items at the beginning are surely the same, because two lists share them."""
        return min(self.length, other.length) if self._items is other._items else 0

    def text(self, start: int = 0) -> bytes:
        """The JSON of the items from `start` on, without brackets."""
        items = b",".join(self[start:])
        return b"," + items if start and start < self.length else items


Value: TypeAlias = bytes | SharedList
"""Compact JSON, or the items of a list."""


class JsonBody:
    """The fields of a JSON object, in the order of their names."""

    __slots__ = ("_continued", "_digest", "_hasher", "base", "fields")

    def __init__(self, fields: dict[str, Value]) -> None:
        self.fields = fields
        self.base: JsonBody | None = None
        """The body that this one continues: a list begins with all items of its list."""
        self._continued: str | None = None
        """A list. `_hasher` has read everything up to its last item."""
        self._hasher: Any = None
        self._digest: bytes | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonBody) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def parse(cls, body: str | bytes) -> JsonBody | None:
        """None: it is not a JSON object."""
        try:
            data = msgspec.json.decode(body)
            return cls.of(data) if isinstance(data, dict) else None
        except NOT_JSON:
            return None

    @classmethod
    def of(cls, data: dict[str, Any]) -> JsonBody:
        return cls({name: json_value(data[name]) for name in sorted(data)})

    def derive(self, changes: dict[str, Value], removed: Sequence[str], continued: str | None) -> JsonBody:
        """A body with other fields. `continued`: a list in `changes` that begins with all items of the present one."""
        fields = {**self.fields, **changes}
        if removed or len(fields) > len(self.fields):
            fields = {name: fields[name] for name in sorted(fields) if name not in removed}
        body = JsonBody(fields)
        if continued is not None:
            body._continued, body.base = continued, self
            if self._continued == continued and self._hasher is not None and self._begins(body, continued):
                body._hasher = self._hasher.copy()
                body._hasher.update(body.list_of(continued).text(self.list_of(continued).length))
        return body

    def continue_with(self, body: bytes, compact: bytes) -> JsonBody | None:
        """Parse a compact body that has new items at the end of one list. None: it differs in something else.
        `compact`: the bytes of this body."""
        lists = (name for name, value in self.fields.items() if isinstance(value, SharedList) and value.length)
        return next((found for name in lists if (found := self._continue_list(name, body, compact)) is not None), None)

    def _continue_list(self, name: str, body: bytes, compact: bytes) -> JsonBody | None:
        rest = b"]" + b"".join(b"," + self._field(each) for each in self.fields if each > name) + b"}"
        start = compact[: -len(rest)]
        if len(body) < len(start) + len(rest) or not body.startswith(start) or not body.endswith(rest):
            return None
        added = body[len(start) : len(body) - len(rest)]
        try:
            new = list(map(sorted_json, msgspec.json.decode(b"[" + added[1:] + b"]")))
        except NOT_JSON:
            return None
        if added != b"".join(b"," + each for each in new):
            return None
        return self.with_more(name, new)

    def with_more(self, name: str, items: list[bytes]) -> JsonBody:
        """This body with new items at the end of a list."""
        return self.derive({name: self.list_of(name).continued(items)}, (), name)

    def added_to(self, earlier: JsonBody) -> tuple[str, list[bytes]] | None:
        """The list that has new items at its end, and the items. None: it differs in something else."""
        name = self._continued
        if name is None or self.base is not earlier:
            return None
        if any(value is not earlier.fields.get(each) for each, value in self.fields.items() if each != name):
            return None
        return name, self.list_of(name)[earlier.list_of(name).length :]

    def has_shape_of(self, other: JsonBody) -> bool:
        """Whether another body has the same fields, with lists of the same length."""
        lengths = (
            {name: value.length if isinstance(value, SharedList) else None for name, value in each.fields.items()}
            for each in (self, other)
        )
        return next(lengths) == next(lengths)

    def new_items(self) -> tuple[str, list[bytes]] | None:
        """The list that continues the one of `base`, and its new items. None: there is no base, or more differs."""
        base, name = self.base, self._continued
        if base is None or name is None or self.fields.keys() != base.fields.keys():
            return None
        if any(value is not base.fields[each] for each, value in self.fields.items() if each != name):
            return None
        return name, self.list_of(name)[base.list_of(name).length :]

    def changed(self, change: Callable[[bytes], bytes], base: JsonBody | None) -> JsonBody:
        """The body with every value and every item of a list changed. `base`: the result for the base of this one, with
        which it shares the results."""
        if base is not None and (new := self.new_items()) is not None:
            return base.derive({new[0]: base.list_of(new[0]).continued(list(map(change, new[1])))}, (), new[0])
        return JsonBody(
            {
                name: change(value) if isinstance(value, bytes) else SharedList(list(map(change, value[:])))
                for name, value in self.fields.items()
            }
        )

    def shortened(self, context: int) -> tuple[str, int, JsonBody] | None:
        """The list that continues the one of `base`, how many of its items are left out, and the body without these.

        `context` items before the new ones are not left out. Other lists that `base` has too are.
        """
        base, name = self.base, self._continued
        if base is None or name is None or base.list_of(name).length <= context:
            return None
        gone = base.list_of(name).length - context
        fields = {
            each: value
            for each, value in self.fields.items()
            if not isinstance(value, SharedList) or value is not base.fields.get(each)
        }
        return name, gone, JsonBody({**fields, name: SharedList(self.list_of(name)[gone:])})

    def _begins(self, other: JsonBody, continued: str) -> bool:
        """Whether another body has the same fields up to a list."""
        before = [name for name in other.fields if name < continued]
        return before == [name for name in self.fields if name < continued] and all(
            other.fields[name] is self.fields[name] for name in before
        )

    def list_of(self, name: str) -> SharedList:
        value = self.fields[name]
        assert isinstance(value, SharedList), "only a list is continued"
        return value

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the compact JSON."""
        if self._digest is None:
            self._digest = sha256(self.compact()).digest() if self._continued is None else self._hash(self._continued)
        return self._digest

    def _hash(self, continued: str) -> bytes:
        if self._hasher is None:
            before = b"".join(self._field(name) + b"," for name in self.fields if name < continued)
            self._hasher = sha256(b"{" + before + _name(continued) + b"[" + self.list_of(continued).text())
        hasher = self._hasher.copy()
        hasher.update(b"]" + b"".join(b"," + self._field(name) for name in self.fields if name > continued) + b"}")
        digest: bytes = hasher.digest()
        return digest

    def _field(self, name: str) -> bytes:
        value = self.fields[name]
        return _name(name) + (value if isinstance(value, bytes) else b"[" + value.text() + b"]")

    @property
    def size(self) -> int:
        """The bytes of the values."""
        return sum(len(each) if isinstance(each, bytes) else each.size for each in self.fields.values())

    def compact(self) -> bytes:
        return b"{" + b",".join(map(self._field, self.fields)) + b"}"

    def pretty(self) -> bytes:
        """As it is written if it is not packed."""
        return msgspec.json.format(self.compact(), indent=2) + b"\n"

    def large_texts(self) -> Iterator[str]:
        for value in self.fields.values():
            for each in (value,) if isinstance(value, bytes) else value[:]:
                yield from large_texts(each)


class ChangedBodies:
    """Changes the bodies of a cassette in their order. Items that bodies share are changed once."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self._change = change
        self._done: dict[int, tuple[JsonBody, JsonBody]] = {}
        """By the id of the body, which is kept with it."""

    def of(self, body: JsonBody) -> JsonBody:
        base = self._done.get(id(body.base))
        changed = body.changed(self._change, None if base is None else base[1])
        self._done[id(body)] = body, changed
        return changed


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return msgspec.json.encode(name) + b":"


def json_value(data: Any) -> Value:
    return SharedList(list(map(sorted_json, data))) if isinstance(data, list) else sorted_json(data)


def large_texts(document: str | bytes) -> Iterator[str]:
    """The large texts in a JSON document."""
    if len(document) < LARGE_TEXT:
        return
    try:
        left = [msgspec.json.decode(document)]
    except NOT_JSON:
        return
    while left:
        value = left.pop()
        match value:
            case dict():
                left += value.values()
            case list():
                left += value
            case str() if len(value) >= LARGE_TEXT:
                yield value
