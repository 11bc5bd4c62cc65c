"""A parsed document as a tree. Every node knows its place in the source.

Rule 1  Nodes are frozen. Aliased nodes are shared and have the place of their anchor.
Rule 2  A tree has at most 64 levels and 50,000 nodes, with aliases expanded, so recursive walks are safe.
Rule 3  Paths are lists of keys and indexes: `["tools", "refund", "url"]`, `["rules", 0]`.
Rule 4  A position inside a scalar is found by reading its source again. If that gives another text, the start of the
        scalar is used, because an imprecise place is better than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from agentrun.spec.problems import Problem, SourcePlace

ScalarStyle = Literal["plain", "single", "double", "literal", "folded", "file"]  # file: the whole text of a file
ScalarValue = str | int | float | bool | None
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


class ScalarNode(Struct, frozen=True, gc=False):
    value: ScalarValue
    text: str
    """The text before it was converted to a number, boolean or null."""
    place: SourcePlace
    style: ScalarStyle = "plain"
    start: int = 0
    """The offset of the scalar in its source, including the quote or block indicator."""
    end: int = 0

    def place_at(self, offset: int, width: int = 1) -> SourcePlace:
        """Return the place in the file of an offset in `text`."""
        source = self.place.source
        raw = source.text[self.start : self.end]
        if self.style == "file":
            positions: list[int] | None = list(range(len(self.text) + 1))
        elif self.style in ("literal", "folded"):
            positions = _block_positions(raw, self.text)
        else:
            positions = _flow_positions(raw, self.text, self.style)
        if positions is None or not 0 <= offset <= len(self.text):
            return self.place
        at = self.start + positions[offset]
        line_start = source.text.rfind("\n", 0, at) + 1
        line = self.place.line + source.text.count("\n", self.start, at)
        return SourcePlace(source, line, at - line_start + 1, width)

    def place_at_line(self, line: int, column: int = 1, width: int = 1) -> SourcePlace:
        """Return the place in the file of a line and column (both from 1) of `text`."""
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


def make_mapping(data: dict[str, Any], place: SourcePlace) -> MappingNode:
    """Return a mapping that no document contains. All its parts have the same place."""
    nodes = {
        key: make_mapping(value, place) if isinstance(value, dict) else ScalarNode(value, str(value), place)
        for key, value in data.items()
    }
    return MappingNode({key: MappingEntry(place, node) for key, node in nodes.items()}, place)


def plain_data(node: Node) -> Any:
    """Return the data as dict, list, str, int, float, bool and None, with no shared parts. `1.0` becomes an int,
    because JSON has only one kind of number."""
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
    found: Node | None = node
    for step in path:
        found = _child(found, step) if found is not None else None
    return found


def place_at_path(node: Node, path: Iterable[str | int], *, key: bool = False) -> SourcePlace:
    """Return the place of the value at a path, or with `key` of its key. For a missing node: the nearest place."""
    place = node.place
    for step in path:
        found = _child(node, step)
        if found is None:
            break
        place = node.entries[str(step)].key_place if key and isinstance(node, MappingNode) else found.place
        node = found
    return place


class DocumentPath(Struct, frozen=True):
    """A path in a document, with the node and the places there. The path need not exist."""

    root: Node
    steps: tuple[str | int, ...] = ()

    def at(self, *steps: str | int) -> DocumentPath:
        return DocumentPath(self.root, (*self.steps, *steps))

    @property
    def node(self) -> Node | None:
        return node_at(self.root, self.steps)

    @property
    def existing_node(self) -> Node:
        node = self.node
        assert node is not None
        return node

    @property
    def scalar(self) -> ScalarNode | None:
        node = self.node
        return node if isinstance(node, ScalarNode) else None

    @property
    def scalars(self) -> list[ScalarNode]:
        node = self.node
        items = node.items if isinstance(node, SequenceNode) else (node,)
        return [item for item in items if isinstance(item, ScalarNode)]

    @property
    def place(self) -> SourcePlace:
        return place_at_path(self.root, self.steps)

    @property
    def key_place(self) -> SourcePlace:
        return place_at_path(self.root, self.steps, key=True)

    def problem(self, code: str, message: str, hint: str | None = None) -> Problem:
        return Problem(self.place, code, message, hint)

    def key_problem(self, code: str, message: str, hint: str | None = None) -> Problem:
        return Problem(self.key_place, code, message, hint)


def walk(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield a node and everything below it in order, each with its key. An item of a list has the key of the list."""
    pending: list[tuple[str, Node]] = [("", node)]
    while pending:
        key, node = pending.pop()
        yield key, node
        match node:
            case SequenceNode():
                pending += [(key, item) for item in reversed(node.items)]
            case MappingNode():
                pending += [(inner, entry.node) for inner, entry in reversed(node.entries.items())]


def _child(node: Node, step: str | int) -> Node | None:
    match node:
        case MappingNode():
            return node.get(str(step))
        case SequenceNode() if isinstance(step, int) and 0 <= step < len(node.items):
            return node.items[step]
        case _:
            return None


def _flow_positions(raw: str, text: str, style: ScalarStyle) -> list[int] | None:
    """Plain and quoted scalars: one line break is a space, n+1 are n; an escape is one character."""
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
    """Literal and folded scalars: after the header, lines with a common indentation; a fold is a space or nothing."""
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
        if at < len(raw):
            at = next_line(at) if here == "\n" else at + 1
    return [*positions, min(at, len(raw))]
