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
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import yaml
from msgspec import Struct

MAX_CASSETTE_DEPTH = 64
MAX_CASSETTE_ALIASES = 100
MAX_ALIASED_TEXT = 256 * 1024 * 1024
MAX_CASSETTE_NODES = 1_000_000
MAX_NUMBER_LENGTH = 1000
MAX_CACHED_WORD = 64

_STR = "tag:yaml.org,2002:str"
_BINARY = "tag:yaml.org,2002:binary"

_parse: Callable[..., Iterator[Any]] = yaml.parse
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
    builder = _Builder()
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        for event in _parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise CassetteFormatError(f"not valid YAML: {error.problem}", mark.line + 1 if mark else 1) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise CassetteFormatError(f"not valid YAML: {error}".partition("\n")[0], 1) from error
    return builder.root


def _resolve(text: str) -> Any:
    tag = _pyyaml.resolve(yaml.ScalarNode, text, (True, False))
    if tag not in _SIMPLE:
        return text
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError("the number is too long")  # 1:1:1… is a number too, and takes quadratic time
    return yaml.SafeLoader.yaml_constructors[tag](_pyyaml, yaml.ScalarNode(tag, text))


_resolve_cached = lru_cache(maxsize=1024)(_resolve)  # numbers, methods and content types repeat in every file


class _Open(Struct):
    """A mapping or sequence that is not closed yet."""

    value: LinedMapping | list[Any]
    anchor: str | None
    key: str | None = None
    size: int = 1


class _Builder:
    def __init__(self) -> None:
        self.root: Any = None
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._aliases = 0
        self._aliased_text = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if type(event) is yaml.ScalarEvent:  # most are
            self._put(self._scalar(event, line), 1, line, event.anchor)
            return
        match event:
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise CassetteFormatError("an alias without an anchor", line)
                value, size = self._anchors[event.anchor]
                self._aliases += 0 if isinstance(value, str) else 1
                self._aliased_text += len(value) if isinstance(value, str) else 0
                if self._aliases > MAX_CASSETTE_ALIASES or self._aliased_text > MAX_ALIASED_TEXT:
                    raise CassetteFormatError("too many aliases", line)
                self._put(value, size, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                self._put(done.value, done.size, line, done.anchor)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise CassetteFormatError("a second document begins", line)

    def _begin(self, event: Any, line: int) -> None:
        if event.tag is not None or len(self._open) == MAX_CASSETTE_DEPTH:
            reason = "YAML tags are not supported" if event.tag is not None else "it is nested more than 64 levels deep"
            raise CassetteFormatError(reason, line)
        value: LinedMapping | list[Any] = []
        if isinstance(event, yaml.MappingStartEvent):
            value = LinedMapping()
            value.line = line
        self._open.append(_Open(value, event.anchor))

    def _scalar(self, event: Any, line: int) -> Any:
        is_key = self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None
        if is_key or event.tag in (_STR, "!") or (event.tag is None and not event.implicit[0]):
            return event.value
        try:
            if event.tag is None:
                return (_resolve_cached if len(event.value) <= MAX_CACHED_WORD else _resolve)(event.value)
            if event.tag == _BINARY:
                return b64decode("".join(event.value.split()), validate=True)
        except (binascii.Error, ValueError, OverflowError) as error:
            raise CassetteFormatError(f"not a valid value: {error}", line) from error
        raise CassetteFormatError("YAML tags are not supported", line)

    def _put(self, value: Any, size: int, line: int, anchor: str | None = None) -> None:
        if anchor is not None:
            self._anchors[anchor] = value, size
        if not self._open:
            self.root = value
            return
        into = self._open[-1]
        into.size += size
        if into.size > MAX_CASSETTE_NODES:
            raise CassetteFormatError(f"more than {MAX_CASSETTE_NODES} nodes", line)
        if isinstance(into.value, list):
            into.value.append(value)
        elif into.key is not None:
            into.value[into.key] = value
            into.key = None
        elif not isinstance(value, str) or value in into.value:
            reason = "a key is used twice" if isinstance(value, str) else "a key is not a string"
            raise CassetteFormatError(reason, line)
        else:
            into.key = value
