"""Write plain data as YAML in block style, as PyYAML does, in a tenth of its time.

Rule 1  The text is the same as that of PyYAML with `_Dumper`, character by character. A random test compares them.
Rule 2  What is rare is written by PyYAML itself: the single line texts, which are remembered, and any data with
        something that is not written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import yaml

from agentrun.cassette.yaml_loader import LinedMapping

_REMEMBERED = 200
"""Characters of a text that may come again: a header, an address, a name."""
_LONGEST_KEY = 100
"""PyYAML writes long keys in another form."""


class AnchoredText(str):
    """A text with an anchor, or the alias of one."""

    __slots__ = ("anchor", "is_alias")
    anchor: str
    is_alias: bool


class OneLine(list[int]):
    """A list that is written on one line."""


def dump_yaml(data: Any) -> str:
    """A part of a document."""
    try:
        return "".join(_block(data, ""))
    except _NotWritten:
        return dump_with_pyyaml(data)


class _NotWritten(Exception):
    """The data has something that only PyYAML writes."""


def _block(data: Any, indent: str) -> Iterator[str]:
    """The lines of a list or a mapping that is not empty."""
    if isinstance(data, list) and not isinstance(data, OneLine):
        for item in data:
            if type(item) is list and item:
                raise _NotWritten
            if not isinstance(item, dict) or not item:
                yield f"{indent}-{_value(item, indent + '  ', indent)}"
            else:
                first, *rest = _block(item, indent + "  ")
                yield f"{indent}- {first[len(indent) + 2 :]}"
                yield from rest
    else:
        for key, value in data.items():
            if type(key) is not str or not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
                raise _NotWritten
            yield f"{indent}{_line(key)}:{_value(value, indent + '  ', indent)}"


def _value(value: Any, inner: str, outer: str) -> str:
    """What comes after the key, or after the dash of an item, with the end of the line."""
    write = _WRITERS.get(type(value))
    if write is None:
        raise _NotWritten
    if isinstance(value, dict) and value:
        return "\n" + "".join(_block(value, inner))
    if type(value) is list and value:
        return "\n" + "".join(_block(value, outer))  # items have the indentation of their key
    return write(value, inner)


def _text(text: str, indent: str) -> str:
    if "\n" not in text:
        return f" {_line(text) if len(text) <= _REMEMBERED else _long_line(text)}\n"
    lines = text.split("\n")
    is_block = all(map(str.isprintable, lines)) and " \n" not in text and not text.endswith(" ")
    if not is_block:
        raise _NotWritten
    hint = "2" if text[0] in " \n" else ""
    if text[-1] != "\n":
        hint += "-"
    elif len(text) == 1 or text[-2] == "\n":
        hint += "+"
    else:
        lines.pop()
    if hint.endswith("+"):
        lines.pop()
    return f" |{hint}\n" + "".join(f"{indent}{line}\n" if line else "\n" for line in lines)


def _anchored(text: AnchoredText, indent: str) -> str:
    return f" *{text.anchor}\n" if text.is_alias else f" &{text.anchor}{_text(str(text), indent)}"


def _long_line(text: str) -> str:
    if text[0] in "{[" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return _dumped_line(text)


def _dumped_line(text: str) -> str:
    return dump_with_pyyaml(text).removesuffix("...\n").removesuffix("\n")


_line = lru_cache(maxsize=1024)(_dumped_line)

_WRITERS: dict[type, Callable[[Any, str], str]] = {
    str: _text,
    AnchoredText: _anchored,
    int: lambda value, indent: f" {value}\n",
    bool: lambda value, indent: " true\n" if value else " false\n",
    type(None): lambda value, indent: " null\n",
    dict: lambda value, indent: " {}\n",
    LinedMapping: lambda value, indent: " {}\n",
    list: lambda value, indent: " []\n",
    OneLine: lambda value, indent: f" [{', '.join(map(str, value))}]\n",
}


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as block scalars. Pure Python, so the output is the same with and without libyaml."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # only `AnchoredText` has aliases
        return True

    def anchor_node(self, node: Any) -> None:
        super().anchor_node(node)
        if isinstance(node.value, AnchoredText):
            self.anchors[node] = node.value.anchor

    def serialize_node(self, node: Any, parent: Any, index: Any) -> None:
        if isinstance(node.value, AnchoredText) and node.value.is_alias:
            self.emit(yaml.AliasEvent(node.value.anchor))
        else:
            super().serialize_node(node, parent, index)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    style = "|" if len(lines) > 1 else None
    if not all(line.isprintable() for line in lines):
        style = '"'  # the one style that keeps every character as it is
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(AnchoredText, _represent_text)
_Dumper.add_representer(LinedMapping, yaml.SafeDumper.represent_dict)
_Dumper.add_representer(
    OneLine, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


def dump_with_pyyaml(data: Any) -> str:
    """PyYAML ends a document whose last text ends with an empty line, as streams do, with `...`."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**30)
    return str(text).removesuffix("...\n") if text.endswith("\n...\n") else str(text)
