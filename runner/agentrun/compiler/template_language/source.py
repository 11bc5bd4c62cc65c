"""From the text of a template to Jinja's syntax tree, with the place of every mistake.

Rule 1  Jinja lexes and parses here and does nothing else anywhere: it generates, folds and runs no code.
Rule 2  What the parser could choke on (size, number of tokens, nesting) is refused before it sees it.
Rule 3  Tokens carry their offset where Jinja has a line number, so every node and error knows its column.
Rule 4  A mistake does not hide the others: a tag that cannot be read is left out and the rest is read again.
"""

from __future__ import annotations

import re
from typing import Final

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.lexer import TokenStream
from jinja2.parser import Parser

from agentrun.compiler.template_language.fault import Faults, short
from agentrun.compiler.template_language.tags import Tag, Token, check_tags, is_readable, tags_of

MAX_SOURCE: Final = 1 << 20
MAX_TOKENS: Final = 20_000
_MAX_FRAMES: Final = 300
"""Calls the parser may stack up for one expression; with the tags around it, half of what Python has."""
_FRAMES_PER_BRACKET: Final = 15
_MAX_NUMERAL: Final = 32
_MAX_BACKSLASHES: Final = 100_000
"""Jinja's lexer takes 160 bytes for each escape in a text between quotes."""
_MAX_REREAD: Final = 40_000
"""Tokens read again after syntax errors, in all: twenty readings of a long template would take seconds."""

# As Hugging Face's chat templates do it: a tag alone on its line leaves no empty line in the prompt.
_ENVIRONMENT: Final = Environment(  # noqa: S701  # it never renders, and prompts are not HTML
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
_LEXER: Final = _ENVIRONMENT.lexer
_NEWLINE: Final = re.compile(r"\r\n?")
_ESCAPE: Final = re.compile(
    r"\\(?:[\\'\"\nabfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|(.))",
    re.DOTALL,
)
# Jinja's lexer matches a numeral digit by digit: a million of them take a second and 240 MiB.
_LONG_NUMERAL: Final = re.compile(r"(?<![\d_])[\d_]{10000}|0[xX][\da-fA-F_]{10000}")
_HINTS: Final = {
    "Expected an expression": "put a value here",
    "end of print statement": "a `{{ }}` holds one expression: join parts with `~`",
    "end of statement block": "close the tag with `%}`",
    "can't assign": "`{% set %}` and `{% for %}` need a name to fill",
}


class _OffsetParser(Parser):
    """Jinja's parser over tokens that are already there."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(_ENVIRONMENT, "")
        self.stream = TokenStream(_LEXER.wrap(tokens), None, None)


def parse(source: str, faults: Faults) -> nodes.Template | None:
    """The tree of a template, or None when it cannot be read at all. A tree with faults lacks parts."""
    if len(source) > MAX_SOURCE:
        faults.syntax(0, 1, f"the template is longer than {MAX_SOURCE} characters")
        return None
    if not _lexable(source, faults):
        return None
    tokens = _lex(source, faults)
    if tokens is None or not _bounded(tokens, faults):
        return None
    tags = tags_of(tokens)
    return _read(tokens, tags, faults) if check_tags(tags, faults) else None


def is_template(source: str) -> bool:
    """Whether a text has anything in it that a render would replace."""
    return "{{" in source or "{%" in source or "{#" in source


def normal_lines(source: str) -> str:
    """Line ends as Jinja counts them: a checkout with CRLF gives the same text and the same places."""
    return _NEWLINE.sub("\n", source) if "\r" in source else source


def _lexable(source: str, faults: Faults) -> bool:
    """Whether Jinja's regular expressions get through in little memory. Where tags are is not known yet."""
    if not is_template(source):
        return True
    long = _LONG_NUMERAL.search(source)
    if long and is_template(source[: long.start()]):
        faults.syntax(long.start(), 1, "thousands of digits in a row after a tag")
    if source.count("\\") > _MAX_BACKSLASHES:
        faults.syntax(source.index("\\"), 1, f"the template has more than {_MAX_BACKSLASHES} backslashes")
    return not faults


def _lex(source: str, faults: Faults) -> list[Token] | None:
    tokens: list[Token] = []
    offset = 0
    try:
        for _, kind, text in _LEXER.tokeniter(source, None):
            offset = source.index(text, offset)  # only white space was stripped in between
            tokens.append(Token(offset, kind, text))
            offset += len(text)
            if kind in ("integer", "float") and len(text) > _MAX_NUMERAL:
                faults.syntax(offset - len(text), len(text), "this number is too long")
                return None
            if len(tokens) > MAX_TOKENS:
                faults.syntax(offset, 1, f"the template has more than {MAX_TOKENS} parts")
                return None
    except TemplateSyntaxError as error:
        _lexer_fault(source, tokens, offset, error.message or "", faults)
        return None
    return tokens


def _lexer_fault(source: str, tokens: list[Token], offset: int, message: str, faults: Faults) -> None:
    if message.startswith("Missing end of comment"):
        faults.syntax(tokens[-1].offset, 2, "this comment is never closed", "add `#}`")
    elif message.startswith("Missing end of raw"):
        faults.syntax(tokens[-1].offset, 2, "`{% raw %}` is never closed", "add `{% endraw %}`")
    elif message.startswith("unexpected char") and source[offset] in "'\"":
        faults.syntax(offset, 1, "this quote is never closed", "add the same quote where the text ends")
    elif message.startswith("unexpected char"):
        faults.syntax(offset, 1, f"unexpected character {short(source[offset])}")
    else:
        faults.syntax(offset, 1, message, "brackets are closed in the reverse order of opening")


def _bounded(tokens: list[Token], faults: Faults) -> bool:
    """Whether the parser, fifteen calls deep for each bracket, gets through every expression."""
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
            faults.syntax(offset, 1, "this expression is nested too deeply", "put parts of it in `{% set %}`")
            return False
    return not faults


def _check_escapes(offset: int, text: str, faults: Faults) -> None:
    """Refuse what Python warns of, raises or lets pass depending on its version and settings."""
    bad = next((found for found in _ESCAPE.finditer(text) if found[1]), None)
    if bad:
        hint = "write two backslashes for one"
        faults.syntax(offset + bad.start(), 2, f"unknown escape {short(bad[0])}", hint)


def _read(tokens: list[Token], tags: list[Tag], faults: Faults) -> nodes.Template | None:
    left_out = [tag for tag in tags if not is_readable(tag)]
    reread = 0
    while True:
        try:
            return _OffsetParser(_without(tokens, left_out)).parse()
        except TemplateSyntaxError as error:
            offset, message = error.lineno, error.message or "this cannot be read"
        width = next((len(token.text) for token in tokens if token.offset == offset), 1)
        hint = next((hint for part, hint in _HINTS.items() if part in message), None)
        faults.syntax(offset, width, message[0].lower() + message[1:], hint)
        culprit = next((tag for tag in tags if tag.start <= offset < tag.end and tag.can_be_left_out), None)
        reread += len(tokens)
        if culprit is None or culprit in left_out or faults.full or reread > _MAX_REREAD:
            return None
        left_out.append(culprit)


def _without(tokens: list[Token], left_out: list[Tag]) -> list[Token]:
    """The tokens with some tags taken out; in place of an `if` that cannot be read stands `if true`."""
    if not left_out:
        return tokens
    replaced = {tag.first: tag for tag in left_out}
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        if (tag := replaced.get(index)) is None:
            kept.append(tokens[index])
            index += 1
            continue
        if tag.name in ("if", "elif"):
            kept += [
                tokens[index],
                tag.words[0],
                Token(tag.words[0].offset, "name", "true"),
                tokens[tag.last - 1],
            ]
        index = tag.last
    return kept
