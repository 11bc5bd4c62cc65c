"""Align two lists, and compare plain values field by field.

Items with the same key are aligned, in the order of both lists. Items between them are aligned by the next, coarser
key, and at last by their place. So an inserted item is new, and the items after it have not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from agentrun.canonical_json import same_json, sorted_json
from agentrun.secret import MASK, mask, names_credential
from agentrun.spec.safe_text import common_ends, common_prefix_length, pair_changed_lines, short_text

ItemT = TypeVar("ItemT")
AlignedPair: TypeAlias = tuple[ItemT | None, ItemT | None]

MAX_EQUAL_PAIRS = 400_000
"""Limit of pairs of equal items. The time to align lists grows with them."""
MAX_PAIRS = 30_000_000
"""Limit of pairs of any items. At worst all are visited, which is fast."""
MAX_SHOWN = 80
MAX_FIELDS = 8
MAX_COMPARED_LINES = 200
"""Lines after the first difference that are aligned."""
_BEFORE = 15


def align_lists(
    one: Sequence[ItemT], two: Sequence[ItemT], *keys: Callable[[ItemT], Hashable]
) -> list[AlignedPair[ItemT]]:
    """The items of both lists side by side; None if an item has no partner."""
    if not keys or not one or not two:
        return list(zip_longest(one, two))
    key, coarser = keys[0], keys[1:]
    left, right = [key(item) for item in one], [key(item) for item in two]
    start, end = common_ends(left, right)
    found: list[AlignedPair[ItemT]] = list(zip(one[:start], two[:start], strict=True))
    inner = slice(start, len(left) - end), slice(start, len(right) - end)
    between: list[AlignedPair[ItemT]] = _align_between(
        one[inner[0]], two[inner[1]], left[inner[0]], right[inner[1]], coarser
    )
    found += between
    found += zip(one[len(one) - end :], two[len(two) - end :], strict=True)
    return found


def _align_between(
    one: Sequence[ItemT],
    two: Sequence[ItemT],
    left: list[Hashable],
    right: list[Hashable],
    keys: tuple[Callable[[ItemT], Hashable], ...],
) -> list[AlignedPair[ItemT]]:
    others = Counter(right)
    equal = sum(count * others[key] for key, count in Counter(left).items())
    if len(left) * len(right) > MAX_PAIRS or equal > MAX_EQUAL_PAIRS:
        return align_lists(one, two, *keys)
    found: list[AlignedPair[ItemT]] = []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        rest: list[AlignedPair[ItemT]] = align_lists(one[i:i_end], two[j:j_end], *(keys if tag != "equal" else ()))
        found += rest
    return found


class _Absent:
    """A missing value, which is not null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()


class FieldDifference(NamedTuple):
    path: str
    """Dotted, with `[n]` for an item; empty for the values themselves."""
    before: Any
    after: Any

    def text(self, place: str = "") -> str:
        """`total 120 → 130`."""
        name = short_text(self.path, MAX_SHOWN) or place
        if self.before is ABSENT:
            return f"{name} is new: {format_value(self.after, self.path)}"
        if self.after is ABSENT:
            return f"{name} is gone: {format_value(self.before, self.path)}"
        return f"{name} {format_change(self.before, self.after, self.path)}".lstrip()


def compare_fields(before: Any, after: Any, path: str = "") -> Iterator[FieldDifference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{path}.{key}" if path else str(key)
            yield from compare_fields(before.get(key, ABSENT), after.get(key, ABSENT), place)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            one, two = (each[index] if index < len(each) else ABSENT for each in (before, after))
            yield from compare_fields(one, two, f"{path}[{index}]")
    elif not same_json(before, after):
        yield FieldDifference(path, before, after)


def format_differences(before: Any, after: Any, place: str = "it") -> str:
    found = list(islice(compare_fields(before, after), MAX_FIELDS + 1))
    texts = [field.text(place) for field in found[:MAX_FIELDS]]
    return ", ".join([*texts, "and more"] if len(found) > MAX_FIELDS else texts)


def format_change(before: Any, after: Any, key: str = "") -> str:
    """`120 → 130`."""
    if isinstance(before, str) and isinstance(after, str):
        before, after = mask(before), mask(after)
        is_long = max(len(before), len(after)) > MAX_SHOWN
        start = max(0, common_prefix_length(before, after) - _BEFORE) if is_long else 0
        lead = "…" if start else ""
        one, two = (format_value(lead + each[start:], key) for each in (before, after))
    else:
        one, two = format_value(before, key), format_value(after, key)
    return f"{one} → {two}" if one != two else f"{one}, which differs in a part that is masked or not shown"


def format_value(value: Any, key: str = "") -> str:
    if isinstance(value, str):
        return MASK if names_credential(key.rpartition(".")[2]) else f"“{short_text(value, MAX_SHOWN)}”"
    if isinstance(value, dict | list) and value:
        value = _mask_values(value)
    try:
        return short_text(sorted_json(value).decode(), MAX_SHOWN)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "a value that is not JSON"


def parse_json_text(text: Any) -> Any:
    """The parsed value if a text is a JSON object or list; otherwise the text."""
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return text
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


class LineDifference(NamedTuple):
    number: int
    """From 1; for a removed line, its number in the old text."""
    before: str | None
    after: str | None


def compare_lines(before: str, after: str) -> list[LineDifference]:
    one, two = before.split("\n"), after.split("\n")
    start, end = common_ends(one, two)
    one = one[start : len(one) - end][:MAX_COMPARED_LINES]
    two = two[start : len(two) - end][:MAX_COMPARED_LINES]
    found = []
    for i, j in pair_changed_lines(one, two):
        number = start + 1 + ((i if j is None else j) or 0)
        found.append(LineDifference(number, None if i is None else one[i], None if j is None else two[j]))
    return found


def _mask_values(value: Any, key: str = "") -> Any:
    match value:
        case str():
            return MASK if names_credential(key) else mask(value)
        case dict():
            return {mask(str(name)): _mask_values(item, str(name)) for name, item in islice(value.items(), MAX_SHOWN)}
        case list():
            return [_mask_values(item) for item in value[:MAX_SHOWN]]
    return value
