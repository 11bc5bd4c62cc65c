"""Packed request bodies: what a request shares with an earlier one is named, and only what is new is written.

    {
      "same_as_interaction": 3,                            counted from 1, as in the file
      "except": {
        "messages": [
          {"keep": "messages 1 to 4"},                     of interaction 3
          {"content": "I look it up.", "role": "assistant"},
          {"content": {"same_text_as_in_interaction": 4, "sha256": "9f86…"}, "role": "tool"}
        ],
        "temperature": 0.5
      },
      "without": ["tool_choice"]
    }

Rule 1  Only `response.agentrun.sha256_of_whole_request` makes a body a packed one. Its value is the hash of the whole
        body as compact JSON with sorted keys, so that an expanded body is never a guess.
Rule 2  Packing knows no wire format: any JSON object can be packed. A body that has one of the forms above in it is
        written whole.
Rule 3  The expanded body is equal to the written one, byte by byte: indented JSON with sorted keys.
Rule 4  Items of a list are kept in their order, each at most once, so a body cannot grow faster than its file. What all
        bodies of a cassette repeat is limited, too.
Rule 5  A large text is written once. Later requests name the interaction that has it, and its hash.
Rule 6  The cost of a body is that of its new items. Kept items are shared with the earlier body, and the hash goes on
        from its hash.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import msgspec

from agentrun.canonical_json import NOT_JSON, sorted_json
from agentrun.cassette.json_body import LARGE_TEXT, JsonBody, SharedList, Value, json_value, large_texts

PACKED_KEY = "sha256_of_whole_request"
"""In `response.agentrun`."""
BASE_KEY, CHANGES_KEY, REMOVED_KEY, KEEP_KEY = "same_as_interaction", "except", "without", "keep"
TEXT_KEY, HASH_KEY = "same_text_as_in_interaction", "sha256"
MIN_SAVING = 200
"""Bytes that packing must save. Shorter bodies are easier to read if they are whole."""
MAX_EXPANDED_BODY = 64 * 1024 * 1024
MAX_REPEATED_TEXT = 256 * 1024 * 1024
"""Characters that the references of a cassette may stand for, and below the items that lists may repeat: a small file
must not fill the memory."""
MAX_REPEATED_ITEMS = 10_000_000
_MAX_COMPARED_ITEMS = 200
_TEXT_MARK = f'"{TEXT_KEY}"'.encode()
_KEEP_MARK = b'{"keep":'
_range = re.compile(r"([1-9][0-9]{0,8})(?: to ([1-9][0-9]{0,8}))?")


class PackingError(Exception):
    """A packed body refers to something that is not there, or is not what was recorded."""


def _text_hash(text: str | bytes) -> str:
    return sha256(text.encode() if isinstance(text, str) else text).hexdigest()


class Expander:
    """Expands the packed bodies of a cassette. Its interactions are added in their order."""

    def __init__(self) -> None:
        self._bodies: list[bytes | JsonBody] = []
        self._replies: list[bytes] = []
        self._texts: dict[int, dict[str, str]] = {}
        self._referenced_text = 0
        self._repeated_items = 0

    def add(self, body: bytes | JsonBody, reply: bytes) -> None:
        self._bodies.append(body)
        self._replies.append(reply)

    def expand(self, body: bytes, digest: str) -> JsonBody:
        """`digest`: the value of `sha256_of_whole_request`. Raises `PackingError`."""
        try:
            data = msgspec.json.decode(body)
            if _TEXT_MARK in body:
                data = self._with_texts(data)
        except NOT_JSON as error:
            raise PackingError("the packed request is not JSON") from error
        if not isinstance(data, dict):
            raise PackingError("the packed request is not a JSON object")
        whole = self._derived(data) if BASE_KEY in data else JsonBody.of(data)
        if whole.size > MAX_EXPANDED_BODY:
            raise PackingError(f"the expanded request has more than {MAX_EXPANDED_BODY} bytes")
        if "sha256:" + whole.digest.hex() != digest:
            raise PackingError(
                "the expanded request is not the recorded one, because it or an interaction that it refers to was "
                "changed, moved or removed"
            )
        return whole

    def _derived(self, data: dict[str, Any]) -> JsonBody:
        base = self._body(data[BASE_KEY])
        changes, removed = data.get(CHANGES_KEY, {}), data.get(REMOVED_KEY, [])
        is_known = data.keys() <= {BASE_KEY, CHANGES_KEY, REMOVED_KEY}
        if not is_known or not isinstance(changes, dict) or not isinstance(removed, list):
            raise PackingError(f"a packed request has only {BASE_KEY!r}, {CHANGES_KEY!r} and {REMOVED_KEY!r}")
        if any(not isinstance(name, str) or name not in base.fields or name in changes for name in removed):
            raise PackingError(f"{REMOVED_KEY!r} names a field that interaction {data[BASE_KEY]} does not have")
        fields: dict[str, Value] = {}
        continued = None
        for name, value in changes.items():
            old = base.fields.get(name)
            if isinstance(value, list) and isinstance(old, SharedList):
                fields[name], is_continued = _with_kept(name, value, old)
                self._repeated_items += 0 if is_continued else old.length
                continued = name if is_continued else continued
            else:
                fields[name] = json_value(value)
        if self._repeated_items > MAX_REPEATED_ITEMS:
            raise PackingError(f"the requests repeat more than {MAX_REPEATED_ITEMS} items")
        return base.derive(fields, removed, continued)

    def _body(self, number: Any) -> JsonBody:
        index = self._index(number)
        body = self._bodies[index]
        if isinstance(body, bytes):
            parsed = JsonBody.parse(body)
            if parsed is None:
                raise PackingError(f"it refers to interaction {number}, whose request is not a JSON object")
            body = self._bodies[index] = parsed
        return body

    def _index(self, number: Any) -> int:
        if type(number) is not int or not 0 < number <= len(self._bodies):
            raise PackingError(f"it refers to interaction {number}, which does not come before it")
        return number - 1

    def _with_texts(self, value: Any) -> Any:
        match value:
            case {"same_text_as_in_interaction": number, "sha256": str(digest)} if len(value) == 2:
                return self._text(self._index(number), digest)
            case dict():
                return {name: self._with_texts(each) for name, each in value.items()}
            case list():
                return [self._with_texts(each) for each in value]
        return value

    def _text(self, index: int, digest: str) -> str:
        """A text of an interaction: its reply, a text in its reply, or a text in its request."""
        known = self._texts.get(index)
        if known is None:
            reply = self._replies[index]
            known = self._texts[index] = {_text_hash(reply): reply.decode("utf-8", "replace")}
        if digest not in known:
            body = self._bodies[index]
            known.update((_text_hash(each), each) for each in large_texts(self._replies[index]))
            texts = large_texts(body) if isinstance(body, bytes) else body.large_texts()
            known.update((_text_hash(each), each) for each in texts)
        if digest not in known:
            raise PackingError(f"it refers to a text of interaction {index + 1} that is not there")
        self._referenced_text += len(known[digest])
        if self._referenced_text > MAX_REPEATED_TEXT:
            raise PackingError(f"the references stand for more than {MAX_REPEATED_TEXT} characters")
        return known[digest]


def _with_kept(name: str, items: list[Any], old: SharedList) -> tuple[SharedList, bool]:
    """A list with the kept items of the old one, and whether it begins with all of these."""
    new: list[bytes] = []
    kept, is_continued = 0, False
    for place, item in enumerate(items):
        if not isinstance(item, dict) or item.keys() != {KEEP_KEY}:
            new.append(sorted_json(item))
            continue
        first, last = _kept_range(name, item[KEEP_KEY])
        if not kept < first <= last <= old.length:
            raise PackingError(f"it keeps {item[KEEP_KEY]!r}, which are not there or are kept already")
        if place == 0 and (first, last) == (1, old.length):
            is_continued = True
        else:
            new += old[first - 1 : last]
        kept = last
    return old.continued(new) if is_continued else SharedList(new), is_continued


def _kept_range(name: str, text: Any) -> tuple[int, int]:
    match = _range.fullmatch(text.removeprefix(name + " ")) if isinstance(text, str) else None
    if match is None:
        raise PackingError(f"{KEEP_KEY!r} must be like '{name} 1 to 4'")
    return int(match[1]), int(match[2] or match[1])


Changes: TypeAlias = dict[str, bytes | list[str | bytes]]
"""New values by field. An item of a list is compact JSON, or a text that says what is kept."""


class _Difference(NamedTuple):
    """How a body differs from an earlier one."""

    base: int
    changes: Changes
    removed: list[str]

    @property
    def size(self) -> int:
        values = self.changes.values()
        return sum(len(each) if isinstance(each, bytes) else sum(map(len, each)) for each in values)


class PackedText(NamedTuple):
    body: str
    digest: str
    """The value of `sha256_of_whole_request`."""


class Packer:
    """Packs the request bodies of a cassette. `pack` and `add_reply` are called for each interaction in turn."""

    def __init__(self) -> None:
        self._bodies: list[JsonBody | None] = []
        self._bases: dict[tuple[str, ...], list[int]] = {}
        """The first and the last request of each endpoint, and of each run to it."""
        self._texts: dict[str, int] = {}
        """The interaction that has a large text, by its hash."""
        self._references = 0

    def pack(self, body: str | JsonBody | None, endpoint: tuple[str, str], path: str) -> PackedText | None:
        """None: the body is written whole."""
        whole = JsonBody.parse(body) if isinstance(body, str) else body
        self._bodies.append(whole)
        if whole is None:
            return None
        keys = (*endpoint, path), endpoint
        bases = dict.fromkeys(base for key in keys for base in self._bases.get(key, ()))
        differences = [self._compare(base, whole) for base in bases]
        for key in keys:
            self._bases[key] = [*self._bases.get(key, [])[:1], len(self._bodies)]
        best = min(differences, key=lambda each: (each.size, -each.base), default=None)
        if best is not None and whole.size - best.size < MIN_SAVING:
            best = None
        return self._write(whole, best)

    def add_reply(self, reply: str | bytes) -> None:
        if len(reply) >= LARGE_TEXT:
            for text in (reply, *large_texts(reply)):
                self._texts.setdefault(_text_hash(text), len(self._bodies))

    def _compare(self, base: int, whole: JsonBody) -> _Difference:
        body = self._bodies[base - 1]
        assert body is not None, "only JSON objects are compared"
        changes: Changes = {}
        for name, value in whole.fields.items():
            old = body.fields.get(name)
            if isinstance(value, bytes):
                if value != old:
                    changes[name] = value
            elif not isinstance(old, SharedList):
                changes[name] = [*value[:]]
            elif (items := _compare_lists(name, old, value)) is not None:
                changes[name] = items
        return _Difference(base, changes, [name for name in body.fields if name not in whole.fields])

    def _write(self, whole: JsonBody, difference: _Difference | None) -> PackedText | None:
        if difference is None:
            values = whole.fields.items()
            changes: Changes = {name: value if isinstance(value, bytes) else [*value[:]] for name, value in values}
        else:
            changes = difference.changes
        before = self._references
        fields = {name: self._written(value) for name, value in changes.items()}
        has_references = self._references > before
        if _is_ambiguous(changes) or (difference is None and (BASE_KEY in whole.fields or not has_references)):
            return None
        data: dict[str, Any] = fields
        if difference is not None:
            data = {BASE_KEY: difference.base}
            data |= {CHANGES_KEY: fields} if fields else {}
            data |= {REMOVED_KEY: difference.removed} if difference.removed else {}
        packed = msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
        return PackedText(packed, "sha256:" + whole.digest.hex())

    def _written(self, value: str | bytes | list[str | bytes]) -> Any:
        match value:
            case list():
                return [self._written(item) for item in value]
            case str():
                return {KEEP_KEY: value}
            case bytes() if len(value) < LARGE_TEXT:
                return msgspec.Raw(value)
        return self._with_references(msgspec.json.decode(value))

    def _with_references(self, value: Any) -> Any:
        match value:
            case dict():
                return {name: self._with_references(each) for name, each in value.items()}
            case list():
                return [self._with_references(each) for each in value]
            case str() if len(value) >= LARGE_TEXT:
                number = self._texts.setdefault(digest := _text_hash(value), len(self._bodies))
                if number < len(self._bodies):
                    self._references += 1
                    return {TEXT_KEY: number, HASH_KEY: digest}
        return value


def _is_ambiguous(changes: Changes) -> bool:
    """Whether new values look like a reference."""
    for value in changes.values():
        for item in (value,) if isinstance(value, bytes) else value:
            if isinstance(item, bytes) and (_TEXT_MARK in item or item.startswith(_KEEP_MARK)):
                return True
    return False


def _compare_lists(name: str, before: SharedList, now: SharedList) -> list[str | bytes] | None:
    """The items of a list, with a text for those that are kept. None: nothing changed."""
    first, last = before.common_length(now), 0
    if first == before.length == now.length:
        return None
    if first == before.length > 1:  # as in every conversation: nothing is compared
        return [f"{name} 1 to {first}", *now[first:]]
    old, new = before[:], now[:]
    if old == new:
        return None
    shorter = min(len(old), len(new))
    while first < shorter and old[first] == new[first]:
        first += 1
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    blocks = [(0, 0, first), *_equal_blocks(old, new, first, last), (len(old) - last, len(new) - last, last)]
    items: list[str | bytes] = []
    done = 0
    for start, place, length in blocks:
        items += new[done:place]
        if length:
            items.append(f"{name} {start + 1} to {start + length}" if length > 1 else f"{name} {start + 1}")
        done = place + length
    return items


def _equal_blocks(old: list[bytes], new: list[bytes], first: int, last: int) -> list[tuple[int, int, int]]:
    """The equal parts between the beginning and the end, as (place in old, place in new, length)."""
    one, two = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(one), len(two)) > _MAX_COMPARED_ITEMS and len(one) != len(two):
        return []
    if len(one) == len(two):  # some of the items were replaced, each by one
        places = [place for place, (a, b) in enumerate(zip(one, two, strict=True)) if a == b]
        starts = [place for place in places if place == 0 or one[place - 1] != two[place - 1]]
        ends = [place + 1 for place in places if place + 1 == len(one) or one[place + 1] != two[place + 1]]
        return [(first + start, first + start, end - start) for start, end in zip(starts, ends, strict=True)]
    blocks = SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks()
    return [(first + start, first + place, length) for start, place, length in blocks if length]
