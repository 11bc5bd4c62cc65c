"""Accepting journals: writing snapshots, and removing those that no case claims.

Rule 1  Only the journal of a case that claims one and holds otherwise is accepted; one that is known to fail keeps its
        snapshot.
Rule 2  A snapshot is written whole or not at all.
Rule 3  No credential of the environment gets into one: a recording may hold it that was made elsewhere.
Rule 4  What no case claims is looked for only among the snapshots of a file of which all cases are run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import UNSET, Struct

from agentrun.errors import StorageError
from agentrun.files import ProjectTree
from agentrun.report.changes import changes_between
from agentrun.spec.files import shown_path
from agentrun.spec.project import find_project
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.store.lock import files_locked
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.snapshots import accepted, folder_of, path_of, read_snapshot
from agentrun.testing.suite.told import credential_in


class Written(Struct, frozen=True, kw_only=True):
    """A snapshot that was written."""

    path: str
    how: Literal["new", "changed"]
    changes: tuple[str, ...] = ()
    """In words."""


class Accepting:
    """What is now counts as accepted, for one case; `write` makes it so."""

    def __init__(self) -> None:
        self._before: str | None = None
        self._now: str | None = None

    def __call__(self, found: Found, now: str) -> str | None:
        self._before = accepted(found, now)
        if not may_accept(found):
            return self._before
        refuse_credentials(found, now)
        self._now = now
        return now

    def write(self, found: Found) -> Written | None:
        """None: it was accepted before. Raises `storage.failed`."""
        if self._now is None or self._now == self._before:
            return None
        path = path_of(found)
        write_snapshot(found, self._now, self._before)
        if self._before is None:
            return Written(path=shown_path(path), how="new")
        changes = tuple(change.text for change in changes_between(self._before, self._now))
        return Written(path=shown_path(path), how="changed", changes=changes)


def may_accept(found: Found) -> bool:
    claims = _claims(found)
    return bool(claims) and not claims[0].negated and found.case.xfail is UNSET


def refuse_credentials(found: Found, now: str) -> None:
    """Raises `storage.failed` for a new journal that must not be kept."""
    name = credential_in(now)
    if name is not None and accepted(found, now) != now:
        message = f"the value of {name} stands in the journal: {shown_path(path_of(found))} is not written"
        hint = f"record the case again where {name} is set: recordings hold a placeholder in its place"
        raise StorageError("storage.failed", message, hint=hint, fields={"path": "snapshot"})


def _claims(found: Found) -> list[JournalSnapshot]:
    return [claim for claim in found.case.claims if isinstance(claim, JournalSnapshot)]


def unclaimed(files: Iterable[Sequence[Found]]) -> list[tuple[Found, Path]]:
    """Snapshots that no case claims, of files of cases that are given whole, each with a case of its file."""
    found: list[tuple[Found, Path]] = []
    for cases in files:
        claimed = {
            path_of(each).name for each in cases if any(isinstance(c, JournalSnapshot) for c in each.case.claims)
        }
        folder = folder_of(cases[0].file)
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [(cases[0], folder / name) for name in names if name.endswith(".journal") and name not in claimed]
    return found


def remove(found: Found, path: Path) -> None:
    """Remove a snapshot, and its directory if it was the last. Raises `storage.failed`."""
    tree, path = _place(found, path)
    tree.remove(path)
    tree.remove_empty_directory(path.parent)


def write_snapshot(found: Found, text: str, before: str | None) -> None:
    """Accept a journal in place of `before`. Raises `storage.failed`, also if another process was faster."""
    project = find_project(found.spec)
    tree, path = _place(found, path_of(found))
    with files_locked(project):
        if read_snapshot(path) not in (before, text):
            message = f"{shown_path(path)} was changed by another process meanwhile, and is left as it is"
            raise StorageError("storage.failed", message, hint="run it again", fields={"path": "snapshot"})
        tree.write(path, text.encode())


def check_snapshot(found: Found) -> None:
    """Find out whether the snapshot of a case can be written. Raises `storage.failed`."""
    tree, path = _place(found, path_of(found))
    tree.check(path)


def _place(found: Found, path: Path) -> tuple[ProjectTree, Path]:
    """Where a snapshot is written. The operator typed the path of the cases file; the rest comes from the project."""
    tree = find_project(found.spec).source_tree("snapshot")
    return tree, Path(os.path.realpath(found.file.parent)) / path.relative_to(found.file.parent)
