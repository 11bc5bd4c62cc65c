"""Reads back what `layout.py` writes: the data of a text.

Rule 1  It reads that form and no other YAML: what people compare was written by us. Anything else is `NotLaidOut`, with
        its line: a mark of a merge, a line that somebody indented.
Rule 2  Empty lines between values say nothing. Inside a text they are lines of it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

MAX_DEPTH = 100
_HEADER = re.compile(r"\|(2?)(-?)")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_LONG = re.compile(r"\\(?:U([0-9a-f]{8})|.)")


class NotLaidOut(Exception):
    """A text that is of another form."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not written as journals are")
        self.line = line
        """From 1."""


def read_back(text: str) -> Any:
    """The data of a text."""
    lines = _Lines(text.split("\n"))
    value = lines.value(0, 0)
    if not lines.over:
        raise NotLaidOut(lines.at + 1)
    return value


class _Lines:
    """Lines, and how far they were read."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.at = 0
        self._skip()

    @property
    def over(self) -> bool:
        return self.at >= len(self._lines)

    def value(self, indent: int, depth: int) -> Any:
        """The mapping or the list that begins here."""
        if self.over or depth > MAX_DEPTH:
            raise NotLaidOut(min(self.at + 1, len(self._lines)))
        is_list = self._lines[self.at].startswith("-", indent)
        return self._items(indent, depth) if is_list else self._mapping(indent, depth)

    def _items(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._stands_at(indent):
            line = self._lines[self.at]
            if not line.startswith("-", indent):
                raise NotLaidOut(self.at + 1)
            rest = line[indent + 1 :]
            if not rest:
                self._next()
                found.append(self.value(indent + 2, depth + 1))
            elif not rest.startswith(" "):
                raise NotLaidOut(self.at + 1)
            elif self._begins_mapping(rest[1:]):
                self._lines[self.at] = f"{' ' * indent}  {rest[1:]}"  # `- first: …` as if it stood on a line of its own
                found.append(self._mapping(indent + 2, depth + 1))
            else:
                found.append(self._scalar(rest[1:], indent))
        return found

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._stands_at(indent):
            line = self._lines[self.at]
            key, rest = self._key(line[indent:])
            if key in found:
                raise NotLaidOut(self.at + 1)
            if rest:
                found[key] = self._scalar(rest[1:], indent)
            else:
                self._next()
                found[key] = self.value(indent + 2, depth + 1)
        return found

    def _stands_at(self, indent: int) -> bool:
        """Whether the next line belongs to what stands at an indent. One that stands deeper belongs to nothing."""
        if self.over:
            return False
        line = self._lines[self.at]
        own = len(line) - len(line.lstrip(" "))
        if own > indent:
            raise NotLaidOut(self.at + 1)
        return own == indent

    def _key(self, text: str) -> tuple[str, str]:
        """A key, and what follows its colon."""
        found = _QUOTED.match(text) if text.startswith('"') else _WORD.match(text)
        rest = "" if found is None else text[found.end() :]
        if found is None or not rest.startswith(":") or rest[1:2] not in ("", " "):
            raise NotLaidOut(self.at + 1)
        return (self._json(found[0]) if text.startswith('"') else found[0]), rest[1:]

    def _begins_mapping(self, text: str) -> bool:
        found = _QUOTED.match(text) if text.startswith('"') else _WORD.match(text)
        return found is not None and text[found.end() : found.end() + 1] == ":"

    def _scalar(self, text: str, indent: int) -> Any:
        if header := _HEADER.fullmatch(text):
            return self._block(indent + 2, ends="" if header[2] else "\n")
        value = text if _WORD.fullmatch(text) and text not in ("null", "true", "false") else self._json(text)
        self._next()
        return value

    def _block(self, indent: int, ends: str) -> str:
        """A text of lines."""
        start = self.at + 1
        end = start
        margin = " " * indent
        while end < len(self._lines) and (not self._lines[end] or self._lines[end].startswith(margin)):
            end += 1
        while end > start and not self._lines[end - 1]:
            end -= 1
        if end == start:
            raise NotLaidOut(self.at + 1)
        text = "\n".join(line[indent:] for line in self._lines[start:end])
        self.at = end
        self._skip()
        return text + ends

    def _json(self, text: str) -> Any:
        plain = _LONG.sub(_unescaped, text) if "\\U" in text else text
        try:
            return msgspec.json.decode(plain.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise NotLaidOut(self.at + 1) from None

    def _next(self) -> None:
        self.at += 1
        self._skip()

    def _skip(self) -> None:
        while self.at < len(self._lines) and not self._lines[self.at]:
            self.at += 1


def _unescaped(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else chr(int(found[1], 16)) if int(found[1], 16) < 0x110000 else found[0]
