"""Staged cassettes: `.agentrun/recorded/<agent>/<case>.yaml`.

If a case fails after it was recorded again, its cassette is not replaced. The new cassette is staged here until it is
accepted or the case is recorded again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from agentrun.canonical_json import text_hash
from agentrun.errors import storage_failed
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path
from agentrun.store.process_lock import hold_lock


def staged_path(project: Project, cassette: Path) -> Path:
    return project.store_directory / "recorded" / cassette.relative_to(project.cassette_directory)


def accept_staged(project: Project, cassette: Path) -> None:
    staged = staged_path(project, cassette)
    with lock_cassette(project, cassette):
        try:
            data = staged.read_bytes()
        except OSError as error:
            message = f"the new cassette {display_path(staged, project.root)} cannot be read: {error.strerror}"
            raise storage_failed("cassette", message, error) from error
        project.cassette_tree.write(cassette, data)
        project.store_tree.remove(staged)


def cassette_lock_path(project: Project, cassette: Path) -> Path:
    return project.store_directory / "locks" / f"{text_hash(cassette.as_posix())[7:23]}.lock"


def lock_cassette(project: Project, cassette: Path) -> AbstractContextManager[None]:
    return hold_lock(project, cassette_lock_path(project, cassette), f"another process is recording {cassette.name}")
