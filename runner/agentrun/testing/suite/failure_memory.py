"""Remember which cases did not pass, and select them next time. Each project has its own memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from agentrun.errors import AgentrunError
from agentrun.spec.problems import DocumentError
from agentrun.spec.project import Project, find_project
from agentrun.store.last_failed import read_last_failed, update_last_failed
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.selection import SelectedCases
from agentrun.testing.suite.verdict import CaseVerdict


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
