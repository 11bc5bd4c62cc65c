"""Which recordings a command is about, and which case plays each.

Rule 1  A recording belongs to a case by its place alone, <cassettes>/<name of the spec>/<case>.yaml, as in a run, or
        to all that name it. What one of them plays is played.
Rule 2  A document that cannot be read may name anything: what it may name is in doubt, and no orphan for sure.
Rule 3  No link to a folder is followed, and only plain files are looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import click
from msgspec import UNSET, Struct

from agentrun.cli.recorded import cases_of
from agentrun.compiler.cases import ENDING, cases_path, spec_path
from agentrun.compiler.resolve import read_spec
from agentrun.errors import SpecError
from agentrun.files import TEMPORARY
from agentrun.spec.files import shown_path
from agentrun.spec.problems import DocumentError
from agentrun.spec.project import Project, find_project, project_root
from agentrun.spec.v1.cases import Case

_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
_DOCUMENT = re.compile(r"^[\"']?agentrun[\"']?[ ]*:", re.MULTILINE)
_HEAD = 65_536

paths_argument = click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))


class Owner(Struct, frozen=True):
    """The case that plays a recording."""

    spec: Path
    shown: str
    """The spec, as people see it."""
    case: Case

    @property
    def again(self) -> str:
        """The command that plays it, and with `--record` records it."""
        if self.case.turns is UNSET:
            return f"agentrun {quote(self.shown)} --case {quote(self.case.name)}"
        file = cases_path(Path(self.shown)).as_posix()
        return f"agentrun test {quote(f'{file}::{self.case.name}')}"

    @property
    def profile(self) -> str | None:
        return None if self.case.profile is UNSET else self.case.profile


class Filed(Struct, frozen=True):
    """One file on the shelf."""

    path: Path
    project: Project
    owners: tuple[Owner, ...] = ()
    """Usually one; several cases may name one recording, and two specs of one name share all of theirs."""
    doubt: str | None = None
    """A document that could not be read and may name this file."""

    @property
    def shown(self) -> str:
        return shown_path(self.path, self.project.root)

    @property
    def is_in_place(self) -> bool:
        return self.path.is_relative_to(self.project.cassette_directory)

    def players(self, metadata: Mapping[str, Any]) -> tuple[Owner, ...]:
        """The cases that play it, first the one that makes it; of several specs those of the one its metadata names."""
        root, spec = self.project.root, metadata.get("spec")
        named = [one for one in self.owners if one.spec.relative_to(root).as_posix() == spec] or self.owners
        own = [one for one in named if one.spec == named[0].spec]
        return tuple(sorted(own, key=lambda one: one.case.name != one.case.recording))

    @property
    def specs(self) -> list[str]:
        """The specs whose cases play it, as people see them."""
        return list(dict.fromkeys(one.shown for one in self.owners))


class Shelf:
    """The recordings of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.cassette_directory
        self.specs: dict[Path, Path] = {}
        """Spec → the folder of its recordings."""
        self._owners: dict[Path, list[Owner]] = {}
        self._doubts: list[tuple[Path, str]] = []
        for folder, names in _walk(project.root, self.folder):
            for name in names:
                if name.endswith(ENDING):
                    self._take(folder / name)

    def filed(self, path: Path) -> Filed:
        doubt = next((shown for folder, shown in self._doubts if path.is_relative_to(folder)), None)
        return Filed(path, self.project, tuple(self._owners.get(path, ())), doubt)

    def folder_of(self, spec: Path) -> Path:
        """Where the recordings of a spec are."""
        if spec not in self.specs:
            read = read_spec(spec)
            known = read.spec or read.rest
            if known is None:
                raise SpecError(read.problems)
            self.specs[spec] = self.folder / known.agent.name
        return self.specs[spec]

    def _take(self, cases: Path) -> None:
        spec = next((each for each in (spec_path(cases), spec_path(cases).with_suffix(".yml")) if each.is_file()), None)
        if spec is None or project_root(spec) != self.project.root:
            return
        folder = self.folder
        shown = shown_path(spec, self.project.root)
        try:
            folder = self.folder_of(spec)
            found = cases_of(spec)
        except SpecError:
            named = shown if folder == self.folder else shown_path(cases, self.project.root)
            self._doubts.append((folder, named))
            return
        for case in found:
            self._owners.setdefault(folder / f"{case.recording}.yaml", []).append(Owner(spec, shown, case))


def shelved(paths: Sequence[Path], *, left_over: bool = False) -> list[Filed]:
    """The recordings that are meant; without a path those of the project here. `left_over`: what writes left instead.

    Raises `SpecError` for a project or a spec that is named and cannot be read.
    """
    shelves: dict[Path, Shelf] = {}
    found: dict[Path, Filed] = {}
    for path in paths or (Path.cwd(),):
        real = Path(os.path.realpath(path)) if path.is_dir() else Path(os.path.realpath(path.parent)) / path.name
        root = project_root(real / "x" if path.is_dir() else real)
        if root not in shelves:
            shelves[root] = Shelf(_project(path / "x" if path.is_dir() else path))
        shelf = shelves[root]
        for each in _meant(shelf, real) if paths else [shelf.folder]:
            for file in _files(each, left_over=left_over):
                if file.is_relative_to(shelf.folder) or not _is_document(file):
                    found.setdefault(file, shelf.filed(file))
    return list(found.values())


def _project(path: Path) -> Project:
    try:
        return find_project(path)
    except DocumentError as error:
        raise SpecError(error.problems) from None


def _meant(shelf: Shelf, path: Path) -> Iterator[Path]:
    """The files and folders of recordings that a path means."""
    if path.is_relative_to(shelf.folder):
        yield path
    elif path.is_dir():
        specs = sorted(spec for spec in shelf.specs if spec.is_relative_to(path))
        if shelf.folder.is_relative_to(path) and shelf.folder.is_dir():
            yield shelf.folder
        elif specs:
            yield from (shelf.folder_of(spec) for spec in specs)
        else:
            yield path
    elif path.name.endswith(ENDING):
        yield shelf.folder_of(spec_path(path))
    else:
        yield shelf.folder_of(path) if _is_document(path) else path


def _files(path: Path, *, left_over: bool) -> Iterator[Path]:
    if not path.is_dir():
        if left_over:
            yield from (each for each in sorted(path.parent.glob(".*.new")) if _left_over(each) == path.name)
        elif path.is_file():
            yield path
        return
    for folder, names in _walk(path):
        for name in names:
            file = folder / name
            fits = _left_over(file) if left_over else name.endswith(".yaml") and not name.startswith(".")
            if fits and file.is_file():
                yield file


def _left_over(path: Path) -> str | None:
    """The cassette that a process was writing when it was killed. None: the file is something else."""
    found = TEMPORARY.fullmatch(path.name)
    return found[1] if found and found[1].endswith(".yaml") and path.is_file() else None


def _walk(top: Path, but: Path | None = None) -> Iterator[tuple[Path, list[str]]]:
    for folder, inner, names in os.walk(top):
        inner[:] = sorted(
            each for each in inner if not each.startswith(".") and each not in _SKIPPED and Path(folder, each) != but
        )
        yield Path(folder), sorted(names)


def _is_document(path: Path) -> bool:
    """Whether a file is a spec or another document of ours: recordings have no key `agentrun` at their top."""
    if not path.is_file():  # a pipe would never end
        return False
    try:
        with path.open("rb") as file:
            return _DOCUMENT.search(file.read(_HEAD).decode("utf-8", "replace")) is not None
    except OSError:
        return False
