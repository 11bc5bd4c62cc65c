"""Journals as they were accepted: one file for each case, `__snapshots__/<spec>/<case>.journal` beside the spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct

from agentrun.compiler.cases import CASES_FILE_SUFFIX
from agentrun.engine.run import FinishedRun
from agentrun.errors import StorageError
from agentrun.files import ProjectTree
from agentrun.report.journal_diff import compare_journals
from agentrun.spec.project import find_project
from agentrun.spec.source_files import display_path
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.store.lock import lock_project_files
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.failure_text import find_credential
from agentrun.testing.suite.verdict import Complaint

SnapshotLookup: TypeAlias = Callable[[LocatedCase, str], str | None]
"""Given the journal of a case as it is now: what was accepted, or None if nothing was. Whoever accepts what is new
writes it and gives it back."""

MAX_DIFF_LINES = 200
"""Lines of a difference that are shown."""


def snapshot_directory(file: Path) -> Path:
    """Where the snapshots of a file of cases are."""
    return file.parent / "__snapshots__" / file.name.removesuffix(CASES_FILE_SUFFIX)


def snapshot_path(found: LocatedCase) -> Path:
    return snapshot_directory(found.file) / f"{found.case.name}.journal"


def snapshot_text(runs: tuple[FinishedRun, ...]) -> str:
    """The canonical journal of a run; of a conversation, those of its runs one after the other."""
    return "\n".join(run.canonical() for run in runs)


def accepted_snapshot(found: LocatedCase, now: str) -> str | None:  # noqa: ARG001  # whatever it is
    """What was accepted. None: nothing yet."""
    return read_snapshot(snapshot_path(found))


def read_snapshot(path: Path) -> str | None:
    """None: there is none. Raises `storage.failed`."""
    try:
        if S_ISREG(path.stat().st_mode):  # a pipe would never end
            return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _read_error(path, error.strerror, error.errno) from None
    raise _read_error(path, "it is not a file")


def _read_error(path: Path, why: str | None, errno: int | None = None) -> StorageError:
    fields = {"path": "snapshot", "errno": errno}
    return StorageError("storage.failed", f"the snapshot {path.name} cannot be read: {why}", fields=fields)


def compare_snapshot(
    found: LocatedCase, runs: tuple[FinishedRun, ...], compare: SnapshotLookup, *, negated: bool
) -> tuple[list[Complaint], tuple[str, ...]]:
    """What is wrong with the journal of a case, and in words what changed in it."""
    now = snapshot_text(runs)
    before = compare(found, now)
    name = "not-journal-snapshot" if negated else "journal-snapshot"
    if before is None:
        hint = "look at it, and accept it: agentrun test --update"
        return [Complaint(claim=name, message="there is no snapshot of this case yet", hint=hint)], ()
    if (before == now) is not negated:
        return [], ()
    if negated:
        return [Complaint(claim=name, message="the journal is the one that was accepted")], ()
    changes = tuple(change.text for change in compare_journals(before, now))
    lines = unified_diff(before.splitlines(), now.splitlines(), "accepted", "now", lineterm="")
    shown = list(islice(lines, MAX_DIFF_LINES))
    detail = "\n".join([*changes, "", *shown])
    hint = "if this is what you want: agentrun test --update"
    return [
        Complaint(claim=name, message="the journal is not the one that was accepted", detail=detail, hint=hint)
    ], changes


# --- accepting journals: writing snapshots, and removing those that no case claims ----------------------------


class WrittenSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot that was written."""

    path: str
    how: Literal["new", "changed"]
    changes: tuple[str, ...] = ()
    """In words."""


class SnapshotUpdate:
    """What is now counts as accepted, for one case; `write` makes it so."""

    def __init__(self) -> None:
        self._before: str | None = None
        self._now: str | None = None

    def __call__(self, found: LocatedCase, now: str) -> str | None:
        self._before = accepted_snapshot(found, now)
        if not may_accept_snapshot(found):
            return self._before
        refuse_credentials(found, now)
        self._now = now
        return now

    def write(self, found: LocatedCase) -> WrittenSnapshot | None:
        """None: it was accepted before. Raises `storage.failed`."""
        if self._now is None or self._now == self._before:
            return None
        path = snapshot_path(found)
        write_snapshot(found, self._now, self._before)
        if self._before is None:
            return WrittenSnapshot(path=display_path(path), how="new")
        changes = tuple(change.text for change in compare_journals(self._before, self._now))
        return WrittenSnapshot(path=display_path(path), how="changed", changes=changes)


def may_accept_snapshot(found: LocatedCase) -> bool:
    claims = _snapshot_assertions(found)
    return bool(claims) and not claims[0].negated and found.case.xfail is UNSET


def refuse_credentials(found: LocatedCase, now: str) -> None:
    """Raises `storage.failed` for a new journal that must not be kept."""
    name = find_credential(now)
    if name is not None and accepted_snapshot(found, now) != now:
        message = f"the value of {name} stands in the journal: {display_path(snapshot_path(found))} is not written"
        hint = f"record the case again where {name} is set: recordings hold a placeholder in its place"
        raise StorageError("storage.failed", message, hint=hint, fields={"path": "snapshot"})


def _snapshot_assertions(found: LocatedCase) -> list[JournalSnapshot]:
    return [claim for claim in found.case.assertions if isinstance(claim, JournalSnapshot)]


def find_unused_snapshots(files: Iterable[Sequence[LocatedCase]]) -> list[tuple[LocatedCase, Path]]:
    """Snapshots that no case claims, of files of cases that are given whole, each with a case of its file."""
    found: list[tuple[LocatedCase, Path]] = []
    for cases in files:
        claimed = {
            snapshot_path(each).name
            for each in cases
            if any(isinstance(c, JournalSnapshot) for c in each.case.assertions)
        }
        folder = snapshot_directory(cases[0].file)
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [(cases[0], folder / name) for name in names if name.endswith(".journal") and name not in claimed]
    return found


def remove_snapshot(found: LocatedCase, path: Path) -> None:
    """Remove a snapshot, and its directory if it was the last. Raises `storage.failed`."""
    tree, path = _tree_and_path(found, path)
    tree.remove(path)
    tree.remove_empty_directory(path.parent)


def write_snapshot(found: LocatedCase, text: str, before: str | None) -> None:
    """Accept a journal in place of `before`. Raises `storage.failed`, also if another process was faster."""
    project = find_project(found.spec)
    tree, path = _tree_and_path(found, snapshot_path(found))
    with lock_project_files(project):
        if read_snapshot(path) not in (before, text):
            message = f"{display_path(path)} was changed by another process meanwhile, and is left as it is"
            raise StorageError("storage.failed", message, hint="run it again", fields={"path": "snapshot"})
        tree.write(path, text.encode())


def check_snapshot_writable(found: LocatedCase) -> None:
    """Find out whether the snapshot of a case can be written. Raises `storage.failed`."""
    tree, path = _tree_and_path(found, snapshot_path(found))
    tree.check_writable(path)


def _tree_and_path(found: LocatedCase, path: Path) -> tuple[ProjectTree, Path]:
    """Where a snapshot is written. The operator typed the path of the cases file; the rest comes from the project."""
    tree = find_project(found.spec).source_tree("snapshot")
    return tree, Path(os.path.realpath(found.file.parent)) / path.relative_to(found.file.parent)
