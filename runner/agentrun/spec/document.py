"""YAML text to a tree with places: YAML 1.2, one document, bounded, nothing executed.

Rule 1  libyaml (or its Python twin where it is not compiled in) only splits the text into events. What they
        mean is decided here, without recursion, so no input can exhaust the stack.
Rule 2  Limits are counted while reading, and reading stops there: 1 MiB of text, 64 levels, 100 aliases,
        50,000 nodes with all aliases written out (counted, never written out).
Rule 3  Keys are texts as written: `on`, `1` and `true` are "on", "1" and "true". A key stands once.
Rule 4  No tags, no merge keys, no second document, no characters that editors show as nothing or as a line.
Rule 5  All problems found come in one `DocumentError`; no other exception leaves this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from agentrun.spec.problems import DocumentError, Place, Problem, Source, did_you_mean, quoted
from agentrun.spec.scalars import BadNumber, is_null, resolve
from agentrun.spec.syntax import explain, place_at
from agentrun.spec.tree import Entry, Mapping, Node, Scalar, Sequence, Style

__all__ = ["MAX_BYTES", "DocumentError", "parse"]

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_NODES = 50_000
MAX_PROBLEMS = 100

_STYLES: dict[str | None, Style] = {
    **dict.fromkeys((None, ""), "plain"),
    "'": "single",
    '"': "double",
    "|": "literal",
    ">": "folded",
}

# Not YAML's printable set, or taken for a line end by YAML 1.1 alone (U+0085, U+2028, U+2029).
_foreign = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_anchor = re.compile(r"&[^\s,\[\]{}]+(?:[ \t]+|(?:#[^\n]*)?\n)*+")

_directive = re.compile(r"^%(?!YAML[ \t]+1\.2[ \t]*(?:#.*)?$).*", re.MULTILINE)

_parse: Callable[..., Iterator[Any]] = yaml.parse


def parse(source: Source, *, pure: bool = False) -> Node:
    """The tree of a document; `pure` takes the parser written in Python. Raises `DocumentError`."""
    builder = _Builder(source)
    try:
        builder.check_text()
        loader = yaml.SafeLoader if pure or not yaml.__with_libyaml__ else yaml.CSafeLoader
        for event in _parse(source.text, Loader=loader):
            builder.take(event)
    except _Enough:
        pass
    except yaml.MarkedYAMLError as error:
        builder.syntax(error)
    except (ValueError, OverflowError):  # the Python parser on escapes and versions that are out of range
        builder.problems.append(
            Problem(builder.last, "spec.yaml_syntax", "not valid YAML near here", "check escapes in double quotes")
        )
    if builder.root is None and not builder.problems:
        builder.problems.append(Problem(Place(source, 1, 1), "spec.empty", "the document is empty"))
    if builder.problems or builder.root is None:
        raise DocumentError(builder.problems)
    return builder.root


class _Enough(Exception):
    """No use in reading on."""


class _Open:
    """A mapping (with `entries`) or sequence (with `items`) that is being read."""

    __slots__ = ("anchor", "counted", "deepest", "entries", "items", "key", "key_place", "place", "wants_key")

    def __init__(self, place: Place, anchor: str | None, is_mapping: bool, counted: int, depth: int) -> None:
        self.place = place
        self.anchor = anchor
        self.entries: dict[str, Entry] | None = {} if is_mapping else None
        self.items: list[Node] = []
        self.wants_key = is_mapping
        self.key: str | None = None
        self.key_place = place
        self.counted = counted
        self.deepest = depth


class _Builder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self.last = Place(source, 1, 1)
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Node, int, int] | _Open] = {}
        """By name: the node with its size and height, or the collection that is still open."""
        self.nodes = 0
        self.aliases = 0
        self.documents = 0
        self.handlers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self.scalar,
            yaml.MappingStartEvent: self.open,
            yaml.SequenceStartEvent: self.open,
            yaml.MappingEndEvent: self.close,
            yaml.SequenceEndEvent: self.close,
            yaml.AliasEvent: self.alias,
            yaml.DocumentStartEvent: self.document,
        }

    def problem(self, place: Place, code: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(place, code, message, hint))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Enough

    def stop(self, place: Place, code: str, message: str, hint: str | None = None) -> None:
        self.problem(place, code, message, hint)
        raise _Enough

    def check_text(self) -> None:
        text = self.source.text
        if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
            self.stop(self.last, "spec.too_large", "the document is larger than 1 MiB", "split it into files")
        for match in _foreign.finditer(text):
            name = f"U+{ord(match[0]):04X}"
            hint = f"remove it, or write it as {quoted(match[0])[1:-1]} in double quotes"
            self.problem(
                place_at(self.source, match.start()),
                "spec.encoding",
                f"the character {name} is not allowed here",
                "remove it" if 0xD800 <= ord(match[0]) < 0xE000 else hint,
            )
        if self.problems:
            raise _Enough

    def syntax(self, error: yaml.MarkedYAMLError) -> None:
        """A syntax error, unless it only follows from an unquoted template on the same line."""
        found = explain(self.source, error)
        if not any(p.code == "spec.key" and p.line == found.line for p in self.problems):
            self.problems.append(found)

    def take(self, event: Any) -> None:
        handler = self.handlers.get(type(event))
        if handler is not None:
            handler(event)

    def document(self, event: Any) -> None:
        self.documents += 1
        place = self.place(event)
        if self.documents > 1:
            self.stop(place, "spec.documents", "a second document begins here", "use one file for each document")
        directive = _directive.search(self.source.text, 0, event.end_mark.index)
        if directive:
            message = f"the directive {quoted(directive[0])} is not allowed: documents are YAML 1.2"
            self.problem(place_at(self.source, directive.start()), "spec.yaml_syntax", message, "remove the line")

    def place(self, event: Any) -> Place:
        """Where the text of an event stands, its anchor left out."""
        mark, end = event.start_mark, event.end_mark
        line, column = mark.line, mark.column
        if getattr(event, "anchor", None) is not None:
            begin = self.begin(event)
            line += self.source.text.count("\n", mark.index, begin)
            column = (
                begin - 1 - self.source.text.rfind("\n", 0, begin) if line > mark.line else column + begin - mark.index
            )
        width = end.column - column if end.line == line else 1
        self.last = Place(self.source, line + 1, column + 1, max(width, 1))
        return self.last

    def begin(self, event: Any) -> int:
        index: int = event.start_mark.index
        if event.anchor is None:
            return index
        skipped = _anchor.match(self.source.text, index)  # no match for an alias, which begins with *
        return skipped.end() if skipped else index

    def count(self, place: Place, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            code, more = ("spec.alias_limit", " with its aliases") if self.aliases else ("spec.too_large", "")
            message = f"the document has more than {MAX_NODES:,} values{more}"
            self.stop(place, code, message, "split it into files")

    def tag(self, event: Any, place: Place) -> None:
        if event.tag is not None:
            hint = "remove the tag; quote a value to make it a text"
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.problem(place, "spec.tag", f"the tag {quoted(tag)} is not allowed", hint)

    def scalar(self, event: Any) -> None:
        place = self.place(event)
        self.count(place, 1)
        self.tag(event, place)
        style = _STYLES[event.style]
        text: str = event.value
        if style == "double" and not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            hint = "write the character itself"
            self.problem(place, "spec.encoding", "this text holds half of a surrogate pair", hint)
        top = self.stack[-1] if self.stack else None
        wants_key = top is not None and top.wants_key
        value: Any = text
        if style == "plain" and not wants_key:
            try:
                value = resolve(text)
            except BadNumber as bad:
                self.problem(place, "spec.number", bad.message, bad.hint)
        start, end = self.begin(event), event.end_mark.index
        if not text and style == "plain" and top is not None and not wants_key:
            place, start, end = top.key_place, 0, 0  # a missing value is looked for where its key stands
        node = Scalar(value, text, place, style, start, end)
        if event.anchor is not None:
            self.anchors[event.anchor] = (node, 1, 0)
        if top is not None and wants_key:
            self.key(top, node)
        else:
            self.put(node)

    def key(self, top: _Open, node: Scalar) -> None:
        top.wants_key = False
        top.key = None
        top.key_place = node.place
        if not node.text or (node.style == "plain" and is_null(node.text)):
            hint = "write a name before the colon" if not node.text else f'quote it: "{node.text}"'
            self.problem(node.place, "spec.key", "a key cannot be empty or null", hint)
        elif node.text == "<<":
            hint = "merge keys are not YAML 1.2: write the keys out, or use profiles or shared files"
            self.problem(node.place, "spec.merge_key", 'the merge key "<<" is not allowed', hint)
        elif top.entries is not None and node.text in top.entries:
            first = top.entries[node.text].key_place
            message = f"the key {quoted(node.text)} is already set at line {first.line}, column {first.column}"
            self.problem(node.place, "spec.duplicate_key", message, "keep one of the two")
        else:
            top.key = node.text

    def complex_key(self, place: Place, index: int) -> None:
        text = self.source.text
        if text.startswith("{{", index) or (index and text.startswith("{{", index - 1)):
            shift = 0 if text.startswith("{{", index) else 1
            start = Place(place.source, place.line, place.column - shift, 2)
            self.problem(start, "spec.key", "an unquoted value cannot begin with a template", "quote the template")
        else:
            self.problem(place, "spec.key", "a key must be a plain text", "quote it if it is one")

    def open(self, event: Any) -> None:
        place = self.place(event)
        self.count(place, 1)
        self.tag(event, place)
        if self.stack and self.stack[-1].wants_key:
            self.complex_key(place, event.start_mark.index)
        depth = len(self.stack) + 1
        if depth > MAX_DEPTH:
            self.stop(place, "spec.depth_limit", f"the document is nested deeper than {MAX_DEPTH} levels")
        is_mapping = type(event) is yaml.MappingStartEvent
        opened = _Open(place, event.anchor, is_mapping, self.nodes - 1, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = opened
        self.stack.append(opened)

    def close(self, _: Any) -> None:
        depth = len(self.stack)
        done = self.stack.pop()
        entries = done.entries
        node = Sequence(tuple(done.items), done.place) if entries is None else Mapping(entries, done.place)
        if done.anchor is not None and self.anchors[done.anchor] is done:
            self.anchors[done.anchor] = (node, self.nodes - done.counted, done.deepest - depth + 1)
        if self.stack:
            self.stack[-1].deepest = max(self.stack[-1].deepest, done.deepest)
        self.put(node)

    def alias(self, event: Any) -> None:
        place = self.place(event)
        name = quoted(f"*{event.anchor}")
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            self.stop(place, "spec.alias_limit", f"more than {MAX_ALIASES} aliases are used", "write values out")
        target = self.anchors.get(event.anchor)
        if self.stack and self.stack[-1].wants_key:
            self.problem(place, "spec.key", "a key cannot be an alias", "write the key out")
        if target is None:
            hint = did_you_mean(event.anchor, self.anchors)
            self.problem(place, "spec.yaml_syntax", f"the alias {name} has no anchor before it", hint)
        elif isinstance(target, _Open):
            self.stop(place, "spec.alias_limit", f"the alias {name} contains itself")
        else:
            node, size, height = target
            self.count(place, size)
            deepest = len(self.stack) + height
            if deepest > MAX_DEPTH:
                self.stop(place, "spec.depth_limit", f"with {name} the document is deeper than {MAX_DEPTH} levels")
            if self.stack:
                self.stack[-1].deepest = max(self.stack[-1].deepest, deepest)
            self.put(node)
            return
        self.put(Scalar(None, "", place, "plain", event.start_mark.index, event.start_mark.index))

    def put(self, node: Node) -> None:
        """A finished node goes into what is open; the value of a refused key goes nowhere."""
        if not self.stack:
            empty = isinstance(node, Scalar) and not node.text and node.style == "plain"
            self.root = None if empty else node
            return
        top = self.stack[-1]
        if top.entries is None:
            top.items.append(node)
        elif top.wants_key:
            top.wants_key, top.key = False, None
        else:
            if top.key is not None:
                top.entries[top.key] = Entry(top.key_place, node)
            top.wants_key = True
