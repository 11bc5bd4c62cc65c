"""Plain data as YAML that people compare.

Rule 1  One line per value, texts of several lines as lines, so that a difference is as small as the change.
Rule 2  The text says everything: reading it as YAML 1.2 gives the data back.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agentrun.canon import compact


def lay_out(value: dict[str, Any] | list[Any]) -> str:
    """The text of a mapping or a list that is not empty."""
    lines: list[str] = []
    _add(value, "", lines)
    return "\n".join([*lines, ""])


def _add(value: dict[str, Any] | list[Any], indent: str, lines: list[str]) -> None:
    """The items of a mapping or a list, one below the other."""
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in items:
        head = f"{indent}-" if key is None else f"{indent}{_key(key)}:"
        if isinstance(item, dict | list) and item:
            first = len(lines)
            if key is None and isinstance(item, dict):  # `- first: …` on one line, the rest below it
                _add(item, indent + "  ", lines)
                lines[first] = f"{head} {lines[first].lstrip(' ')}"
            else:
                lines.append(head)
                _add(item, indent + "  ", lines)
        elif isinstance(item, str) and _as_block(item):
            lines.append(f"{head} {_header(item)}")
            lines += [f"{indent}  {line}" if line else "" for line in item.removesuffix("\n").split("\n")]
        else:
            lines.append(f"{head} {_scalar(item)}")


_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_MARKS = str.maketrans("", "", "_-./")


def _is_word(text: str) -> bool:
    """Whether a text can stand without quotes and is not taken for something else."""
    plain = text.translate(_MARKS)
    return text[:1].isalpha() and plain.isalnum() and plain.isascii() and text.lower() not in _WORDS


def _as_block(text: str) -> bool:
    """Whether a text reads better as lines, without escapes, and reads the same."""
    if not any(mark in text for mark in '\n"\\') or text.endswith("\n\n") or not text.strip("\n"):
        return False  # nothing gained; or empty last lines, that would mix with an empty line after the value
    return all(line.replace("\t", " ").isprintable() for line in text.split("\n"))


def _header(text: str) -> str:
    return "|" + ("2" if text[0] in " \n" else "") + ("" if text.endswith("\n") else "-")


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _is_word(value):
        return value
    text = compact(value).decode()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


@lru_cache(maxsize=1024)
def _key(key: str) -> str:
    """A name in a mapping. Nearly all are names of fields, again and again."""
    return _scalar(key)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
