"""Find the cassettes that a command works on, the cases that play each of them, and the results of replaying them.

Rule 1  Only the path of a cassette decides which cases play it: <cassettes>/<name of the spec>/<case>.yaml, or the
        cassette that a case names. An interaction that one of these cases plays is in use.
Rule 2  A document that cannot be read may name any cassette in its folder, so none of those is certainly an orphan.
Rule 3  Links to folders are not followed, and only regular files are read.
Rule 4  The engine is above this package, so callers pass in the replays: `testing/suite/replay.py` implements them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from shlex import quote
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET, Struct

from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.miss_context import former_sections
from agentrun.compiler.cases import CASES_FILE_SUFFIX, cases_for_spec, cases_path, spec_path
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.spec_reader import read_spec
from agentrun.errors import AgentrunError, CassetteError, SpecError, StorageError
from agentrun.files import TEMPORARY_NAME, ProjectTree
from agentrun.spec.problems import DocumentError
from agentrun.spec.project import Project, find_project, project_root
from agentrun.spec.safe_text import join_words
from agentrun.spec.source_files import display_path, walk_folders
from agentrun.spec.v1.cases import Case

_DOCUMENT = re.compile(r"^[\"']?agentrun[\"']?[ ]*:", re.MULTILINE)
_HEAD = 65_536


class Owner(Struct, frozen=True):
    """A case that plays a cassette."""

    spec: Path
    spec_label: str
    case: Case

    @property
    def command(self) -> str:
        """The command that replays the case. With `--record` it records the case."""
        if self.case.turns is UNSET:
            return f"agentrun {quote(self.spec_label)} --case {quote(self.case.name)}"
        file = cases_path(Path(self.spec_label)).as_posix()
        return f"agentrun test {quote(f'{file}::{self.case.name}')}"

    @property
    def profile(self) -> str | None:
        return None if self.case.profile is UNSET else self.case.profile


class CassetteFile(Struct, frozen=True):
    """A selected file, which may turn out not to be a cassette."""

    path: Path
    project: Project
    owners: tuple[Owner, ...] = ()
    """Usually one. Several cases may name one cassette, and specs with the same name share theirs."""
    unreadable: str | None = None
    """A document that could not be read and may name this file."""

    @property
    def label(self) -> str:
        return display_path(self.path, self.project.root)

    @property
    def is_in_place(self) -> bool:
        return self.path.is_relative_to(self.project.cassette_directory)

    @property
    def tree(self) -> ProjectTree:
        """Writes the file. A path on the command line may be outside the folder of cassettes."""
        return self.project.cassette_tree if self.is_in_place else self.project.source_tree("cassette")

    @property
    def specs(self) -> list[str]:
        """The specs whose cases play the file, as shown in messages."""
        return list(dict.fromkeys(one.spec_label for one in self.owners))


class LoadedCassette(Struct, frozen=True):
    file: CassetteFile
    cassette: Cassette | None = None
    error: AgentrunError | None = None

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The cases that play it, the one that records it first.

        If several specs share the cassette, only the cases of the spec that the metadata names count, or of the first.
        """
        root = self.file.project.root
        spec = None if self.cassette is None else self.cassette.metadata.get("spec")
        named = [one for one in self.file.owners if one.spec.relative_to(root).as_posix() == spec] or self.file.owners
        own = [one for one in named if one.spec == named[0].spec]
        return tuple(sorted(own, key=lambda one: one.case.name != one.case.cassette_name))

    @property
    def is_foreign(self) -> bool:
        """Whether another program recorded it: agentrun writes the fingerprint of the package."""
        return self.cassette is not None and not isinstance(self.cassette.metadata.get("fingerprint"), str)


def load_selected(file: CassetteFile) -> LoadedCassette:
    """Read a selected file. Errors are returned, not raised, so that the other files are read too."""
    try:
        return LoadedCassette(file, load_cassette(file.path, file.project.cassette_limit))
    except (CassetteError, StorageError) as error:
        return LoadedCassette(file, error=error)


class ProjectCassettes:
    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.cassette_directory
        self.specs: dict[Path, Path] = {}
        self._owners: dict[Path, list[Owner]] = {}
        self._unreadable: list[tuple[Path, str]] = []
        for folder, names in walk_folders(project.root, lambda folder: folder == self.folder):
            for name in names:
                if name.endswith(CASES_FILE_SUFFIX):
                    self._add_cases(folder / name)

    def file(self, path: Path) -> CassetteFile:
        unreadable = next((label for folder, label in self._unreadable if path.is_relative_to(folder)), None)
        return CassetteFile(path, self.project, tuple(self._owners.get(path, ())), unreadable)

    def folder_of(self, spec: Path) -> Path:
        """The folder of a spec's cassettes. Raises `SpecError`."""
        if spec not in self.specs:
            read = read_spec(spec)
            known = read.spec or read.partial_spec
            if known is None:
                raise SpecError(read.problems)
            self.specs[spec] = self.folder / known.agent.name
        return self.specs[spec]

    def _add_cases(self, cases: Path) -> None:
        spec = next((each for each in (spec_path(cases), spec_path(cases).with_suffix(".yml")) if each.is_file()), None)
        if spec is None or project_root(spec) != self.project.root:
            return
        folder = self.folder
        label = display_path(spec, self.project.root)
        try:
            folder = self.folder_of(spec)
            spec_cases = cases_for_spec(spec)
        except SpecError:
            document = label if folder == self.folder else display_path(cases, self.project.root)
            self._unreadable.append((folder, document))
            return
        for case in spec_cases:
            self._owners.setdefault(folder / f"{case.cassette_name}.yaml", []).append(Owner(spec, label, case))


def select_cassettes(paths: Sequence[Path], *, leftovers: bool = False) -> list[CassetteFile]:
    """Find the cassettes for the given paths, or else all of the project in the working directory.

    `leftovers`: find the files of interrupted writes instead. Raises `SpecError` if the project or a spec is invalid.
    """
    projects: dict[Path, ProjectCassettes] = {}
    selected: dict[Path, CassetteFile] = {}
    for path in paths or (Path.cwd(),):
        real = Path(os.path.realpath(path)) if path.is_dir() else Path(os.path.realpath(path.parent)) / path.name
        root = project_root(real / "x" if path.is_dir() else real)
        if root not in projects:
            projects[root] = ProjectCassettes(_project(path / "x" if path.is_dir() else path))
        project = projects[root]
        for each in _places(project, real) if paths else [project.folder]:
            for file in _files(each, leftovers=leftovers):
                if file.is_relative_to(project.folder) or not _is_document(file):
                    selected.setdefault(file, project.file(file))
    return list(selected.values())


def _project(path: Path) -> Project:
    try:
        return find_project(path)
    except DocumentError as error:
        raise SpecError(error.problems) from None


def _places(project: ProjectCassettes, path: Path) -> Iterator[Path]:
    if path.is_relative_to(project.folder):
        yield path
    elif path.is_dir():
        specs = sorted(spec for spec in project.specs if spec.is_relative_to(path))
        if project.folder.is_relative_to(path) and project.folder.is_dir():
            yield project.folder
        elif specs:
            yield from (project.folder_of(spec) for spec in specs)
        else:
            yield path
    elif path.name.endswith(CASES_FILE_SUFFIX):
        yield project.folder_of(spec_path(path))
    else:
        yield project.folder_of(path) if _is_document(path) else path


def _files(path: Path, *, leftovers: bool) -> Iterator[Path]:
    if not path.is_dir():
        if leftovers:
            yield from (each for each in sorted(path.parent.glob(".*.new")) if _leftover_of(each) == path.name)
        elif path.is_file():
            yield path
        return
    for folder, names in walk_folders(path):
        for name in names:
            file = folder / name
            is_wanted = _leftover_of(file) if leftovers else name.endswith(".yaml") and not name.startswith(".")
            if is_wanted and file.is_file():
                yield file


def _leftover_of(path: Path) -> str | None:
    """The cassette that a process was writing when it was killed. None: it is another file."""
    match = TEMPORARY_NAME.fullmatch(path.name)
    return match[1] if match and match[1].endswith(".yaml") and path.is_file() else None


def _is_document(path: Path) -> bool:
    """Whether a file is a spec or another agentrun document, which has a top-level key `agentrun`."""
    if not path.is_file():  # reading a pipe would never end
        return False
    try:
        with path.open("rb") as file:
            return _DOCUMENT.search(file.read(_HEAD).decode("utf-8", "replace")) is not None
    except OSError:
        return False


class ReplayResult(Struct, frozen=True):
    code: str | None = None
    """Null: the run completed."""
    message: str | None = None
    fields: dict[str, Any] = {}
    unused: tuple[int, ...] = ()
    answer: str | None = None

    @property
    def is_miss(self) -> bool:
        return self.code in ("cassette.miss", "not_started")


CassetteLock: TypeAlias = Callable[[Project, Path], AbstractContextManager[None]]


class CaseReplays(Protocol):
    """Compiles specs and replays cases in memory, without the network."""

    def package(self, owner: Owner) -> PackageFile:
        """The compiled spec of a case under its profile. Raises `SpecError`, `input.rejected`."""

    def replay(self, owner: Owner, cassette: Cassette) -> ReplayResult:
        """Replay a case against a cassette. Never raises: errors are in the result."""


def find_unused(results: Iterable[ReplayResult]) -> tuple[int, ...]:
    unused = [set(each.unused) for each in results]
    return tuple(sorted(set.intersection(*unused))) if unused else ()


def describe_change(replays: CaseReplays, owner: Owner, metadata: Mapping[str, Any]) -> str | None:
    """Describe which sections of the package changed since the recording. None: no section changed."""
    try:
        file = replays.package(owner)
    except AgentrunError as error:
        return f"{owner.spec_label} does not compile ({error.message})"
    if metadata.get("fingerprint") == file.fingerprint:
        return None
    before = metadata.get("sections")
    if not isinstance(before, dict):
        return f"the package of {owner.spec_label} changed since the recording"
    former = former_sections(file.agent)
    names = sorted(name for name, now in file.sections.items() if before.get(name) not in (now, former[name]))
    if not names and before != file.sections:
        return None
    return f"{join_words(names) or 'the package'} of {owner.spec_label} changed since the recording"
