"""Load untrusted YAML as plain data: with limits, without running code, and with the line of every mapping.

Rule 1  libyaml only splits the text into events. The data is built here without recursion, because the loader of
        libyaml overflows the stack on deep nesting.
Rule 2  Loading stops at the limits for depth, aliases, and nodes (aliases count with all their nodes). An alias of a
        text counts with its length, because a cassette may repeat a large reply many times.
Rule 3  Tags other than `!!binary` and `!!str` are rejected, and so are duplicate keys.
Rule 4  Unquoted scalars are resolved by the rules of PyYAML (YAML 1.1), which wrote the file. By other rules an
        unquoted text could become a number. Dates stay texts.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

MAX_CASSETTE_DEPTH = 64
MAX_CASSETTE_ALIASES = 100
MAX_ALIASED_TEXT = 256 * 1024 * 1024
MAX_CASSETTE_NODES = 1_000_000
MAX_NUMBER_LENGTH = 1000
MAX_CACHED_WORD = 64

_STR = "tag:yaml.org,2002:str"
_BINARY = "tag:yaml.org,2002:binary"

_pyyaml: Any = yaml.SafeLoader("")
_SIMPLE = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))


class CassetteFormatError(Exception):
    """The text is not a cassette, with the reason and the line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class LinedMapping(dict[str, Any]):
    """A mapping that knows its line."""

    __slots__ = ("line",)
    line: int


def load_yaml(text: str) -> Any:
    """Load a text with one document. Raises `CassetteFormatError`."""
    loader = (yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)(text)
    try:
        return _Builder().build(loader.get_event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise CassetteFormatError(f"not valid YAML: {error.problem}", mark.line + 1 if mark else 1) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise CassetteFormatError(f"not valid YAML: {error}".partition("\n")[0], 1) from error


def _resolve(text: str) -> Any:
    tag = _pyyaml.resolve(yaml.ScalarNode, text, (True, False))
    if tag not in _SIMPLE:
        return text
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError("the number is too long")  # 1:1:1… is a number too, and takes quadratic time
    return yaml.SafeLoader.yaml_constructors[tag](_pyyaml, yaml.ScalarNode(tag, text))


_resolve_cached = lru_cache(maxsize=1024)(_resolve)  # numbers, methods and content types repeat in every file


class _Open(NamedTuple):
    """A mapping or sequence around the present one, and where the present one goes."""

    value: LinedMapping | list[Any] | None
    key: str | None
    anchor: str | None
    nodes: int
    """How many there were before the present one."""


class _Builder:
    """Builds data from events. Half of the time of a replay is spent in YAML, so the usual events come first."""

    def __init__(self) -> None:
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0
        self._documents = 0
        self._aliases = 0
        self._aliased_text = 0

    def build(self, next_event: Callable[[], Any]) -> Any:
        stack: list[_Open] = []
        into: LinedMapping | list[Any] | None = None
        key: str | None = None
        root: Any = None
        while True:
            event = next_event()
            kind, size, anchor = type(event), 1, None
            if kind is yaml.ScalarEvent:
                value, anchor = event.value, event.anchor
                is_key = key is None and type(into) is LinedMapping
                if not is_key and (event.tag is not None or event.implicit[0]):
                    value = _scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                stack.append(_Open(into, key, event.anchor, self._nodes))
                into, key = _begin(event, len(stack)), None
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                value = into
                into, key, anchor, before = stack.pop()
                size = self._nodes - before + 1
                self._nodes = before
            elif kind is yaml.AliasEvent:
                value, size = self._alias(event)
            elif kind is yaml.StreamEndEvent:
                return root
            else:
                self._begin_document(event)
                continue
            if anchor is not None:
                self._anchors[anchor] = value, size
            self._nodes += size
            if self._nodes > MAX_CASSETTE_NODES:
                raise CassetteFormatError(f"more than {MAX_CASSETTE_NODES} nodes", _line(event))
            if key is not None:
                into[key] = value  # type: ignore[index, call-overload]  # only a mapping has a key
                key = None
            elif type(into) is list:
                into.append(value)
            elif into is None:
                root = value
            elif type(value) is not str or value in into:
                reason = "a key is used twice" if isinstance(value, str) else "a key is not a string"
                raise CassetteFormatError(reason, _line(event))
            else:
                key = value

    def _alias(self, event: Any) -> tuple[Any, int]:
        if event.anchor not in self._anchors:
            raise CassetteFormatError("an alias without an anchor", _line(event))
        value, size = self._anchors[event.anchor]
        self._aliases += 0 if isinstance(value, str) else 1
        self._aliased_text += len(value) if isinstance(value, str) else 0
        if self._aliases > MAX_CASSETTE_ALIASES or self._aliased_text > MAX_ALIASED_TEXT:
            raise CassetteFormatError("too many aliases", _line(event))
        return value, size

    def _begin_document(self, event: Any) -> None:
        self._documents += isinstance(event, yaml.DocumentStartEvent)
        if self._documents > 1:
            raise CassetteFormatError("a second document begins", _line(event))


def _line(event: Any) -> int:
    line: int = event.start_mark.line + 1
    return line


def _begin(event: Any, depth: int) -> LinedMapping | list[Any]:
    if event.tag is not None or depth > MAX_CASSETTE_DEPTH:
        reason = "YAML tags are not supported" if event.tag is not None else "it is nested more than 64 levels deep"
        raise CassetteFormatError(reason, _line(event))
    if isinstance(event, yaml.SequenceStartEvent):
        return []
    value = LinedMapping()
    value.line = _line(event)
    return value


def _scalar(event: Any) -> Any:
    """The value of a scalar that has a tag or is not quoted."""
    text, tag = event.value, event.tag
    try:
        if tag is None:
            return (_resolve_cached if len(text) <= MAX_CACHED_WORD else _resolve)(text)
        if tag == _BINARY:
            return b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError, OverflowError) as error:
        raise CassetteFormatError(f"not a valid value: {error}", _line(event)) from error
    if tag in (_STR, "!"):
        return text
    raise CassetteFormatError("YAML tags are not supported", _line(event))
