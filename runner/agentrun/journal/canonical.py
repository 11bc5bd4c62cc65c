"""A journal as people compare it: what the run meant, without what differs between two equal runs.

Rule 1  Left out: time, seq, epochs, hashes, and every field marked VOLATILE where it is declared (run id,
        fingerprint, wire ids). Kept: everything else, usage included.
Rule 2  One block per fact, one line per value, texts of several lines as lines, so that a difference is as
        small as the change.
Rule 3  The text is YAML and says everything it shows: two journals with one canonical form mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_type_hints

from msgspec import UNSET, Struct

from agentrun.canon import compact
from agentrun.core.facts import Record
from agentrun.core.messages import VOLATILE


def canonical(records: Iterable[Record]) -> str:
    """The canonical form of a journal."""
    return "\n".join(block(record.fact) for record in records)


def block(fact: Struct) -> str:
    """One fact: its name, and its fields below."""
    fields = _plain(fact)
    name = fields.pop(_tag_field(type(fact)))
    return "\n".join([f"- {name}:" if fields else f"- {name}: {{}}", *_lines(fields, "    "), ""])


def _plain(value: Any) -> Any:
    """Plain data without what is volatile. Users' own data (dicts) is kept whole."""
    if isinstance(value, Struct):
        cls = type(value)
        fields = {name: _plain(getattr(value, name)) for name in cls.__struct_fields__ if name not in _volatile(cls)}
        tag = {_tag_field(cls): cls.__struct_config__.tag} if cls.__struct_config__.tag else {}
        return tag | {name: item for name, item in fields.items() if item is not UNSET}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _tag_field(cls: type[Struct]) -> str:
    return str(cls.__struct_config__.tag_field)


@cache
def _volatile(cls: type[Struct]) -> frozenset[str]:
    hints = get_type_hints(cls, include_extras=True)
    return frozenset(name for name, hint in hints.items() if VOLATILE in getattr(hint, "__metadata__", ()))


def _lines(value: dict[str, Any] | list[Any], indent: str) -> Iterator[str]:
    """The items of a mapping or a list, one below the other."""
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in items:
        head = f"{indent}-" if key is None else f"{indent}{_scalar(key)}:"
        if isinstance(item, dict | list) and item:
            below = list(_lines(item, indent + "  "))
            if key is None and isinstance(item, dict):  # `- first: …` on one line, the rest below it
                yield f"{head} {below[0].lstrip(' ')}"
                below = below[1:]
            else:
                yield head
            yield from below
        elif isinstance(item, str) and _as_block(item):
            yield f"{head} {_header(item)}"
            yield from (f"{indent}  {line}" if line else "" for line in item.removesuffix("\n").split("\n"))
        else:
            yield f"{head} {_scalar(item)}"


_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_MARKS = str.maketrans("", "", "_-./")


def _is_word(text: str) -> bool:
    """Whether a text can stand without quotes and is not taken for something else."""
    plain = text.translate(_MARKS)
    return text[:1].isalpha() and plain.isalnum() and plain.isascii() and text.lower() not in _WORDS


def _as_block(text: str) -> bool:
    """Whether a text reads better as lines, without escapes, and reads the same."""
    if not any(mark in text for mark in '\n"\\') or text.endswith("\n\n") or not text.strip("\n"):
        return False  # nothing gained; or empty last lines, that would mix with the empty line between blocks
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


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
