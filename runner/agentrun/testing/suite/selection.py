"""Which cases are run.

Rule 1  Paths give files in their order, files give cases in theirs; a case that is meant twice is run once.
Rule 2  A path that holds no case is a mistake, and is told before anything runs.
Rule 3  A file that cannot be read has a verdict of its own; the others are run.
Rule 4  A case is in shard i of n by the hash of its id alone: no two shards have a case in common, together they have
        all, and on another machine they are the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from agentrun.canonical_json import text_hash
from agentrun.compiler.cases import CASES_FILE_SUFFIX, cases_path
from agentrun.errors import RequestError, SpecError
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.discovery import LocatedCase, find_case_files, read_located_cases
from agentrun.testing.suite.verdict import CaseVerdict, complaints_of_problems

CASE_SEPARATOR = "::"


class CaseFilter(Struct, frozen=True, kw_only=True):
    """What a case must have to be run."""

    keyword: CaseMatcher | None = None
    """`-k`"""
    tags: frozenset[str] = frozenset()
    """One of these."""
    shard: tuple[int, int] | None = None
    """(2, 4): the second of four."""

    def accepts(self, found: LocatedCase) -> bool:
        tags = found.case.tags
        if self.tags and self.tags.isdisjoint(tags):
            return False
        if self.keyword is not None and not self.keyword([text.lower() for text in (found.id, *tags)]):
            return False
        return self.shard is None or shard_of(found.id, self.shard[1]) == self.shard[0]


class SelectedCases(Struct, frozen=True, kw_only=True):
    """The cases to run, and what could not be read."""

    cases: tuple[LocatedCase, ...]
    unreadable: tuple[CaseVerdict, ...]
    complete_files: tuple[tuple[LocatedCase, ...], ...]
    """The cases of each file of which all are run."""
    seen: int
    """Cases that were looked at."""


def shard_of(id: str, shards: int) -> int:
    """The shard of a case, from 1."""
    return int(text_hash(id)[7:23], 16) % shards + 1


def select_cases(paths: Sequence[str], picks: CaseFilter) -> SelectedCases:
    """The cases in files and folders. Raises `input.rejected` for a path that holds none."""
    cases: list[LocatedCase] = []
    unreadable: list[CaseVerdict] = []
    whole: list[tuple[LocatedCase, ...]] = []
    seen = 0
    for file, meant in _requested_cases(paths).items():
        try:
            all_ = read_located_cases(file)
        except SpecError as error:
            unreadable.append(_unreadable_file_verdict(file, error.problems))
            continue
        named = _find_named(file, all_, meant.names)
        named = all_ if meant.is_whole else named
        taken = [found for found in named if picks.accepts(found)]
        seen += len(named)
        cases += taken
        if len(taken) == len(all_):
            whole.append(tuple(all_))
    return SelectedCases(cases=tuple(cases), unreadable=tuple(unreadable), complete_files=tuple(whole), seen=seen)


class _RequestedCases(Struct):
    """What of a file is meant."""

    names: dict[str, None]
    """Cases that are named, in order."""
    is_whole: bool = False


def _requested_cases(paths: Sequence[str]) -> dict[Path, _RequestedCases]:
    """Files of cases, and what of them is meant."""
    meant: dict[Path, _RequestedCases] = {}
    for text in paths:
        path, mark, name = text.partition(CASE_SEPARATOR)
        for file in _requested_files(path, text):
            each = meant.setdefault(file, _RequestedCases({}))
            if mark:
                each.names[name] = None
            else:
                each.is_whole = True
    return meant


def _requested_files(path: str, text: str) -> list[Path]:
    """The files that a path means. Raises `input.rejected`."""
    if not os.path.exists(path):
        raise _path_error(f"there is no file or folder {quote_text(path)}")
    is_folder = os.path.isdir(path)
    if is_folder and CASE_SEPARATOR in text:
        raise _path_error(f"{quote_text(text)}: a case is named by its file, FILE::NAME, not by a folder")
    found = find_case_files([Path(path)])
    if not found:
        raise _path_error(f"{quote_text(path)} holds no cases: there is no file NAME{CASES_FILE_SUFFIX} in it")
    if not is_folder and not found[0].exists():
        beside = display_path(cases_path(Path(path)))
        raise _path_error(f"{quote_text(path)} has no cases: there is no {beside}", "write one, or record a case")
    return found


def _find_named(file: Path, cases: list[LocatedCase], names: Iterable[str]) -> list[LocatedCase]:
    known = {found.case.name: found for found in cases}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"cases: {', '.join(known)}"
            raise _path_error(f"{display_path(file)} has no case {quote_text(name)}", hint)
    return [known[name] for name in names]


def _path_error(message: str, hint: str | None = None) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "path"})


def _unreadable_file_verdict(file: Path, problems: Sequence[Problem]) -> CaseVerdict:
    """A verdict for a file of which nothing can be run."""
    here = display_path(file)
    own = [problem for problem in problems if problem.file == here]
    return CaseVerdict(
        id=here,
        file=here,
        line=own[0].line if own else 1,
        status="unreadable",
        complaints=complaints_of_problems(problems),
    )


# --- `-k EXPR`: the words of pytest's option of that name -----------------------------------------------------


CaseMatcher: TypeAlias = Callable[[Sequence[str]], bool]
"""Given the texts of a case, in small letters."""

MAX_KEYWORD_LENGTH = 10_000
MAX_KEYWORD_DEPTH = 50
_TOKEN = re.compile(r"\s*(?:(?P<sign>[()])|(?P<word>[\w:+\-.\[\]\\/]+))")


class KeywordSyntaxError(ValueError):
    """It is no expression; the text says why and where."""


class _Token(NamedTuple):
    text: str
    column: int
    """From 1."""


def parse_keyword(text: str) -> CaseMatcher:
    """What an expression asks for. Raises Wrong."""
    if len(text) > MAX_KEYWORD_LENGTH:
        raise KeywordSyntaxError(f"it has more than {MAX_KEYWORD_LENGTH} characters")
    reader = _KeywordParser(list(_tokens(text)), len(text) + 1)
    fits = reader.parse_or(0)
    if reader.next is not None:
        raise KeywordSyntaxError(f"column {reader.next.column}: expected and, or, or the end, not {reader.next.text!r}")
    return fits


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise KeywordSyntaxError(
                f"column {start + 1}: {text[start]!r} stands in no word; words are looked for as they are"
            )
        yield _Token(found["sign"] or found["word"], found.start("sign" if found["sign"] else "word") + 1)
        place = found.end()


class _KeywordParser:
    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._place = 0
        self._end = end

    @property
    def next(self) -> _Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def parse_or(self, depth: int) -> CaseMatcher:
        found = [self._parse_and(depth)]
        while self._accept("or"):
            found.append(self._parse_and(depth))
        return found[0] if len(found) == 1 else lambda texts: any(each(texts) for each in found)

    def _parse_and(self, depth: int) -> CaseMatcher:
        found = [self._parse_not(depth)]
        while self._accept("and"):
            found.append(self._parse_not(depth))
        return found[0] if len(found) == 1 else lambda texts: all(each(texts) for each in found)

    def _parse_not(self, depth: int) -> CaseMatcher:
        negated = False
        while self._accept("not"):
            negated = not negated
        inner = self._parse_operand(depth)
        return (lambda texts: not inner(texts)) if negated else inner

    def _parse_operand(self, depth: int) -> CaseMatcher:
        if self._accept("("):
            if depth == MAX_KEYWORD_DEPTH:
                raise KeywordSyntaxError(f"more than {MAX_KEYWORD_DEPTH} parentheses within each other")
            inner = self.parse_or(depth + 1)
            if not self._accept(")"):
                raise self._syntax_error("a right parenthesis")
            return inner
        token = self.next
        if token is None or token.text in ("and", "or", ")"):
            raise self._syntax_error("a word, not, or a left parenthesis")
        self._place += 1
        word = token.text.lower()
        return lambda texts: any(word in text for text in texts)

    def _accept(self, text: str) -> bool:
        found = self.next is not None and self.next.text == text
        self._place += found
        return found

    def _syntax_error(self, wanted: str) -> KeywordSyntaxError:
        column, what = (self._end, "the end") if self.next is None else (self.next.column, repr(self.next.text))
        return KeywordSyntaxError(f"column {column}: expected {wanted}, not {what}")
