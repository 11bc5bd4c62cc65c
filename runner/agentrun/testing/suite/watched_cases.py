"""The files that cases depend on, and which cases a change touches.

Rule 1  A case depends on everything that is read to compile its agent, on its cassette and its snapshots, and on the
        modules of its Python assertions.
Rule 2  A change of a file of cases touches the cases in it that are new or different, and no others.
Rule 3  A file is unchanged as long as its time, size and inode are. A folder is unchanged as long as it has the same
        files of cases and snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentrun.compiler.cases import CASES_FILE_SUFFIX
from agentrun.compiler.lock_file import lock_path
from agentrun.compiler.python_functions import FunctionRefused, module_source
from agentrun.errors import AgentrunError
from agentrun.spec.source_files import collect_reads
from agentrun.spec.v1.assertions import PythonAssertion
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CompiledAgent, CompiledAgents
from agentrun.testing.suite.selection import SelectedCases
from agentrun.testing.suite.snapshots import snapshot_directory, snapshot_path


class WatchedCases(Struct, frozen=True, kw_only=True):
    found: SelectedCases
    files: dict[str, frozenset[Path]]
    """The files that each case depends on, by its id."""
    others: frozenset[Path]
    """Files that were read to select the cases, and the folders of the files of cases and of snapshots."""

    @property
    def paths(self) -> frozenset[Path]:
        return self.others.union(*self.files.values())

    def touched(self, before: WatchedCases, changed: Set[Path]) -> SelectedCases:
        """The cases that a change of these files touches. `before`: as it was before the change."""
        old = {located.id: located.case for located in before.found.cases}
        ids = {
            located.id
            for located in self.found.cases
            if old.get(located.id) != located.case
            or before.files[located.id] != self.files[located.id]
            or not changed.isdisjoint(self.files[located.id])
        }
        unreadable = tuple(
            verdict
            for verdict in self.found.unreadable
            if verdict not in before.found.unreadable or Path(os.path.abspath(verdict.file)) in changed
        )
        return replace(self.found.keep(ids), unreadable=unreadable)

    def changed_names(self, before: WatchedCases, changed: Set[Path]) -> list[Path]:
        """The files that changed. Instead of a folder, the new files in it."""
        new = {path for path in self.paths - before.paths if path.parent in changed and path.is_file()}
        return sorted({path for path in changed if not path.is_dir()} | new)


def read_watched_cases(select: Callable[[], SelectedCases]) -> WatchedCases:
    """Select the cases and find their files. Raises what `select` raises."""
    with collect_reads() as reads:
        found = select()
    agents = CompiledAgents()
    compiled: dict[tuple[Path, str | None], tuple[CompiledAgent | None, frozenset[Path]]] = {}
    files: dict[str, frozenset[Path]] = {}
    for located in found.cases:
        key = (located.spec, located.profile)
        if key not in compiled:
            compiled[key] = _compile(located, agents)
        agent, own = compiled[key]
        files[located.id] = own if agent is None else own.union(_case_files(located, agent))
    folders = (folder for each in found.cases for folder in (each.file.parent, snapshot_directory(each.file)))
    unreadable = (Path(os.path.abspath(verdict.file)) for verdict in found.unreadable)
    return WatchedCases(found=found, files=files, others=frozenset(reads).union(folders, unreadable))


def _compile(located: LocatedCase, agents: CompiledAgents) -> tuple[CompiledAgent | None, frozenset[Path]]:
    """The agent of a case, if it compiles, and the files that were read for it."""
    agent = None
    with collect_reads() as reads, suppress(AgentrunError):
        agent = agents.for_case(located)
    return agent, frozenset(reads | {lock_path(located.spec)})


def _case_files(located: LocatedCase, agent: CompiledAgent) -> Iterator[Path]:
    yield agent.cassette_path(located)
    yield snapshot_path(located)
    folder, start = snapshot_directory(located.file), f"{located.case.name}."
    with suppress(OSError):
        yield from (
            folder / name for name in os.listdir(folder) if name.startswith(start) and name.endswith(".journal")
        )
    every = [*located.assertions, *(each for turn in located.turn_assertions for each in turn)]
    functions = {each.value for each, _ in every if isinstance(each, PythonAssertion)}
    with collect_reads() as reads:
        for function in functions:
            with suppress(FunctionRefused):
                module_source(agent.spec.project, function.partition(":")[0])
    yield from reads


class FileStates:
    """Compares files with what they were before, without reading them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._states: dict[Path, Any] = {}
        self.watch(paths)

    def watch(self, paths: Iterable[Path]) -> None:
        """Watch these files and no others. What is already known of a file is kept."""
        self._states = {path: self._states[path] if path in self._states else _state(path) for path in paths}

    def find_changed(self) -> set[Path]:
        """The files that changed since the last time."""
        now = {path: _state(path) for path in self._states}
        changed = {path for path, state in now.items() if state != self._states[path]}
        self._states = now
        return changed


def _state(path: Path) -> Any:
    """None: the file is missing."""
    try:
        status = os.stat(path)
        if not S_ISDIR(status.st_mode):
            return status.st_mtime_ns, status.st_size, status.st_ino
        return sorted(name for name in os.listdir(path) if name.endswith((CASES_FILE_SUFFIX, ".journal")))
    except OSError:
        return None
