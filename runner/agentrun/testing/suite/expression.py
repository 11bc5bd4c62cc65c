"""`-k EXPR`: the words of pytest's option of that name.

    refund                      every case in whose id or tags the word stands, in whatever case
    support and not retry       `and`, `or`, `not` and parentheses, `not` first, then `and`
    (slow or net) and ops

A word is made of letters, digits and `_ : + - . [ ] \\ /`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

Fits: TypeAlias = Callable[[Sequence[str]], bool]
"""Given the texts of a case, in small letters."""

LONGEST = 10_000
DEEPEST = 50
_TOKEN = re.compile(r"\s*(?:(?P<sign>[()])|(?P<word>[\w:+\-.\[\]\\/]+))")


class Wrong(ValueError):
    """It is no expression; the text says why and where."""


class _Token(NamedTuple):
    text: str
    column: int
    """From 1."""


def expression(text: str) -> Fits:
    """What an expression asks for. Raises Wrong."""
    if len(text) > LONGEST:
        raise Wrong(f"it has more than {LONGEST} characters")
    reader = _Reader(list(_tokens(text)), len(text) + 1)
    fits = reader.either(0)
    if reader.next is not None:
        raise Wrong(f"column {reader.next.column}: expected and, or, or the end, not {reader.next.text!r}")
    return fits


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise Wrong(f"column {start + 1}: {text[start]!r} stands in no word; words are looked for as they are")
        yield _Token(found["sign"] or found["word"], found.start("sign" if found["sign"] else "word") + 1)
        place = found.end()


class _Reader:
    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._place = 0
        self._end = end

    @property
    def next(self) -> _Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def either(self, depth: int) -> Fits:
        found = [self._both(depth)]
        while self._took("or"):
            found.append(self._both(depth))
        return found[0] if len(found) == 1 else lambda texts: any(each(texts) for each in found)

    def _both(self, depth: int) -> Fits:
        found = [self._not(depth)]
        while self._took("and"):
            found.append(self._not(depth))
        return found[0] if len(found) == 1 else lambda texts: all(each(texts) for each in found)

    def _not(self, depth: int) -> Fits:
        negated = False
        while self._took("not"):
            negated = not negated
        inner = self._one(depth)
        return (lambda texts: not inner(texts)) if negated else inner

    def _one(self, depth: int) -> Fits:
        if self._took("("):
            if depth == DEEPEST:
                raise Wrong(f"more than {DEEPEST} parentheses within each other")
            inner = self.either(depth + 1)
            if not self._took(")"):
                raise self._wrong("a right parenthesis")
            return inner
        token = self.next
        if token is None or token.text in ("and", "or", ")"):
            raise self._wrong("a word, not, or a left parenthesis")
        self._place += 1
        word = token.text.lower()
        return lambda texts: any(word in text for text in texts)

    def _took(self, text: str) -> bool:
        found = self.next is not None and self.next.text == text
        self._place += found
        return found

    def _wrong(self, wanted: str) -> Wrong:
        column, what = (self._end, "the end") if self.next is None else (self.next.column, repr(self.next.text))
        return Wrong(f"column {column}: expected {wanted}, not {what}")
