"""Which cases are run.

Rule 1  Paths give files in their order, files give cases in theirs; a case that is meant twice is run once.
Rule 2  A path that holds no case is a mistake, and is told before anything runs.
Rule 3  A file that cannot be read has a verdict of its own; the others are run.
Rule 4  A case is in shard i of n by the hash of its id alone: no two shards have a case in common, together they have
        all, and on another machine they are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from agentrun.canon import text_hash
from agentrun.compiler.cases import ENDING, cases_path
from agentrun.errors import RequestError, SpecError
from agentrun.spec.files import shown_path
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.testing.suite.expression import Fits
from agentrun.testing.suite.found import Found, files, read
from agentrun.testing.suite.verdict import Verdict, complaints_of

MARK = "::"


class Picks(Struct, frozen=True, kw_only=True):
    """What a case must have to be run."""

    fits: Fits | None = None
    """`-k`"""
    tags: frozenset[str] = frozenset()
    """One of these."""
    shard: tuple[int, int] | None = None
    """(2, 4): the second of four."""

    def takes(self, found: Found) -> bool:
        tags = found.case.tags
        if self.tags and self.tags.isdisjoint(tags):
            return False
        if self.fits is not None and not self.fits([text.lower() for text in (found.id, *tags)]):
            return False
        return self.shard is None or shard_of(found.id, self.shard[1]) == self.shard[0]


class Chosen(Struct, frozen=True, kw_only=True):
    """The cases to run, and what could not be read."""

    cases: tuple[Found, ...]
    unreadable: tuple[Verdict, ...]
    whole: tuple[tuple[Found, ...], ...]
    """The cases of each file of which all are run."""
    seen: int
    """Cases that were looked at."""


def shard_of(id: str, shards: int) -> int:
    """The shard of a case, from 1."""
    return int(text_hash(id)[7:23], 16) % shards + 1


def chosen(paths: Sequence[str], picks: Picks) -> Chosen:
    """The cases in files and folders. Raises `input.rejected` for a path that holds none."""
    cases: list[Found] = []
    unreadable: list[Verdict] = []
    whole: list[tuple[Found, ...]] = []
    seen = 0
    for file, meant in _meant(paths).items():
        try:
            all_ = read(file)
        except SpecError as error:
            unreadable.append(_unread(file, error.problems))
            continue
        named = _named(file, all_, meant.names)
        named = all_ if meant.is_whole else named
        taken = [found for found in named if picks.takes(found)]
        seen += len(named)
        cases += taken
        if len(taken) == len(all_):
            whole.append(tuple(all_))
    return Chosen(cases=tuple(cases), unreadable=tuple(unreadable), whole=tuple(whole), seen=seen)


class _Meant(Struct):
    """What of a file is meant."""

    names: dict[str, None]
    """Cases that are named, in order."""
    is_whole: bool = False


def _meant(paths: Sequence[str]) -> dict[Path, _Meant]:
    """Files of cases, and what of them is meant."""
    meant: dict[Path, _Meant] = {}
    for text in paths:
        path, mark, name = text.partition(MARK)
        for file in _files(path, text):
            each = meant.setdefault(file, _Meant({}))
            if mark:
                each.names[name] = None
            else:
                each.is_whole = True
    return meant


def _files(path: str, text: str) -> list[Path]:
    """The files that a path means. Raises `input.rejected`."""
    if not os.path.exists(path):
        raise _nothing(f"there is no file or folder {quoted(path)}")
    is_folder = os.path.isdir(path)
    if is_folder and MARK in text:
        raise _nothing(f"{quoted(text)}: a case is named by its file, FILE::NAME, not by a folder")
    found = files([Path(path)])
    if not found:
        raise _nothing(f"{quoted(path)} holds no cases: there is no file NAME{ENDING} in it")
    if not is_folder and not found[0].exists():
        beside = shown_path(cases_path(Path(path)))
        raise _nothing(f"{quoted(path)} has no cases: there is no {beside}", "write one, or record a case")
    return found


def _named(file: Path, cases: list[Found], names: Iterable[str]) -> list[Found]:
    known = {found.case.name: found for found in cases}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"cases: {', '.join(known)}"
            raise _nothing(f"{shown_path(file)} has no case {quoted(name)}", hint)
    return [known[name] for name in names]


def _nothing(message: str, hint: str | None = None) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": "path"})


def _unread(file: Path, problems: Sequence[Problem]) -> Verdict:
    """A verdict for a file of which nothing can be run."""
    here = shown_path(file)
    own = [problem for problem in problems if problem.file == here]
    return Verdict(
        id=here,
        file=here,
        line=own[0].line if own else 1,
        status="unreadable",
        complaints=complaints_of(problems),
    )
