"""Where each line of a rendered text came from.

Rule 1  Text of the template keeps its place, character by character, also beside `{%-` and `-%}`: what is stripped is
        stripped from the ends of a piece and moves nothing.
Rule 2  What an expression gives comes, with all its lines, from the line on which the expression begins.
Rule 3  A line that has no character of its own is placed by the end of line before which it stands.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from jinja2 import nodes
from msgspec import Struct


class Line(Struct, frozen=True):
    """One line of a rendered text."""

    text: str
    parts: tuple[tuple[int, int], ...]
    """Where something else begins: column, from 0, and the line of the template, from 1. The first column is 0."""

    def origin(self, column: int = 0) -> int:
        """The template's line that gave the character at a column; past the end, that gave the last one."""
        return self.parts[max(0, bisect_right(self.parts, column, key=lambda part: part[0]) - 1)][1]


def lines_of(source: str, pieces: Iterable[tuple[str, nodes.Expr]]) -> list[Line]:
    """The lines of a text that was rendered in these pieces. `source` has `\\n` for every end of line."""
    lines: list[Line] = []
    texts: list[str] = []
    parts: list[tuple[int, int]] = []
    width, end = 0, 1
    for text, at, ended in _cut(source, pieces):
        if text or (ended and not parts):
            if not parts or parts[-1][1] != at:
                parts.append((width, at))
            texts.append(text)
            width += len(text)
        if ended:
            lines.append(Line("".join(texts), tuple(parts)))
            texts, parts, width = [], [], 0
        end = at
    return [*lines, Line("".join(texts), tuple(parts) or ((0, end),))]


def _cut(source: str, pieces: Iterable[tuple[str, nodes.Expr]]) -> Iterator[tuple[str, int, bool]]:
    """Pieces within a line: the text, the template's line, and whether a line ends with it."""
    ends = [offset for offset, char in enumerate(source) if char == "\n"]
    places: dict[nodes.Expr, int] = {}
    for text, node in pieces:
        if node not in places:
            places[node] = bisect_left(ends, _begin(node)) + 1
        moves = isinstance(node, nodes.TemplateData)
        cut = text.split("\n")
        for index, part in enumerate(cut):
            yield part, places[node] + (index if moves else 0), index < len(cut) - 1


def _begin(node: nodes.Node) -> int:
    """The offset of an expression's first word. Jinja places `a|b` at `b`."""
    first = node.lineno
    pending: list[nodes.Node] = [node]
    while pending:
        one = pending.pop()
        if one.lineno is not None:  # a comparison's right side has no place of its own, what stands in it has
            first = min(first, one.lineno)
        pending.extend(one.iter_child_nodes())
    return first
