"""Changes of a body's bytes, which keep the borders of the pieces it came in.

A border inside what is replaced moves to its end. A piece of which nothing is left is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple


class Edit(NamedTuple):
    """Bytes from `start` to `end` become others."""

    start: int
    end: int
    new: bytes


class Body(NamedTuple):
    """Bytes, and the sizes of the pieces in which they came. Empty: in one."""

    data: bytes
    chunks: tuple[int, ...] = ()


def edited(body: Body, edits: Iterable[Edit]) -> Body:
    """The body after changes that do not overlap."""
    edits = sorted(edits)
    pieces: list[bytes] = []
    at = 0
    for start, end, new in edits:
        pieces += [body.data[at:start], new]
        at = end
    data = b"".join([*pieces, body.data[at:]])
    if not body.chunks:
        return Body(data)
    borders = _moved([0, *accumulate(body.chunks)], edits)
    return Body(data, tuple(end - start for start, end in pairwise(borders) if end > start))


def _moved(borders: list[int], edits: list[Edit]) -> list[int]:
    moved, growth, waiting = [], 0, iter([*edits, None])
    edit = next(waiting)
    for border in borders:
        while edit is not None and edit.end <= border:
            growth += len(edit.new) - (edit.end - edit.start)
            edit = next(waiting)
        if edit is not None and edit.start < border:
            moved.append(edit.start + growth + len(edit.new))
        else:
            moved.append(border + growth)
    return moved
