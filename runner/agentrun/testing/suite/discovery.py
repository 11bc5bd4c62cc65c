"""Find cases in files and folders.

A path is a folder (every `*.cases.yaml` in it), a case file, the spec next to one, or one case: `FILE::NAME`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import UNSET, Struct

from agentrun.compiler.cases import CASES_FILE_SUFFIX, cases_path, complete_cases, read_cases_file, spec_path
from agentrun.compiler.lint_cases import lint_cases
from agentrun.compiler.spec_reader import read_spec
from agentrun.errors import SpecError
from agentrun.spec.problems import DocumentError
from agentrun.spec.source_files import display_path
from agentrun.spec.tree import place_at_path
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot
from agentrun.spec.v1.cases import Case, CaseTurn

SKIPPED_DIRECTORIES = frozenset({"__snapshots__", "__pycache__", "node_modules"})


class LocatedCase(Struct, frozen=True, kw_only=True):
    file: Path
    spec: Path
    case: Case
    line: int

    @property
    def id(self) -> str:
        """`specs/support.cases.yaml::default`: relative to the working directory, like the ids of pytest."""
        return f"{display_path(self.file)}::{self.case.name}"

    @property
    def profile(self) -> str | None:
        return None if self.case.profile is UNSET else self.case.profile

    @property
    def turn_assertions(self) -> list[list[Assertion]]:
        """The assertions of each turn of a conversation."""
        turns = [] if self.case.turns is UNSET else self.case.turns
        return [turn.assertions if isinstance(turn, CaseTurn) else [] for turn in turns]

    @property
    def snapshot(self) -> JournalSnapshot | None:
        """The assertion that compares its journal with a snapshot."""
        return next((each for each in self.case.assertions if isinstance(each, JournalSnapshot)), None)


def find_case_files(paths: Iterable[Path]) -> list[Path]:
    """The case files, each once, in the order of the paths and of names within a folder."""
    files = (Path(os.path.abspath(file)) for path in paths for file in _files_of_path(path))
    return list(dict.fromkeys(files))


def _files_of_path(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _files_in_directory(path)
    elif path.name.endswith(CASES_FILE_SUFFIX):
        yield path
    else:
        yield cases_path(path)


def _files_in_directory(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not _is_skipped_directory(parent, each))
        for name in sorted(names):
            if name.endswith(CASES_FILE_SUFFIX) and not name.startswith("."):
                yield Path(parent, name)


def _is_skipped_directory(parent: str, name: str) -> bool:
    is_virtual_environment = os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
    return name in SKIPPED_DIRECTORIES or name.startswith(".") or is_virtual_environment


def read_located_cases(file: Path) -> list[LocatedCase]:
    """The cases of a file, in its order. Raises SpecError with all its problems."""
    spec = spec_path(file)
    try:
        root, cases = read_cases_file(file)
    except DocumentError as error:
        raise SpecError(error.problems) from None
    if problems := [each for each in lint_cases(root, cases, read_spec(spec).spec) if each.severity == "error"]:
        raise SpecError(problems)
    return [
        LocatedCase(file=file, spec=spec, case=case, line=place_at_path(root, ["cases", index]).line)
        for index, case in enumerate(complete_cases(cases))
    ]
