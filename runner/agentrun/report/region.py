"""Text fitted into rows of a terminal: the last few rows of what streams by, and a line that must not wrap.

Widths are counted in cells, as terminals do: wide characters take two, marks that join the one before take none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from agentrun.secret import mask
from agentrun.spec.problems import visible


def last_rows(text: str, width: int, most: int) -> list[str]:
    """The end of a text, made safe to show and folded at the width."""
    found: list[str] = []
    for line in reversed(mask(text).rstrip("\n").split("\n")):
        found[:0] = folded(visible(line.removesuffix("\r")), width)
        if len(found) >= most:
            break
    return found[-most:] if most > 0 else []


def fitted(text: str, width: int) -> str:
    """One row of a text, cut if it is too long."""
    rows = list(folded(visible(text), width))
    if len(rows) == 1:
        return rows[0]
    begun = next(folded(rows[0], max(width - 1, 1)))
    return f"{begun}…" if sum(map(_cells, begun)) < width else "…"  # one character may be wider than what is left


def folded(line: str, width: int) -> Iterator[str]:
    """A line in rows of at most so many cells. It is safe to show already."""
    start, used = 0, 0
    for place, char in enumerate(line):
        cells = _cells(char)
        if used + cells > width and place > start:
            yield line[start:place]
            start, used = place, 0
        used += cells
    yield line[start:]


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
