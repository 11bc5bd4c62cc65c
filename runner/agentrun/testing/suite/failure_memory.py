"""Remember which cases did not pass, and select them with `agentrun test --lf`: `.agentrun/last-failed.json`.

Rule 1  Each project has its own file. A case stays in it until it runs and passes. Cases that are not selected do not
        change.
Rule 2  A missing file means that no case failed. So does a damaged one, because the next run writes it again.
Rule 3  Nothing is written if nothing changes, so that a suite that passes creates no file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from agentrun.errors import AgentrunError, StorageError
from agentrun.spec.problems import DocumentError
from agentrun.spec.project import Project, find_project
from agentrun.store.process_lock import lock_project_files
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.selection import SelectedCases
from agentrun.testing.suite.verdict import CaseVerdict

MAX_BYTES = 8 * 1024 * 1024
"""A longer file is not ours."""


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


class LastFailed(msgspec.Struct, frozen=True):
    failed: frozenset[str] = frozenset()
    """Ids of cases, with the path from the root of the project: `specs/support.cases.yaml::default`."""


def read_last_failed(project: Project) -> frozenset[str]:
    path = _path(project)
    if not os.path.lexists(path):
        return frozenset()
    try:
        with os.fdopen(project.store_tree.open_file(path, os.O_RDONLY), "rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES), type=LastFailed).failed
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
