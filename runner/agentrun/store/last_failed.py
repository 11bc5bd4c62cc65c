"""The cases that did not pass last time, for `agentrun test --lf`: `.agentrun/last-failed.json`.

Rule 1  A case stays in the file until it runs and passes. Cases that are not selected do not change.
Rule 2  A missing file means that no case failed. So does a damaged one, because the next run writes it again.
Rule 3  Nothing is written if nothing changes, so that a suite that passes creates no file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from agentrun.errors import StorageError
from agentrun.spec.project import Project
from agentrun.store.process_lock import lock_project_files

MAX_BYTES = 8 * 1024 * 1024
"""A longer file is not ours."""


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
