"""A document as a tree in which every node knows its place.

Rule 1  Nodes are frozen. Aliased nodes are shared and keep the place of their anchor: there stands the text.
Rule 2  A tree is at most 64 deep and 50,000 nodes with its aliases written out, so walking it is safe.
Rule 3  Paths are those of JSON: `["tools", "refund", "url"]`, `["rules", 0]`.
Rule 4  A position inside a scalar is found by reading its source again. If that does not give the same text,
        the answer is the scalar's start: late, but never a wrong line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from agentrun.spec.problems import SourcePlace

ScalarStyle = Literal["plain", "single", "double", "literal", "folded", "file"]
"""How a scalar is written; `file` is the whole text of a file of its own."""
ScalarValue = str | int | float | bool | None


class ScalarNode(Struct, frozen=True, gc=False):
    value: ScalarValue
    text: str
    """The content before it was read as a number, boolean or null."""
    place: SourcePlace
    style: ScalarStyle
    start: int
    """Where the scalar begins in the text of its source, with its quote or block indicator."""
    end: int

    def place_at(self, offset: int, width: int = 1) -> SourcePlace:
        """The place in the file of a position in `text`."""
        source = self.place.source
        raw = source.text[self.start : self.end]
        positions = _positions(raw, self.text, self.style)
        if positions is None or not 0 <= offset <= len(self.text):
            return self.place
        at = self.start + positions[offset]
        line_start = source.text.rfind("\n", 0, at) + 1
        line = self.place.line + source.text.count("\n", self.start, at)
        return SourcePlace(source, line, at - line_start + 1, width)

    def place_at_line(self, line: int, column: int = 1, width: int = 1) -> SourcePlace:
        """The place in the file of a line and column (both from 1) of `text`."""
        lines = self.text.split("\n")
        if not 1 <= line <= len(lines):
            return self.place
        inside = min(max(column, 1) - 1, len(lines[line - 1]))
        return self.place_at(sum(len(text) + 1 for text in lines[: line - 1]) + inside, width)


class SequenceNode(Struct, frozen=True):
    items: tuple[Node, ...]
    place: SourcePlace


class MappingEntry(Struct, frozen=True):
    key_place: SourcePlace
    node: Node


class MappingNode(Struct, frozen=True):
    entries: dict[str, MappingEntry]
    place: SourcePlace

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry.node if entry else None


Node = ScalarNode | SequenceNode | MappingNode


def plain_data(node: Node) -> Any:
    """The data alone: dict, list, str, int, float, bool, None. Nothing in it is shared.

    A whole number is an int however it is written (`1.0`): JSON knows one kind of number."""
    match node:
        case ScalarNode(value=float() as number) if number.is_integer() and abs(number) < 2**53:
            return int(number)
        case ScalarNode():
            return node.value
        case SequenceNode():
            return [plain_data(item) for item in node.items]
        case MappingNode():
            return {key: plain_data(entry.node) for key, entry in node.entries.items()}


def node_at(node: Node, path: Iterable[str | int]) -> Node | None:
    """The node at a path, or None."""
    for step in path:
        found = _child(node, step)
        if found is None:
            return None
        node = found
    return node


def place_at_path(node: Node, path: Iterable[str | int], *, key: bool = False) -> SourcePlace:
    """Where the value at a path stands, or with `key` its key; what is missing has the nearest place."""
    place = node.place
    for step in path:
        found = _child(node, step)
        if found is None:
            break
        place = node.entries[str(step)].key_place if key and isinstance(node, MappingNode) else found.place
        node = found
    return place


def _child(node: Node, step: str | int) -> Node | None:
    match node:
        case MappingNode():
            return node.get(str(step))
        case SequenceNode() if isinstance(step, int) and 0 <= step < len(node.items):
            return node.items[step]
        case _:
            return None


def _positions(raw: str, text: str, style: ScalarStyle) -> list[int] | None:
    """The offset in the raw form of each character of a scalar's text, and of its end; None if unknown."""
    if style == "file":
        return list(range(len(text) + 1))
    if style in ("literal", "folded"):
        return _block_positions(raw, text)
    return _flow_positions(raw, text, style)


_BREAK = r"[ \t]*\n[ \t\n]*"
_FLOW: dict[ScalarStyle, re.Pattern[str]] = {
    "plain": re.compile(rf"(?P<fold>{_BREAK})|.", re.DOTALL),
    "single": re.compile(rf"(?P<fold>{_BREAK})|(?P<escape>'')|.", re.DOTALL),
    "double": re.compile(
        rf"(?P<fold>{_BREAK})|(?P<join>\\\n[ \t\n]*)|"
        r"(?P<escape>\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.)|.",
        re.DOTALL,
    ),
}


def _flow_positions(raw: str, text: str, style: ScalarStyle) -> list[int] | None:
    """Plain and quoted: one line break is a space, n+1 are n; an escape is one character."""
    first, last = (0, len(raw)) if style == "plain" else (1, len(raw) - 1)
    if raw[first:last] == text and "\n" not in text:
        return list(range(first, last + 1))
    read: list[str] = []
    positions: list[int] = []
    for token in _FLOW[style].finditer(raw, first, last):
        breaks = token[0].count("\n")
        match token.lastgroup:
            case "fold":
                chars = "\n" * (breaks - 1) or " "
            case "join":
                chars = "\n" * (breaks - 1)
            case "escape":
                chars = text[len(read) : len(read) + 1]
            case _:
                chars = token[0]
        read += chars
        positions += [token.start()] * len(chars)
    return [*positions, last] if "".join(read) == text else None


def _block_positions(raw: str, text: str) -> list[int] | None:
    """Literal and folded: after the header, lines that share an indentation; a fold is a space or nothing."""
    first = next((line for line in raw.split("\n")[1:] if line.strip(" ")), "")
    wanted = next((line for line in text.split("\n") if line.strip(" ")), "")
    indent = (len(first) - len(first.lstrip(" "))) - (len(wanted) - len(wanted.lstrip(" ")))
    if indent < 0 or "\n" not in raw:
        return None

    def next_line(at: int) -> int:
        start = stop = raw.index("\n", at) + 1
        while stop < len(raw) and stop - start < indent and raw[stop] == " ":
            stop += 1
        return stop

    at = next_line(0)
    positions: list[int] = []
    for char in text:
        while at < len(raw) and raw[at] == "\n" and char not in "\n ":
            at = next_line(at)
        here = raw[at] if at < len(raw) else "\n"
        if here != char and not (here == "\n" and char == " "):
            return None
        positions.append(at)
        at = at if at >= len(raw) else next_line(at) if here == "\n" else at + 1
    return [*positions, min(at, len(raw))]
