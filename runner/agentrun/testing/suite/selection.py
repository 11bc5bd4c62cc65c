r"""Select the cases to run.

Rule 1  Files come in the order of the paths, cases in the order of their file. A case that is named twice runs once.
Rule 2  A file that cannot be read gets its own verdict; the others run.
Rule 3  Only the hash of its id decides the shard of a case. So shards do not overlap, together they have all cases, and
        they are the same on every machine.
Rule 4  `-k EXPR` is the same language as in pytest:

            refund                      cases whose id or tags contain the word, ignoring case
            support and not retry       `and`, `or`, `not` and parentheses; `not` binds first, then `and`
            (slow or net) and ops

        A word consists of letters, digits and `_ : + - . [ ] \ /`.
Rule 5  `--lf` selects the cases that did not pass. They are remembered in `.agentrun/last-failed.json` of each project.
        A case stays in it until it runs and passes. Cases that are not selected do not change.
Rule 6  A missing file means that no case failed. So does a damaged one, because the next run writes it again. Nothing
        is written if nothing changes, so that a suite that passes creates no file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import text_hash
from agentrun.compiler.cases import CASES_FILE_SUFFIX, cases_path
from agentrun.errors import AgentrunError, RequestError, SpecError, StorageError
from agentrun.spec.problems import DocumentError, did_you_mean, quote_text
from agentrun.spec.project import Project, find_project
from agentrun.spec.source_files import did_you_mean_path, display_path
from agentrun.store.process_lock import lock_project_files
from agentrun.testing.suite.discovery import LocatedCase, find_case_files, read_located_cases
from agentrun.testing.suite.verdict import CaseVerdict, failures_of_problems

CASE_SEPARATOR = "::"
CaseMatcher: TypeAlias = Callable[[Sequence[str]], bool]
"""Gets the id and tags of a case in lower case."""
MAX_KEYWORD_LENGTH = 10_000
MAX_KEYWORD_DEPTH = 50
MAX_LAST_FAILED_BYTES = 8 * 1024 * 1024
"""A longer file is not ours."""
_TOKEN = re.compile(r"\s*(?:(?P<sign>[()])|(?P<word>[\w:+\-.\[\]\\/]+))")


class CaseFilter(Struct, frozen=True, kw_only=True):
    keyword: CaseMatcher | None = None
    """`-k`"""
    tags: frozenset[str] = frozenset()
    """The case needs one of these."""
    shard: tuple[int, int] | None = None
    """(2, 4): the second of four."""

    def accepts(self, located: LocatedCase) -> bool:
        tags = located.case.tags
        if self.tags and self.tags.isdisjoint(tags):
            return False
        if self.keyword is not None and not self.keyword([text.lower() for text in (located.id, *tags)]):
            return False
        return self.shard is None or shard_of(located.id, self.shard[1]) == self.shard[0]


class SelectedCases(Struct, frozen=True, kw_only=True):
    """The cases to run, and the verdicts on files that cannot be read."""

    cases: tuple[LocatedCase, ...]
    unreadable: tuple[CaseVerdict, ...]
    complete_files: tuple[tuple[LocatedCase, ...], ...]
    """The cases of each file of which all cases run."""
    seen: int
    """The number of cases before filtering."""

    def keep(self, ids: Container[str]) -> SelectedCases:
        """Only the cases with these ids."""
        complete = tuple(file for file in self.complete_files if all(each.id in ids for each in file))
        return replace(self, cases=tuple(each for each in self.cases if each.id in ids), complete_files=complete)


def shard_of(id: str, shards: int) -> int:
    """The shard of a case, from 1."""
    return int(text_hash(id)[7:23], 16) % shards + 1


def select_cases(paths: Sequence[str], picks: CaseFilter) -> SelectedCases:
    """Select cases from files and folders. Raises `input.rejected` for a path without a case."""
    cases: list[LocatedCase] = []
    unreadable: list[CaseVerdict] = []
    complete: list[tuple[LocatedCase, ...]] = []
    seen = 0
    for file, requested in _requested_cases(paths).items():
        try:
            every = read_located_cases(file)
        except SpecError as error:
            name, failures = display_path(file), failures_of_problems(error.problems)
            line = next((problem.line for problem in error.problems if problem.file == name), 1)
            unreadable.append(CaseVerdict(id=name, file=name, line=line, status="unreadable", failures=failures))
            continue
        named = _find_named(file, every, [name for name in requested if name is not None])
        named = every if None in requested else named
        accepted = [located for located in named if picks.accepts(located)]
        seen += len(named)
        cases += accepted
        if len(accepted) == len(every):
            complete.append(tuple(every))
    return SelectedCases(cases=tuple(cases), unreadable=tuple(unreadable), complete_files=tuple(complete), seen=seen)


def _requested_cases(paths: Sequence[str]) -> dict[Path, dict[str | None, None]]:
    """The names of the requested cases of each file, in order. None: all of them."""
    requested: dict[Path, dict[str | None, None]] = {}
    for text in paths:
        path, mark, name = text.partition(CASE_SEPARATOR)
        for file in _requested_files(path, text):
            requested.setdefault(file, {})[name if mark else None] = None
    return requested


def _requested_files(path: str, text: str) -> list[Path]:
    """The case files of a path. Raises `input.rejected`."""
    if not os.path.exists(path):
        raise _path_error(f"there is no file or folder {quote_text(path)}", did_you_mean_path(Path(path)))
    is_folder = os.path.isdir(path)
    if is_folder and CASE_SEPARATOR in text:
        raise _path_error(f"{quote_text(text)}: to name a case, write FILE::NAME with a file, not a folder")
    files = find_case_files([Path(path)])
    if not files:
        message = f"{quote_text(path)} has no cases: there is no file NAME{CASES_FILE_SUFFIX} in it"
        raise _path_error(message, "record a case: agentrun SPEC --mode record; or create a project: agentrun init DIR")
    if not is_folder and not files[0].exists():
        missing = display_path(cases_path(Path(path)))
        raise _path_error(f"{quote_text(path)} has no cases: there is no {missing}", "write it, or record a case")
    return files


def _find_named(file: Path, cases: list[LocatedCase], names: list[str]) -> list[LocatedCase]:
    by_name = {located.case.name: located for located in cases}
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name) or f"cases: {', '.join(by_name)}"
            raise _path_error(f"{display_path(file)} has no case {quote_text(name)}", hint)
    return [by_name[name] for name in names]


def _path_error(message: str, hint: str | None = None) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "path"})


# --- `-k EXPR` --------------------------------------------------------------------------------------------------------


class KeywordSyntaxError(ValueError):
    """An invalid expression, with the reason and the column."""


class _Token(NamedTuple):
    text: str
    column: int
    """From 1."""


def parse_keyword(text: str) -> CaseMatcher:
    """Parse an expression. Raises `KeywordSyntaxError`."""
    if len(text) > MAX_KEYWORD_LENGTH:
        raise KeywordSyntaxError(f"it has more than {MAX_KEYWORD_LENGTH} characters")
    parser = _KeywordParser(list(_tokens(text)), len(text) + 1)
    matcher = parser.parse_or(0)
    if parser.next is not None:
        raise KeywordSyntaxError(f"column {parser.next.column}: expected and, or, or the end, not {parser.next.text!r}")
    return matcher


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            reason = f"{text[start]!r} is not allowed in a word; there are no wildcards"
            raise KeywordSyntaxError(f"column {start + 1}: {reason}")
        yield _Token(match["sign"] or match["word"], match.start("sign" if match["sign"] else "word") + 1)
        place = match.end()


class _KeywordParser:
    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._place = 0
        self._end = end

    @property
    def next(self) -> _Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def parse_or(self, depth: int) -> CaseMatcher:
        terms = [self._parse_and(depth)]
        while self._accept("or"):
            terms.append(self._parse_and(depth))
        return lambda texts: any(each(texts) for each in terms)

    def _parse_and(self, depth: int) -> CaseMatcher:
        terms = [self._parse_not(depth)]
        while self._accept("and"):
            terms.append(self._parse_not(depth))
        return lambda texts: all(each(texts) for each in terms)

    def _parse_not(self, depth: int) -> CaseMatcher:
        negated = False
        while self._accept("not"):
            negated = not negated
        inner = self._parse_operand(depth)
        return (lambda texts: not inner(texts)) if negated else inner

    def _parse_operand(self, depth: int) -> CaseMatcher:
        if self._accept("("):
            if depth == MAX_KEYWORD_DEPTH:
                raise KeywordSyntaxError(f"more than {MAX_KEYWORD_DEPTH} nested parentheses")
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
        is_next = self.next is not None and self.next.text == text
        self._place += is_next
        return is_next

    def _syntax_error(self, wanted: str) -> KeywordSyntaxError:
        column, what = (self._end, "the end") if self.next is None else (self.next.column, repr(self.next.text))
        return KeywordSyntaxError(f"column {column}: expected {wanted}, not {what}")


# --- cases that did not pass ------------------------------------------------------------------------------------------


def select_last_failed(found: SelectedCases) -> SelectedCases:
    """The selected cases that did not pass last time. None of them may be left."""
    failed: set[str] = set()
    for project, cases in _by_project(found.cases):
        remembered = read_last_failed(project)
        failed |= {each.id for each in cases if _stored_id(project, each) in remembered}
    return found.keep(failed)


def remember_failures(cases: Iterable[LocatedCase], verdicts: Iterable[CaseVerdict]) -> list[AgentrunError]:
    """Remember the cases that ran and did not pass, and forget those that passed. Returns why that is impossible."""
    is_bad = {verdict.id: verdict.is_bad for verdict in verdicts}
    errors: list[AgentrunError] = []
    for project, own in _by_project(each for each in cases if each.id in is_bad):
        ids = {_stored_id(project, each): is_bad[each.id] for each in own}
        failed = {name for name, bad in ids.items() if bad}
        try:
            update_last_failed(project, failed, ids.keys() - failed)
        except AgentrunError as error:
            errors.append(error)
    return errors


def _by_project(cases: Iterable[LocatedCase]) -> Iterator[tuple[Project, list[LocatedCase]]]:
    """The cases of each file. A project with invalid settings is left out; its cases cannot run."""
    for file, own in groupby(cases, key=lambda each: each.file):
        try:
            yield find_project(file), list(own)
        except (AgentrunError, DocumentError):
            continue


def _stored_id(project: Project, located: LocatedCase) -> str:
    """The id with the path from the root of the project, so that it is the same in every working directory."""
    real = Path(os.path.realpath(located.file.parent)) / located.file.name
    return f"{os.path.relpath(real, project.root)}::{located.case.name}"


class LastFailed(Struct, frozen=True):
    failed: frozenset[str] = frozenset()
    """Ids of cases, with the path from the root of the project: `specs/support.cases.yaml::default`."""


def read_last_failed(project: Project) -> frozenset[str]:
    path = _path(project)
    if not os.path.lexists(path):
        return frozenset()
    try:
        with os.fdopen(project.store_tree.open_file(path, os.O_RDONLY), "rb") as file:
            return msgspec.json.decode(file.read(MAX_LAST_FAILED_BYTES), type=LastFailed).failed
    except (OSError, StorageError, msgspec.MsgspecError, UnicodeDecodeError):
        return frozenset()


def update_last_failed(project: Project, failed: Iterable[str], others: Iterable[str]) -> None:
    """Remember the cases that failed, and forget the others that ran. Raises `storage.failed`."""
    failed, others = frozenset(failed), frozenset(others)
    before = read_last_failed(project)
    if (before | failed) - others == before:
        return
    with lock_project_files(project):
        now = (read_last_failed(project) | failed) - others
        data = msgspec.json.encode({"failed": sorted(now)})
        project.store_tree.write(_path(project), data + b"\n")


def _path(project: Project) -> Path:
    return project.store_directory / "last-failed.json"
