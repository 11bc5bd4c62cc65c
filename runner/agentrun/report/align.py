"""Which items of two lists are the same one.

Items with one key are, in the order of both lists; what stands between them is aligned by the next, coarser key, and in
the end by its place. So an item that was put in is new, and not every item after it changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Pair: TypeAlias = tuple[T | None, T | None]

MOST_EQUAL = 400_000
"""Pairs of equal items among which the longest runs are looked for: the work grows with them."""
LARGEST = 30_000_000
"""Pairs of any items: at worst all are gone through, but quickly."""


def aligned(one: Sequence[T], two: Sequence[T], *keys: Callable[[T], Hashable]) -> list[Pair[T]]:
    """The items of both lists side by side; None where there is no other."""
    if not keys or not one or not two:
        return list(zip_longest(one, two))
    key, coarser = keys[0], keys[1:]
    left, right = [key(item) for item in one], [key(item) for item in two]
    start, end = _ends(left, right)
    found: list[Pair[T]] = list(zip(one[:start], two[:start], strict=True))
    inner = slice(start, len(left) - end), slice(start, len(right) - end)
    between: list[Pair[T]] = _between(one[inner[0]], two[inner[1]], left[inner[0]], right[inner[1]], coarser)
    found += between
    found += zip(one[len(one) - end :], two[len(two) - end :], strict=True)
    return found


def _between(
    one: Sequence[T],
    two: Sequence[T],
    left: list[Hashable],
    right: list[Hashable],
    keys: tuple[Callable[[T], Hashable], ...],
) -> list[Pair[T]]:
    if len(left) * len(right) > LARGEST or _equal_pairs(left, right) > MOST_EQUAL:
        return aligned(one, two, *keys)
    found: list[Pair[T]] = []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        rest: list[Pair[T]] = aligned(one[i:i_end], two[j:j_end], *(keys if tag != "equal" else ()))
        found += rest
    return found


def _equal_pairs(left: list[Hashable], right: list[Hashable]) -> int:
    others = Counter(right)
    return sum(count * others[key] for key, count in Counter(left).items())


def _ends(left: list[Hashable], right: list[Hashable]) -> tuple[int, int]:
    """How many items are the same at the beginning, and at the end."""
    shortest = min(len(left), len(right))
    start = next((n for n in range(shortest) if left[n] != right[n]), shortest)
    end = next((n for n in range(shortest - start) if left[-1 - n] != right[-1 - n]), shortest - start)
    return start, end
