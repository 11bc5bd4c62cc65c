"""Write plain data as YAML that is easy to compare, and read it back.

Rule 1  One line per value, and texts of several lines as blocks, so that a small change gives a small diff.
Rule 2  Nothing is lost: a YAML 1.2 parser reads the same data back.
Rule 3  `parse_plain_yaml` reads only this form, and reports the first line that is different.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from agentrun.canonical_json import sorted_json


def dump_plain_yaml(value: dict[str, Any] | list[Any]) -> str:
    """Write a mapping or a list that is not empty."""
    lines: list[str] = []
    _add_items(value, "", lines)
    return "\n".join([*lines, ""])


def _add_items(value: dict[str, Any] | list[Any], indent: str, lines: list[str]) -> None:
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in items:
        head = f"{indent}-" if key is None else f"{indent}{_key(key)}:"
        if isinstance(item, str):
            if _is_block(item):
                lines.append(f"{head} {_block_header(item)}")
                lines += [f"{indent}  {line}" if line else "" for line in item.removesuffix("\n").split("\n")]
            else:
                lines.append(f"{head} {_scalar(item)}")
        elif isinstance(item, (dict, list)) and item:
            first = len(lines)
            if key is None and isinstance(item, dict):  # `- key: …` on one line, the rest below it
                _add_items(item, indent + "  ", lines)
                lines[first] = f"{head} {lines[first].lstrip(' ')}"
            else:
                lines.append(head)
                _add_items(item, indent + "  ", lines)
        else:
            lines.append(f"{head} {_scalar(item)}")


_YAML_KEYWORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_ESCAPED = re.compile(r'[\n"\\]')


def _is_word(text: str) -> bool:
    """Whether a text needs no quotes and is not a YAML keyword."""
    return _WORD.fullmatch(text) is not None and text.lower() not in _YAML_KEYWORDS


def _is_block(text: str) -> bool:
    """Whether a text is easier to read as a block than with escapes."""
    if _ESCAPED.search(text) is None or text.endswith("\n\n") or not text.strip("\n"):
        return False  # no escapes to avoid, or empty last lines that would mix with the empty line after the value
    return all(line.replace("\t", " ").isprintable() for line in text.split("\n"))


def _block_header(text: str) -> str:
    return "|" + ("2" if text[0] in " \n" else "") + ("" if text.endswith("\n") else "-")


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _is_word(value):
        return value
    text = sorted_json(value).decode()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


@lru_cache(maxsize=1024)
def _key(key: str) -> str:
    """A key of a mapping. Cached, because nearly all keys are field names."""
    return _scalar(key)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


# --- reading --------------------------------------------------------------------------------------------------


MAX_JOURNAL_YAML_DEPTH = 100
_HEADER = re.compile(r"\|(2?)(-?)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_LONG_ESCAPE = re.compile(r"\\(?:U([0-9a-f]{8})|.)")


class YamlTextError(Exception):
    """The text is not in the form that `dump_plain_yaml` writes."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not in the format of a canonical journal")
        self.line = line
        """Counted from 1."""


def parse_plain_yaml(text: str) -> Any:
    """Read the data back. Raises `YamlTextError`."""
    lines = _LineReader(text.split("\n"))
    value = lines.value(0, 0)
    if not lines.over:
        raise YamlTextError(lines.at + 1)
    return value


class _LineReader:
    """Parses lines; `at` is the index of the next one."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.at = 0
        self._skip()

    @property
    def over(self) -> bool:
        return self.at >= len(self._lines)

    def value(self, indent: int, depth: int) -> Any:
        """Read the mapping or list at the current line."""
        if self.over or depth > MAX_JOURNAL_YAML_DEPTH:
            raise YamlTextError(min(self.at + 1, len(self._lines)))
        is_list = self._lines[self.at].startswith("-", indent)
        return self._items(indent, depth) if is_list else self._mapping(indent, depth)

    def _items(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while self._is_at_indent(indent):
            line = self._lines[self.at]
            if not line.startswith("-", indent):
                raise YamlTextError(self.at + 1)
            rest = line[indent + 1 :]
            if not rest:
                self._next()
                items.append(self.value(indent + 2, depth + 1))
            elif not rest.startswith(" "):
                raise YamlTextError(self.at + 1)
            elif self._begins_mapping(rest[1:]):
                self._lines[self.at] = f"{' ' * indent}  {rest[1:]}"  # `- key: …`: the key as on its own line
                items.append(self._mapping(indent + 2, depth + 1))
            else:
                items.append(self._scalar(rest[1:], indent))
        return items

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while self._is_at_indent(indent):
            line = self._lines[self.at]
            key, rest = self._key(line[indent:])
            if key in mapping:
                raise YamlTextError(self.at + 1)
            if rest:
                mapping[key] = self._scalar(rest[1:], indent)
            else:
                self._next()
                mapping[key] = self.value(indent + 2, depth + 1)
        return mapping

    def _is_at_indent(self, indent: int) -> bool:
        """Whether the next line has this indent. A deeper indent is an error."""
        if self.over:
            return False
        line = self._lines[self.at]
        own = len(line) - len(line.lstrip(" "))
        if own > indent:
            raise YamlTextError(self.at + 1)
        return own == indent

    def _key(self, text: str) -> tuple[str, str]:
        """Split a line into its key and the text after the colon."""
        found = _QUOTED.match(text) if text.startswith('"') else _WORD.match(text)
        rest = "" if found is None else text[found.end() :]
        if found is None or not rest.startswith(":") or rest[1:2] not in ("", " "):
            raise YamlTextError(self.at + 1)
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
        start = self.at + 1
        end = start
        margin = " " * indent
        while end < len(self._lines) and (not self._lines[end] or self._lines[end].startswith(margin)):
            end += 1
        while end > start and not self._lines[end - 1]:
            end -= 1
        if end == start:
            raise YamlTextError(self.at + 1)
        text = "\n".join(line[indent:] for line in self._lines[start:end])
        self.at = end
        self._skip()
        return text + ends

    def _json(self, text: str) -> Any:
        plain = _LONG_ESCAPE.sub(_unescape, text) if "\\U" in text else text
        try:
            return msgspec.json.decode(plain.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise YamlTextError(self.at + 1) from None

    def _next(self) -> None:
        self.at += 1
        self._skip()

    def _skip(self) -> None:
        while self.at < len(self._lines) and not self._lines[self.at]:
            self.at += 1


def _unescape(found: re.Match[str]) -> str:
    code = None if found[1] is None else int(found[1], 16)
    return found[0] if code is None or code >= 0x110000 else chr(code)
