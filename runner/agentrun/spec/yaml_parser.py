"""Parse YAML 1.2 into a tree with places. The input is one document of limited size; nothing is executed.

Rule 1  libyaml (or the Python parser, if libyaml is missing) only splits the text into events. This module interprets
        them without recursion, so no input can exhaust the stack.
Rule 2  Limits are checked while reading, and reading stops there: 1 MiB of text, 64 levels, 100 aliases, and 50,000
        nodes with all aliases expanded (they are counted, not expanded).
Rule 3  Keys are texts as written: `on`, `1` and `true` are "on", "1" and "true". A key can occur only once.
Rule 4  No tags, no merge keys, no second document, no characters that editors show as nothing or as a line end.
Rule 5  All problems are raised in one `DocumentError`. This module raises no other exception.
Rule 6  A syntax error gets the same message from both parsers, and the place where the user should look: the quote or
        bracket that was opened, not the end of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import isinf
from typing import Any

import yaml
from msgspec import Struct

from agentrun.spec.problems import (
    DocumentError,
    Problem,
    ProblemError,
    Source,
    SourcePlace,
    did_you_mean,
    is_utf8_text,
    place_at,
    quote_text,
)
from agentrun.spec.source_files import MAX_FILE_BYTES
from agentrun.spec.tree import MappingEntry, MappingNode, Node, ScalarNode, ScalarStyle, ScalarValue, SequenceNode

MAX_DOCUMENT_DEPTH = 64
MAX_DOCUMENT_ALIASES = 100
MAX_DOCUMENT_NODES = 50_000
MAX_PROBLEMS = 100

_STYLES: dict[str | None, ScalarStyle] = {
    **dict.fromkeys((None, ""), "plain"),
    "'": "single",
    '"': "double",
    "|": "literal",
    ">": "folded",
}

# Not printable in YAML, or a line end only in YAML 1.1 (U+0085, U+2028, U+2029).
_FORBIDDEN_CHARACTER = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_ANCHOR = re.compile(r"&[^\s,\[\]{}]+(?:[ \t]+|(?:#[^\n]*)?\n)*+")

_DIRECTIVE = re.compile(r"^%(?!YAML[ \t]+1\.2[ \t]*(?:#.*)?$).*", re.MULTILINE)

_yaml_events: Callable[..., Iterator[Any]] = yaml.parse
MAX_EXACT_INTEGER = 2**53 - 1
_MAX_DIGITS = 400
"""Longer numbers are not converted: conversion takes quadratic time, and no double needs more digits."""
_WORDS: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMERIC = frozenset("0123456789+-.")
_integer = re.compile(r"[-+]?[0-9]+")
_octal = re.compile(r"0o[0-7]+")
_hexadecimal = re.compile(r"0x[0-9a-fA-F]+")
_float = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_not_finite = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_QUOTE_IT = "quote the value"


def parse_yaml_document(source: Source, *, pure: bool = False) -> Node:
    """Parse a document. `pure`: use the parser written in Python. Raises `DocumentError`."""
    builder = _TreeBuilder(source)
    try:
        builder.check_text()
        loader = yaml.SafeLoader if pure or not yaml.__with_libyaml__ else yaml.CSafeLoader
        for event in _yaml_events(source.text, Loader=loader):
            if handler := builder.handlers.get(type(event)):
                handler(event)
    except _StopReading:
        pass
    except yaml.MarkedYAMLError as error:
        builder.add_syntax_error(error)
    except (ValueError, OverflowError):  # the Python parser, for escapes and versions that are out of range
        hint = "check the escapes in double quotes"
        builder.problems.append(Problem(builder.last_place, "spec.yaml_syntax", "this is not valid YAML", hint))
    if builder.root is None and not builder.problems:
        builder.problems.append(Problem(SourcePlace(source, 1, 1), "spec.empty", "the document is empty"))
    if builder.problems or builder.root is None:
        raise DocumentError(builder.problems)
    return builder.root


class _StopReading(Exception): ...


class _OpenCollection(Struct):
    """A mapping (with `entries`) or sequence (with `items`) that is being read."""

    place: SourcePlace
    anchor: str | None
    entries: dict[str, MappingEntry] | None
    counted: int
    max_depth: int
    wants_key: bool
    key_place: SourcePlace
    key: str | None = None
    items: list[Node] = []


class _TreeBuilder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.last_place = SourcePlace(source, 1, 1)
        self.stack = [_OpenCollection(self.last_place, None, None, 0, 0, False, self.last_place)]
        """The open collections. The first contains only the root."""
        self.anchors: dict[str, tuple[Node, int, int] | _OpenCollection] = {}
        """By name: the node with its size and height, or the collection that is still being read."""
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

    @property
    def root(self) -> Node | None:
        root = next(iter(self.stack[0].items), None)
        return None if isinstance(root, ScalarNode) and not root.text and root.style == "plain" else root

    def add_problem(self, place: SourcePlace, code: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(place, code, message, hint))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _StopReading

    def stop(self, place: SourcePlace, code: str, message: str, hint: str | None = None) -> None:
        self.add_problem(place, code, message, hint)
        raise _StopReading

    def check_text(self) -> None:
        text = self.source.text
        if len(text) > MAX_FILE_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES:
            self.stop(self.last_place, "spec.too_large", "the document is larger than 1 MiB", "split it into files")
        for match in _FORBIDDEN_CHARACTER.finditer(text):
            message = f"the character U+{ord(match[0]):04X} is not allowed here"
            hint = f"remove it, or write it as {quote_text(match[0])[1:-1]} in double quotes"
            hint = hint if is_utf8_text(match[0]) else "remove it"
            self.add_problem(place_at(self.source, match.start()), "spec.encoding", message, hint)
        if self.problems:
            raise _StopReading

    def add_syntax_error(self, error: yaml.MarkedYAMLError) -> None:
        """Add a syntax error, unless an unquoted template on the same line caused it."""
        found = explain_yaml_error(self.source, error)
        if not any(p.code == "spec.key" and p.line == found.line for p in self.problems):
            self.problems.append(found)

    def document(self, event: Any) -> None:
        self.documents += 1
        place = self.place(event)
        if self.documents > 1:
            self.stop(place, "spec.documents", "a second document begins here", "use one file for each document")
        directive = _DIRECTIVE.search(self.source.text, 0, event.end_mark.index)
        if directive:
            message = f"the directive {quote_text(directive[0])} is not allowed; documents are YAML 1.2"
            self.add_problem(place_at(self.source, directive.start()), "spec.yaml_syntax", message, "remove the line")

    def place(self, event: Any) -> SourcePlace:
        mark, end = event.start_mark, event.end_mark
        line, column = mark.line, mark.column
        if getattr(event, "anchor", None) is not None:
            begin = self.start_offset(event)
            line += self.source.text.count("\n", mark.index, begin)
            column = begin - 1 - self.source.text.rfind("\n", 0, begin)
        width = end.column - column if end.line == line else 1
        self.last_place = SourcePlace(self.source, line + 1, column + 1, max(width, 1))
        return self.last_place

    def start_offset(self, event: Any) -> int:
        index: int = event.start_mark.index
        if event.anchor is None:
            return index
        skipped = _ANCHOR.match(self.source.text, index)  # no match for an alias, which begins with *
        return skipped.end() if skipped else index

    def count(self, place: SourcePlace, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_DOCUMENT_NODES:
            code, more = ("spec.alias_limit", " with its aliases") if self.aliases else ("spec.too_large", "")
            message = f"the document has more than {MAX_DOCUMENT_NODES:,} values{more}"
            self.stop(place, code, message, "split it into files")

    def begin_node(self, event: Any) -> SourcePlace:
        place = self.place(event)
        self.count(place, 1)
        if event.tag is not None:
            hint = "remove the tag; quote a value to make it text"
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.add_problem(place, "spec.tag", f"the tag {quote_text(tag)} is not allowed", hint)
        return place

    def scalar(self, event: Any) -> None:
        place = self.begin_node(event)
        style = _STYLES[event.style]
        text: str = event.value
        if style == "double" and not is_utf8_text(text):
            hint = "write the character itself"
            self.add_problem(place, "spec.encoding", "this text has half of a surrogate pair", hint)
        top = self.stack[-1]
        value: Any = text
        if style == "plain" and not top.wants_key:
            try:
                value = parse_plain_scalar(text)
            except BadNumber as bad:
                self.add_problem(place, bad.code, bad.message, bad.hint)
        start, end = self.start_offset(event), event.end_mark.index
        if not text and style == "plain" and not top.wants_key:
            place, start, end = top.key_place, 0, 0  # a missing value gets the place of its key
        node = ScalarNode(value, text, place, style, start, end)
        if event.anchor is not None:
            self.anchors[event.anchor] = (node, 1, 0)
        if top.wants_key:
            self.set_key(top, node)
        else:
            self.add_node(node)

    def set_key(self, top: _OpenCollection, node: ScalarNode) -> None:
        top.wants_key = False
        top.key = None
        top.key_place = node.place
        if not node.text or (node.style == "plain" and _WORDS.get(node.text, "") is None):
            hint = "write a name before the colon" if not node.text else f'quote it: "{node.text}"'
            self.add_problem(node.place, "spec.key", "a key cannot be empty or null", hint)
        elif node.text == "<<":
            hint = "merge keys are not YAML 1.2; write the keys out, or use profiles or shared files"
            self.add_problem(node.place, "spec.merge_key", 'the merge key "<<" is not allowed', hint)
        elif top.entries is not None and node.text in top.entries:
            first = top.entries[node.text].key_place
            message = f"the key {quote_text(node.text)} is already set at line {first.line}, column {first.column}"
            self.add_problem(node.place, "spec.duplicate_key", message, "remove one of the two")
        else:
            top.key = node.text

    def refuse_complex_key(self, place: SourcePlace, index: int) -> None:
        text = self.source.text
        if text.startswith("{{", index) or (index and text.startswith("{{", index - 1)):
            shift = 0 if text.startswith("{{", index) else 1
            start = SourcePlace(place.source, place.line, place.column - shift, 2)
            self.add_problem(start, "spec.key", "an unquoted value cannot begin with a template", "quote the template")
        else:
            self.add_problem(place, "spec.key", "a key must be text", "put the key in quotes")

    def open(self, event: Any) -> None:
        place = self.begin_node(event)
        if self.stack[-1].wants_key:
            self.refuse_complex_key(place, event.start_mark.index)
        depth = len(self.stack)
        if depth > MAX_DOCUMENT_DEPTH:
            self.stop(place, "spec.depth_limit", f"the document is nested deeper than {MAX_DOCUMENT_DEPTH} levels")
        is_mapping = type(event) is yaml.MappingStartEvent
        entries: dict[str, MappingEntry] | None = {} if is_mapping else None
        opened = _OpenCollection(place, event.anchor, entries, self.nodes - 1, depth, is_mapping, key_place=place)
        if event.anchor is not None:
            self.anchors[event.anchor] = opened
        self.stack.append(opened)

    def close(self, _: Any) -> None:
        done = self.stack.pop()
        entries = done.entries
        node = SequenceNode(tuple(done.items), done.place) if entries is None else MappingNode(entries, done.place)
        if done.anchor is not None and self.anchors[done.anchor] is done:
            self.anchors[done.anchor] = (node, self.nodes - done.counted, done.max_depth - len(self.stack) + 1)
        self.add_node(node, done.max_depth)

    def alias(self, event: Any) -> None:
        place = self.place(event)
        name = quote_text(f"*{event.anchor}")
        self.aliases += 1
        if self.aliases > MAX_DOCUMENT_ALIASES:
            message = f"the document has more than {MAX_DOCUMENT_ALIASES} aliases"
            self.stop(place, "spec.alias_limit", message, "write the values out")
        target = self.anchors.get(event.anchor)
        if self.stack[-1].wants_key:
            self.add_problem(place, "spec.key", "a key cannot be an alias", "write the key out")
        if target is None:
            hint = did_you_mean(event.anchor, self.anchors)
            self.add_problem(place, "spec.yaml_syntax", f"the alias {name} has no anchor before it", hint)
        elif isinstance(target, _OpenCollection):
            self.stop(place, "spec.alias_limit", f"the alias {name} contains itself")
        else:
            node, size, height = target
            self.count(place, size)
            deepest = len(self.stack) - 1 + height
            if deepest > MAX_DOCUMENT_DEPTH:
                message = f"with {name} the document is nested deeper than {MAX_DOCUMENT_DEPTH} levels"
                self.stop(place, "spec.depth_limit", message)
            self.add_node(node, deepest)
            return
        self.add_node(ScalarNode(None, "", place, "plain", event.start_mark.index, event.start_mark.index))

    def add_node(self, node: Node, depth: int = 0) -> None:
        """Add a finished node to the open collection. The value of a refused key is dropped."""
        top = self.stack[-1]
        top.max_depth = max(top.max_depth, depth)
        if top.entries is None:
            top.items.append(node)
        elif top.wants_key:
            top.wants_key, top.key = False, None
        else:
            if top.key is not None:
                top.entries[top.key] = MappingEntry(top.key_place, node)
            top.wants_key = True


class BadNumber(ProblemError):
    """Why a scalar that looks like a number is refused: it is ambiguous or not exact."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__("spec.number", message, hint)


def parse_plain_scalar(text: str) -> ScalarValue:
    """Return the value of an unquoted scalar. Raises `BadNumber` for an ambiguous or inexact number."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if _integer.fullmatch(text):
        return _decimal(text)
    if _octal.fullmatch(text):
        return _exact_integer(text, text[2:], 8)
    if _hexadecimal.fullmatch(text):
        return _exact_integer(text, text[2:], 16)
    if _float.fullmatch(text):
        return _finite_float(text)
    if _not_finite.fullmatch(text):
        raise BadNumber(f"{text} is not a JSON number", f"quote it if it is text: '{text}'")
    return text


def _decimal(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0":
        short = quote_text(text.replace(digits, digits.lstrip("0") or "0"), 30).strip('"')
        message = f"the number {quote_text(text, 30)} begins with 0 and could be octal or decimal"
        raise BadNumber(message, f"quote it if it is text, or write {short}")
    return _exact_integer(text, text, 10)


def _exact_integer(text: str, digits: str, base: int) -> int:
    value = int(digits, base) if len(digits) <= _MAX_DIGITS else MAX_EXACT_INTEGER + 1
    if abs(value) > MAX_EXACT_INTEGER:
        message = f"the number {quote_text(text, 30)} is beyond ±{MAX_EXACT_INTEGER} and would not be exact"
        raise BadNumber(message, "quote it if it is text or an id")
    return value


def _finite_float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_DIGITS else float("inf")
    lost = value == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
    if isinf(value) or lost:
        raise BadNumber(f"the number {quote_text(text, 30)} does not fit into a double", "quote it if it is text")
    return value


def explain_yaml_error(source: Source, error: Any) -> Problem:
    what = str(error.problem or "").lower()
    context = str(error.context or "").lower()
    mark = error.problem_mark or error.context_mark
    at = min(mark.index, len(source.text)) if mark else 0
    opened = error.context_mark.index if error.context_mark else at
    where, message, hint = _diagnose(source.text, what, context, at, opened)
    code = "spec.tag" if "tag" in what.split() or "a tag" in context else "spec.yaml_syntax"
    return Problem(place_at(source, where), code, message, hint)


def _diagnose(text: str, what: str, context: str, at: int, opened: int) -> tuple[int, str, str | None]:
    start = text.rfind("\n", 0, at) + 1
    char = text[at : at + 1]
    tab = re.match(r" *\t", text[start : at + 1])
    if tab or "tab character" in what:
        index = start + tab.end() - 1 if tab else at
        return index, "a tab is used for indentation", "indent with spaces"
    if "quoted scalar" in context or "double-quoted" in context:
        return _diagnose_quote(text, what, at, opened)
    if char == ":" and any(words in what for words in ("expected key", "block end", "node content")):
        return at, 'there is no key before this ":"', "write the key before the colon"
    if "flow sequence" in context or "flow mapping" in context:
        return _diagnose_bracket(text, at, opened)
    if "alias" in context or "anchor" in context:
        message = f"{quote_text(text[opened : opened + 1])} begins an alias or anchor and needs a name"
        return opened, message, _QUOTE_IT
    if "cannot start" in what:
        template = text.startswith(("{%", "{{", "{#"), max(at - 1, 0)) or text.startswith("%}", at)
        hint = "quote the template" if template else _QUOTE_IT
        return at, f"an unquoted value cannot begin with {quote_text(char)}", hint
    if "mapping values" in what:
        return _diagnose_colon(text, start, at)
    if "expected ':'" in what:
        return opened, "this line is neither a key nor part of a value", 'write "key: value", with a space'
    if "sequence entries" in what:
        return at, "a list cannot begin on the line of its key", "put each item on its own line below, or use [ ]"
    return _diagnose_other(text, what, context, at)


def _diagnose_colon(text: str, start: int, at: int) -> tuple[int, str, str | None]:
    before = text[start:at]
    if not re.fullmatch(r"[ -]*[^\s:'\"]+", before):
        return at, 'a ":" is not expected here', 'quote a value that contains ": "'
    above = text.rfind("\n", 0, max(start - 1, 0)) + 1
    glued = re.match(r"[ -]*[A-Za-z_][\w-]*:(?=[^\s/])", text[above:start])
    if glued:
        return above + glued.end() - 1, "there is no space after this colon, so this is not a key", "add a space"
    key = start + len(before) - len(before.lstrip(" -"))
    return key, "a key is not expected here", "check the indentation of this line and the one above"


def _diagnose_quote(text: str, what: str, at: int, opened: int) -> tuple[int, str, str | None]:
    if "escape" in what or "hexadecimal" in what:
        hint = "double the backslash, or use single quotes; write characters above U+FFFF as they are"
        return text.rfind("\\", opened, at + 1), "this escape is not valid in double quotes", hint
    return opened, "the quote opened here is not closed", "close it, or double a quote that is part of the text"


def _diagnose_bracket(text: str, at: int, opened: int) -> tuple[int, str, str | None]:
    bracket = text[opened : opened + 1]
    close = {"[": "]", "{": "}"}.get(bracket, "]")
    if text.startswith(("{{", "{%"), opened):
        return opened, "an unquoted value cannot begin with a template", "quote the template"
    if "\n" in text[opened:at] or at >= len(text):
        line = text.count("\n", 0, at) + 1
        until = "" if at >= len(text) else f" before line {line}"
        return opened, f'the "{bracket}" opened here is not closed{until}', f'add "{close}"'
    return at, f'a "," or "{close}" is expected here', f'separate items with ",", or add "{close}"'


def _diagnose_other(text: str, what: str, context: str, at: int) -> tuple[int, str, str | None]:
    if "'-'" in what or ("block collection" in context and "block end" in what):
        return at, "this is not an item of the list above", 'begin each item with "- ", all with the same indentation'
    if text[:at].rstrip(" ").endswith(("'", '"')) and ("key" in what or "block end" in what):
        return at, "there is text after a closing quote", "quote the whole value; in single quotes write '' for '"
    if "expected key" in what or ("block mapping" in context and "block end" in what):
        return at, "this is neither a key nor the end of the mapping", "check the indentation"
    if "document start" in what:
        return at, "the document ended before this line", "quote the whole value, and check the indentation"
    if "node content" in what:
        return at, f"a value is expected before {quote_text(text[at : at + 1])}", None
    if "directive" in what + context or "yaml document" in what:
        return at, "unknown directive", "remove the line that begins with %"
    if "block scalar" in context:
        return at, "this text block is not valid", "begin the text on a new line, indented with spaces"
    if "tag" in what:
        return at, "explicit tags are not allowed", "remove the tag; quote a value to make it text"
    return at, f"not valid YAML: {what or 'unknown error'}", None
