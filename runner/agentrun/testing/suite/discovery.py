"""Find cases in files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET, Struct

from agentrun.compiler.cases import CASES_FILE_SUFFIX, cases_path, complete_cases, read_cases_file, spec_path
from agentrun.compiler.lint_cases import lint_cases
from agentrun.compiler.spec_reader import read_spec
from agentrun.errors import SpecError
from agentrun.spec.problems import DocumentError
from agentrun.spec.source_files import display_path, walk_folders
from agentrun.spec.tree import Node, SequenceNode, node_at, place_at_path
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot
from agentrun.spec.v1.cases import Case, CaseTurn


class PlacedAssertion(NamedTuple):
    assertion: Assertion
    line: int | None
    """Its line in the file of cases. None: unknown."""


class LocatedCase(Struct, frozen=True, kw_only=True):
    file: Path
    spec: Path
    case: Case
    line: int
    assertion_lines: tuple[int, ...] = ()
    """The line of each assertion of the case. Those of `defaults` come first."""
    turn_assertion_lines: tuple[tuple[int, ...], ...] = ()

    @property
    def id(self) -> str:
        """`specs/support.cases.yaml::default`: relative to the working directory, like the ids of pytest."""
        return f"{display_path(self.file)}::{self.case.name}"

    @property
    def profile(self) -> str | None:
        return None if self.case.profile is UNSET else self.case.profile

    @property
    def assertions(self) -> list[PlacedAssertion]:
        return _with_lines(self.case.assertions, self.assertion_lines)

    @property
    def turn_assertions(self) -> list[list[PlacedAssertion]]:
        turns = [] if self.case.turns is UNSET else self.case.turns
        return [
            _with_lines(turn.assertions if isinstance(turn, CaseTurn) else [], lines or ())
            for turn, lines in zip_longest(turns, self.turn_assertion_lines)
        ]

    @property
    def snapshot_line(self) -> int | None:
        """The line of the assertion `journal-snapshot`."""
        return next((line for each, line in self.assertions if isinstance(each, JournalSnapshot)), None)

    @property
    def snapshot(self) -> JournalSnapshot | None:
        return next((each for each in self.case.assertions if isinstance(each, JournalSnapshot)), None)


def _with_lines(assertions: Sequence[Assertion], lines: Sequence[int]) -> list[PlacedAssertion]:
    known = lines if len(lines) == len(assertions) else [None] * len(assertions)
    return [PlacedAssertion(*pair) for pair in zip(assertions, known, strict=True)]


def find_case_files(paths: Iterable[Path]) -> list[Path]:
    """The case files, each once, in the order of the paths and of names within a folder."""
    files = (Path(os.path.abspath(file)) for path in paths for file in _files_of_path(path))
    return list(dict.fromkeys(files))


def _files_of_path(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path if path.name.endswith(CASES_FILE_SUFFIX) else cases_path(path)
        return
    for folder, names in walk_folders(path, lambda folder: folder.name == "__snapshots__"):
        yield from (folder / name for name in names if name.endswith(CASES_FILE_SUFFIX) and not name.startswith("."))


def read_located_cases(file: Path) -> list[LocatedCase]:
    """The cases of a file, in its order. Raises SpecError with all its problems."""
    spec = spec_path(file)
    try:
        root, cases = read_cases_file(file)
    except DocumentError as error:
        raise SpecError(error.problems) from None
    if problems := [each for each in lint_cases(root, cases, read_spec(spec).spec) if each.severity == "error"]:
        raise SpecError(problems)
    common = _item_lines(root, "defaults", "assert")
    return [
        LocatedCase(
            file=file,
            spec=spec,
            case=case,
            line=place_at_path(root, ["cases", index]).line,
            assertion_lines=common + _item_lines(root, "cases", index, "assert"),
            turn_assertion_lines=tuple(
                _item_lines(root, "cases", index, "turns", turn, "assert") for turn in range(_turn_count(case))
            ),
        )
        for index, case in enumerate(complete_cases(cases))
    ]


def _turn_count(case: Case) -> int:
    return 0 if case.turns is UNSET else len(case.turns)


def _item_lines(root: Node, *path: str | int) -> tuple[int, ...]:
    """The line of each item of a list. Empty: there is no list."""
    node = node_at(root, path)
    return tuple(item.place.line for item in node.items) if isinstance(node, SequenceNode) else ()
