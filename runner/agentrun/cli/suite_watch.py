"""`agentrun test --watch`: run the cases, then those that a change touches, until Ctrl-C.

Rule 1  Files are polled. A change counts when nothing else has changed for one interval, because editors write in
        several steps.
Rule 2  A change during a run counts afterwards.
Rule 3  If standard output is a pipe and its reader closes it, there is no one to watch for, and the command ends.
Rule 4  A case depends on everything that is read to compile its agent, on its cassette and its snapshots, and on the
        modules of its Python assertions.
Rule 5  A change of a file of cases touches the cases in it that are new or different, and no others.
Rule 6  A file is unchanged as long as its time, size and inode are. A folder is unchanged as long as it has the same
        files of cases and snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from time import sleep
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from agentrun.cli.console import OutputPipe, json_line, safe_text, write_line
from agentrun.cli.suite_result import SuiteResult
from agentrun.compiler.cases import CASES_FILE_SUFFIX
from agentrun.compiler.lock_file import lock_path
from agentrun.compiler.python_functions import FunctionRefused, module_source
from agentrun.errors import AgentrunError, code_of
from agentrun.spec.safe_text import plural
from agentrun.spec.source_files import collect_reads, display_path
from agentrun.spec.v1.assertions import PythonAssertion
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CompiledAgent, CompiledAgents
from agentrun.testing.suite.selection import SelectedCases
from agentrun.testing.suite.snapshots import snapshot_directory, snapshot_path

WATCH_INTERVAL = 0.25
"""Seconds between two looks at the files."""
MAX_SETTLE_POLLS = 20
"""A file that never stops changing delays a run for at most so many intervals."""
MAX_NAMED_FILES = 5


def watch_suite(
    select_suite: Callable[[], SelectedCases],
    run: Callable[[SelectedCases], SuiteResult],
    *,
    as_json: bool,
    quiet: bool,
    pause: Callable[[float], None] = sleep,
) -> int:
    """Return the exit code: that of an interrupt, or that of the last run if the reader of the output is gone."""
    output = OutputPipe()
    watched = read_watched_cases(select_suite)
    states = FileStates(watched.paths)
    try:
        result = run(watched.found)
        while not result.was_interrupted:
            if not as_json and not quiet:
                write_line(f"watching {plural(len(watched.paths), 'file')}; press Ctrl-C to stop", err=True)
            changed = _wait_for_changes(states, output, pause)
            if changed is None:
                return result.exit_code
            before, watched = watched, _read_again(select_suite, watched)
            states.watch(watched.paths)
            touched = watched.touched(before, changed)
            _print_change(watched.changed_names(before, changed), touched, as_json=as_json)
            if touched.cases or touched.unreadable:
                result = run(touched)
    except KeyboardInterrupt:
        pass
    return code_of("cancelled").exit


def _wait_for_changes(states: FileStates, output: OutputPipe, pause: Callable[[float], None]) -> set[Path] | None:
    """The files that changed. None: the reader of the output is gone."""
    while not (changed := states.find_changed()):
        if not output.has_reader:
            return None
        pause(WATCH_INTERVAL)
    for _ in range(MAX_SETTLE_POLLS):
        pause(WATCH_INTERVAL)
        more = states.find_changed()
        if not more:
            break
        changed |= more
    return changed


def _read_again(select_suite: Callable[[], SelectedCases], before: WatchedCases) -> WatchedCases:
    """The cases as they are now. If none are left, this is reported, and the former ones are watched."""
    try:
        return read_watched_cases(select_suite)
    except AgentrunError as error:
        write_line(f"{error.code}: {safe_text(error.message)}", err=True)
    except click.UsageError as error:
        write_line(f"Error: {safe_text(error.format_message())}", err=True)
    return before


def _print_change(files: list[Path], touched: SelectedCases, *, as_json: bool) -> None:
    names = [display_path(path) for path in files]
    if as_json:
        write_line(json_line({"watch": {"changed": names, "cases": [each.id for each in touched.cases]}}))
    elif names:
        more = len(names) - MAX_NAMED_FILES
        listed = ", ".join([*names[:MAX_NAMED_FILES], *([f"{more} more"] if more > 0 else [])])
        count = plural(len(touched.cases), "case") if touched.cases or touched.unreadable else "no case to run"
        write_line(f"\n{safe_text(listed)} changed: {count}")


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
