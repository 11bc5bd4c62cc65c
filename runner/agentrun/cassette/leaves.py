"""The texts in a JSON document, with their places in its bytes.

Rule 1  Only what is JSON comes here: nothing is checked again.
Rule 2  A text knows where each of its characters is spelled, so that a change touches nothing around it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
ESCAPE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
"""One character. Both halves of a pair are one: half of it alone is not JSON to everybody."""


_decoder = json.JSONDecoder(strict=False)


def said(token: bytes) -> str:
    """What a text in quotes says."""
    text: str = _decoder.decode(token.decode()) if b"\\" in token else token[1:-1].decode()
    return text


class Text:
    """A piece of text in some bytes, from `start` to `end`, without its quotes."""

    def __init__(self, data: bytes, start: int, end: int, *, escaped: bool = True) -> None:
        self.start = start
        self.end = end
        self._spelled = data[start:end]
        self._is_json = escaped
        self._escaped = escaped and b"\\" in self._spelled

    @cached_property
    def value(self) -> bytes:
        """What it says, in UTF-8."""
        if not self._escaped:
            return self._spelled
        return said(b'"' + self._spelled + b'"').encode("utf-8", "surrogatepass")

    def place(self, offset: int) -> int:
        """Where what is at an offset of the value stands in the bytes."""
        if not self._escaped:
            return self.start + offset
        offsets, places = self._borders
        index = bisect_right(offsets, offset) - 1
        return self.start + places[index] + offset - offsets[index]

    def spelling(self, value: bytes) -> bytes:
        """How something is spelled that takes a place in it."""
        return json.dumps(value.decode(), ensure_ascii=False)[1:-1].encode() if self._is_json else value

    @cached_property
    def _borders(self) -> tuple[list[int], list[int]]:
        """Offsets in the value and in its spelling that belong together: before and after each escape."""
        offsets, places, growth = [0], [0], 0
        for escape in ESCAPE.finditer(self._spelled):
            length = len(said(b'"' + escape[0] + b'"').encode("utf-8", "surrogatepass"))
            offsets.append(escape.start() + growth)
            growth += length - len(escape[0])
            offsets.append(escape.end() + growth)
            places += escape.span()
        return offsets, places


class Frame:
    """An object or a list on the way to a text."""

    __slots__ = ("is_list", "key", "parent", "position", "scalars")

    def __init__(self, parent: Frame | None, *, is_list: bool) -> None:
        self.parent = parent
        self.is_list = is_list
        self.key: str | None = None
        self.position = 0
        self.scalars: dict[str, bytes] = {}
        """The short texts and numbers in an object, as they are spelled."""


class Leaf:
    """A text that is a value, and where in the document it is."""

    __slots__ = ("objects", "steps", "text")

    def __init__(self, frame: Frame | None, text: Text) -> None:
        steps: list[str | int] = []
        self.objects: list[dict[str, bytes]] = []
        """What else is in the objects around it, from the inside out. Whole only when the document is read."""
        while frame is not None:
            if frame.key is None:
                steps.append(frame.position)
            else:
                steps.append(frame.key)
                self.objects.append(frame.scalars)
            frame = frame.parent
        self.steps = tuple(reversed(steps))
        """Keys, and positions in lists."""
        self.text = text


_LONGEST_SCALAR = 128


def leaves(data: bytes, start: int, end: int) -> Iterator[Leaf]:
    """The texts of one document that are values."""
    frame: Frame | None = None
    for token in TOKEN.finditer(data, start, end):
        spelled = token[0]
        match spelled[:1]:
            case b"{" | b"[":
                frame = Frame(frame, is_list=spelled == b"[")
            case b"}" | b"]":
                frame = frame and frame.parent
            case b"," if frame is not None:
                frame.position += 1
                frame.key = None
            case b":":
                pass
            case first:
                if frame is not None and not frame.is_list:
                    if frame.key is None:
                        frame.key = said(spelled)
                        continue
                    if len(spelled) <= _LONGEST_SCALAR:
                        frame.scalars[frame.key] = spelled
                if first == b'"':
                    yield Leaf(frame, Text(data, token.start() + 1, token.end() - 1))
