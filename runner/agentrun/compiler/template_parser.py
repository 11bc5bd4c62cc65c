"""Parse a template with Jinja and find its syntax errors and their places."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec
from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.lexer import TokenStream
from jinja2.parser import Parser

MAX_TEMPLATE_PROBLEMS: Final = 100
_UNSEEN: Final = re.compile("[^ -~]")
MAX_OPEN_TAGS: Final = 32
_REFUSED: Final = {
    "extends": "use `{% include %}`, or list several files under `instructions:`",
    "block": "use `{% include %}`, or list several files under `instructions:`",
    "autoescape": "remove it; nothing is escaped here",
    "print": "write `{{ value }}`",
    "do": "remove it; a template only produces text",
    "break": "filter the items instead: `{% for x in list if x.open %}`",
    "continue": "filter the items instead: `{% for x in list if x.open %}`",
    "trans": "write the text as it is",
    "debug": "use `agentrun render` to see the text",
}
_CLOSED: Final = ("autoescape", "block", "call", "filter", "for", "if", "macro", "set", "with")
_OTHER: Final = ("elif", "else", "extends", "from", "import", "include", "print")
_KNOWN: Final = (*_CLOSED, *(f"end{name}" for name in _CLOSED), *_OTHER)
"""The tags that Jinja's parser knows."""
MAX_TEMPLATE_LENGTH: Final = 1 << 20
MAX_TEMPLATE_TOKENS: Final = 8_000
"""Python's compiler takes up to 5 KiB for a token."""
_MAX_FRAMES: Final = 300
"""The maximum number of stacked parser calls for one expression; with its tags, half of Python's limit."""
_FRAMES_PER_BRACKET: Final = 15
_MAX_NUMERAL: Final = 32
_MAX_BACKSLASHES: Final = 100_000
"""Jinja's lexer takes 160 bytes for each escape in a quoted text."""
_MAX_REREAD: Final = 40_000
"""The maximum number of tokens that are parsed again after syntax errors; more would take seconds."""
_ENVIRONMENT: Final = Environment(keep_trailing_newline=True)  # noqa: S701  # it never renders
_LEXER: Final = _ENVIRONMENT.lexer
_NEWLINE: Final = re.compile(r"\r\n?")
_ESCAPE: Final = re.compile(
    r"\\(?:[\\'\"\nabfnrtv]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|(.))",
    re.DOTALL,
)
# Jinja's lexer matches a numeral digit by digit: a million of them take a second and 240 MiB.
_LONG_NUMERAL: Final = re.compile(r"(?<![\d_])[\d_]{10000}|0[xX][\da-fA-F_]{10000}")
_HINTS: Final = {
    "Expected an expression": "write a value here",
    "end of print statement": "`{{ }}` contains one expression; join parts with `~`",
    "end of statement block": "close the tag with `%}`",
    "can't assign": "`{% set %}` and `{% for %}` need a name",
}


class TemplateProblem(msgspec.Struct, frozen=True, order=True):
    line: int
    """Counted from 1, in the text of the template."""
    column: int
    """Counted from 1, in characters; 1 if it is unknown."""
    width: int
    """Characters to underline, at least 1."""
    code: str
    """template_syntax, template_unknown_name, template_forbidden or template_unknown_filter."""
    message: str
    hint: str | None


class TemplateProblems:
    """Collects mistakes: one for each place, up to a limit."""

    def __init__(self, source: str, found: Mapping[int, TemplateProblem] | None = None) -> None:
        self._source = source
        self._found = dict(found or {})

    def __len__(self) -> int:
        return len(self._found)

    @property
    def full(self) -> bool:
        """Whether further mistakes are dropped."""
        return len(self._found) >= MAX_TEMPLATE_PROBLEMS

    def place(self, offset: int) -> tuple[int, int]:
        return self._source.count("\n", 0, offset) + 1, offset - self._source.rfind("\n", 0, offset)

    def find(self, word: str, offset: int) -> int:
        """Find a word when Jinja reports the place before it: a name after a dot, a test after `is`."""
        found = self._source.find(word, offset, offset + len(word) + 200)
        return found if found >= 0 else offset

    def add(self, offset: int, width: int, code: str, message: str, hint: str | None) -> None:
        """Add a mistake. Only the first at a place is kept: a forbidden tag is found by name and as a node."""
        if not self.full and offset not in self._found:
            line, column = self.place(offset)
            self._found[offset] = TemplateProblem(line, column, max(1, min(width, 80)), code, message[:300], hint)

    def syntax(self, offset: int, width: int, message: str, hint: str | None = None) -> None:
        self.add(offset, width, "template_syntax", message, hint)

    def forbidden(self, offset: int, width: int, message: str, hint: str | None = None) -> None:
        self.add(offset, width, "template_forbidden", message, hint)

    def copy(self) -> TemplateProblems:
        """Return a copy, so that more can be added while the original stays in the cache."""
        return TemplateProblems(self._source, self._found)

    def sorted(self) -> list[TemplateProblem]:
        return [fault for _, fault in sorted(self._found.items())]


def short_name(name: str) -> str:
    """Quote a name for a message: escaped and shortened."""
    shown = _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), name[:40])
    return f'"{shown}{"…" if len(name) > 40 else ""}"'


def nearest_name_hint(name: str, known: Collection[str]) -> str | None:
    """Return a hint with the most similar known name, or with all known names if they are few."""
    if len(name) > 64 or not known:
        return None
    # A comparison takes 10 µs: a thousand fields times a hundred mistakes would take a second.
    candidates = sorted(other for other in known if abs(len(other) - len(name)) <= 3)[:100]
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    if found:
        return f'did you mean "{found[0]}"?'
    return f"known: {', '.join(sorted(known))}" if len(known) <= 8 else None


class TemplateToken(NamedTuple):
    offset: int
    kind: str
    text: str


class TemplateTag(NamedTuple):
    """One `{{ … }}` or `{% … %}`: its tokens from `first` up to `last`."""

    first: int
    last: int
    begin: TemplateToken
    name: TemplateToken | None


def find_tags(tokens: list[TemplateToken]) -> list[TemplateTag]:
    """Return the tags in order, without one that is never closed."""
    tags = []
    first = 0
    for index, token in enumerate(tokens):
        if token.kind in ("variable_begin", "block_begin"):
            first = index
        elif token.kind in ("variable_end", "block_end"):
            words = (each for each in tokens[first + 1 : index] if each.kind != "whitespace")
            word = next(words, None) if tokens[first].kind == "block_begin" else None
            tags.append(TemplateTag(first, index + 1, tokens[first], word if word and word.kind == "name" else None))
    return tags


def _check_names(tags: list[TemplateTag], faults: TemplateProblems) -> list[TemplateTag]:
    """Report the tags that are refused, unknown or without a name; return those that Jinja cannot parse."""
    left_out = []
    for tag in tags:
        if tag.begin.kind == "block_begin" and tag.name is None:
            ways = "write `{{ value }}` for a value, `{% if … %}` for a condition"
            faults.syntax(tag.begin.offset, len(tag.begin.text), "this tag has no name", ways)
        elif tag.name is not None:
            offset, _, name = tag.name
            if name in _REFUSED:
                faults.forbidden(offset, len(name), f"`{{% {name} %}}` is not allowed in a template", _REFUSED[name])
            elif name not in _KNOWN and name.removeprefix("end") not in _REFUSED:
                hint = nearest_name_hint(name, (*_KNOWN, "raw", "endraw"))
                faults.syntax(offset, len(name), f"there is no tag {short_name(name)}", hint)
        if tag.begin.kind == "block_begin" and (tag.name is None or tag.name.text not in _KNOWN):
            left_out.append(tag)
    return left_out


class _OffsetParser(Parser):
    """Jinja's parser for a list of tokens. It remembers the tags that are open."""

    def __init__(self, tokens: list[TemplateToken]) -> None:
        super().__init__(_ENVIRONMENT, "")
        self.stream = TokenStream(_LEXER.wrap(tokens), None, None)
        self.open_tags: list[TemplateToken] = []

    def parse_statement(self) -> nodes.Node | list[nodes.Node]:
        token = self.stream.current
        self.open_tags.append(TemplateToken(token.lineno, token.type, token.value))
        if len(self.open_tags) > MAX_OPEN_TAGS:
            self.fail(f"tags are nested deeper than {MAX_OPEN_TAGS} levels", token.lineno)
        parsed = super().parse_statement()
        self.open_tags.pop()
        return parsed


def parse_template(source: str, faults: TemplateProblems) -> tuple[nodes.Template | None, int]:
    """Return the tree of a template, or None if it cannot be parsed, and the number of its tokens.

    After mistakes the tree is incomplete."""
    tokens = _lex_checked(source, faults)
    if tokens is None:
        return None, 0
    return _parse_tokens(tokens, faults), sum(token.kind != "whitespace" for token in tokens)


def _lex_checked(source: str, faults: TemplateProblems) -> list[TemplateToken] | None:
    """Return the tokens of a template that Jinja can parse in little time and memory."""
    if len(source) > MAX_TEMPLATE_LENGTH:
        faults.syntax(0, 1, f"the template is longer than {MAX_TEMPLATE_LENGTH} characters")
        return None
    if not _is_lexable(source, faults):
        return None
    tokens = _lex(source, faults)
    if tokens is None or not _is_bounded(tokens, faults):
        return None
    last = next((token for token in reversed(tokens) if token.kind[-4:] in ("egin", "_end")), None)
    if last is not None and last.kind in ("variable_begin", "block_begin"):
        hint = f"add `{'}}' if last.kind == 'variable_begin' else '%}'}`"
        faults.syntax(last.offset, len(last.text), f"`{last.text}` is never closed", hint)
        return None
    return tokens


def is_template(source: str) -> bool:
    """Return whether a text has anything that a render would replace."""
    return "{{" in source or "{%" in source or "{#" in source


def normalize_newlines(source: str) -> str:
    """Convert line ends to `\\n`, so that a checkout with CRLF gives the same text and places."""
    return _NEWLINE.sub("\n", source) if "\r" in source else source


def _is_lexable(source: str, faults: TemplateProblems) -> bool:
    """Return whether Jinja's lexer needs little memory. The places of tags are not known yet."""
    if not is_template(source):
        return True
    long = _LONG_NUMERAL.search(source)
    if long and is_template(source[: long.start()]):
        faults.syntax(long.start(), 1, "there are thousands of digits in a row after a tag")
    if source.count("\\") > _MAX_BACKSLASHES:
        faults.syntax(source.index("\\"), 1, f"the template has more than {_MAX_BACKSLASHES} backslashes")
    return not faults


def _lex(source: str, faults: TemplateProblems) -> list[TemplateToken] | None:
    tokens: list[TemplateToken] = []
    offset = count = 0
    try:
        for _, kind, text in _LEXER.tokeniter(source, None):
            offset = source.index(text, offset)  # only whitespace was stripped in between
            tokens.append(TemplateToken(offset, kind, text))
            offset += len(text)
            if kind in ("integer", "float") and len(text) > _MAX_NUMERAL:
                faults.syntax(offset - len(text), len(text), "this number is too long")
                return None
            count += kind != "whitespace"
            if count > MAX_TEMPLATE_TOKENS:
                faults.syntax(offset, 1, f"the template has more than {MAX_TEMPLATE_TOKENS} parts")
                return None
    except TemplateSyntaxError as error:
        _lexer_fault(source, tokens, offset, error.message or "", faults)
        return None
    return tokens


def _lexer_fault(source: str, tokens: list[TemplateToken], offset: int, message: str, faults: TemplateProblems) -> None:
    if message.startswith("Missing end of comment"):
        faults.syntax(tokens[-1].offset, 2, "this comment is never closed", "add `#}`")
    elif message.startswith("Missing end of raw"):
        faults.syntax(tokens[-1].offset, 2, "`{% raw %}` is never closed", "add `{% endraw %}`")
    elif message.startswith("unexpected char") and source[offset] in "'\"":
        faults.syntax(offset, 1, "this quote is never closed", "add the same quote where the text ends")
    elif message.startswith("unexpected char"):
        faults.syntax(offset, 1, f"unexpected character {short_name(source[offset])}")
    else:
        faults.syntax(offset, 1, message, "close brackets in the reverse order of opening")


def _is_bounded(tokens: list[TemplateToken], faults: TemplateProblems) -> bool:
    """Return whether the parser, with fifteen stacked calls per bracket, can parse every expression."""
    frames = brackets = 0
    for offset, kind, text in tokens:
        if kind.endswith("_begin"):
            frames = brackets = 0
        elif kind == "operator":
            brackets += (text in "([{") - (text in ")]}")
            frames += text in "+-"
        elif kind == "name":
            frames += text in ("not", "else")
        elif kind == "string":
            _check_escapes(offset, text, faults)
        if frames + brackets * _FRAMES_PER_BRACKET > _MAX_FRAMES:
            faults.syntax(offset, 1, "this expression is nested too deeply", "move parts of it to `{% set %}`")
            return False
    return not faults


def _check_escapes(offset: int, text: str, faults: TemplateProblems) -> None:
    """Refuse escapes that Python accepts or rejects depending on its version and settings."""
    bad = next((found for found in _ESCAPE.finditer(text) if found[1]), None)
    if bad:
        hint = "write two backslashes for a backslash"
        faults.syntax(offset + bad.start(), 2, f"unknown escape {short_name(bad[0])}", hint)


def _parse_tokens(tokens: list[TemplateToken], faults: TemplateProblems) -> nodes.Template | None:
    tags = find_tags(tokens)
    left_out = _check_names(tags, faults)
    is_complete = not left_out
    reread = 0
    while True:
        parser = _OffsetParser(_without_tags(tokens, left_out))
        try:
            return parser.parse()
        except TemplateSyntaxError as error:
            offset, message = error.lineno, error.message or "this cannot be parsed"
        if "unknown tag" in message or message.startswith("Unexpected end of template"):
            if is_complete:  # otherwise it is the consequence of a tag that was left out
                _report_nesting(parser, offset, message, faults)
            return None
        width = next((len(token.text) for token in tokens if token.offset == offset), 1)
        hint = next((hint for part, hint in _HINTS.items() if part in message), None)
        faults.syntax(offset, width, message[0].lower() + message[1:], hint)
        culprit = next((tag for tag in tags if tag.begin.offset <= offset <= tokens[tag.last - 1].offset), None)
        reread += len(tokens)
        can_be_left_out = culprit is not None and (culprit.name is None or culprit.name.text in ("if", "elif"))
        if culprit is None or not can_be_left_out or culprit in left_out or faults.full or reread > _MAX_REREAD:
            return None
        left_out.append(culprit)


def _report_nesting(parser: _OffsetParser, offset: int, message: str, faults: TemplateProblems) -> None:
    if "unknown tag" not in message:
        for word in parser.open_tags:
            closing = f"`{{% {word.text} %}}` is never closed"
            faults.syntax(word.offset, len(word.text), closing, f"add `{{% end{word.text} %}}`")
        return
    name = parser.open_tags.pop().text
    innermost = parser.open_tags[-1].text if parser.open_tags else ""
    hint = f"close `{{% {innermost} %}}` first" if innermost else "remove it; no tag is open"
    faults.syntax(offset, len(name), f"unexpected `{{% {name} %}}`", hint)


def _without_tags(tokens: list[TemplateToken], left_out: list[TemplateTag]) -> list[TemplateToken]:
    """Remove tags from the tokens. An `if` that cannot be parsed is replaced by `if true`."""
    if not left_out:
        return tokens
    replaced = {tag.first: tag for tag in left_out}
    rest: list[TemplateToken] = []
    index = 0
    while index < len(tokens):
        if (tag := replaced.get(index)) is None:
            rest.append(tokens[index])
            index += 1
            continue
        if tag.name is not None and tag.name.text in ("if", "elif"):
            true = TemplateToken(tag.name.offset, "name", "true")
            rest += [tokens[index], tag.name, true, tokens[tag.last - 1]]
        index = tag.last
    return rest
