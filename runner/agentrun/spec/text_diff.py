"""Where two texts, or two lists of lines, differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher


def common_prefix_length(one: str, two: str) -> int:
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == two[low:middle] else (low, middle - 1)
    return low


def common_ends(left: Sequence[Hashable], right: Sequence[Hashable]) -> tuple[int, int]:
    """The number of equal items at the beginning and at the end."""
    shortest = min(len(left), len(right))
    start = next((n for n in range(shortest) if left[n] != right[n]), shortest)
    end = next((n for n in range(shortest - start) if left[-1 - n] != right[-1 - n]), shortest - start)
    return start, end


def pair_changed_lines(one: list[str], two: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """The indexes of the lines that differ, old and new side by side. Cubic in the worst case."""
    for tag, i, i_end, j, j_end in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        for n in range(max(i_end - i, j_end - j) if tag != "equal" else 0):
            yield i + n if i + n < i_end else None, j + n if j + n < j_end else None
