"""Accepted journals: one file for each case, `__snapshots__/<spec>/<case>.journal` next to the spec.

Rule 1  A journal is accepted only if the case has a `journal-snapshot` assertion and passes otherwise. A case with
        `xfail` keeps its snapshot.
Rule 2  A snapshot is written completely or not at all.
Rule 3  No credential of the environment is written. A cassette that was recorded elsewhere may contain one.
Rule 4  Unused snapshots are searched only for case files of which all cases are run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from agentrun.store.lock import lock_project_files
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.failure_text import find_credential
from agentrun.testing.suite.verdict import Complaint

SnapshotLookup: TypeAlias = Callable[[LocatedCase, str], str | None]
"""Gets a case and its current journal, and returns the accepted journal, or None if there is none. A function that
accepts the current journal returns that."""

MAX_DIFF_LINES = 200


def snapshot_directory(file: Path) -> Path:
    return file.parent / "__snapshots__" / file.name.removesuffix(CASES_FILE_SUFFIX)


def snapshot_path(located: LocatedCase) -> Path:
    return snapshot_directory(located.file) / f"{located.case.name}.journal"


def snapshot_text(runs: tuple[FinishedRun, ...]) -> str:
    """The canonical journals of the runs, joined."""
    return "\n".join(run.canonical() for run in runs)


def journal_diff(before: str, now: str, before_name: str, now_name: str) -> Iterator[str]:
    """The changes in words, an empty line, and a unified diff."""
    yield from (change.text for change in compare_journals(before, now))
    yield ""
    lines = unified_diff(before.splitlines(), now.splitlines(), before_name, now_name, lineterm="")
    yield from islice(lines, MAX_DIFF_LINES)


def accepted_snapshot(located: LocatedCase, now: str) -> str | None:  # noqa: ARG001  # a `SnapshotLookup`
    """The accepted journal. None: there is none."""
    return read_snapshot(snapshot_path(located))


def read_snapshot(path: Path) -> str | None:
    """None: there is none. Raises `storage.failed`."""
    try:
        if S_ISREG(path.stat().st_mode):  # a pipe would never end
            return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _read_error(path, error.strerror, error.errno) from None
    raise _read_error(path, "it is not a regular file")


def _read_error(path: Path, why: str | None, errno: int | None = None) -> StorageError:
    fields = {"path": "snapshot", "errno": errno}
    return StorageError("storage.failed", f"the snapshot {path.name} cannot be read: {why}", fields=fields)


def compare_snapshot(
    located: LocatedCase, runs: tuple[FinishedRun, ...], compare: SnapshotLookup, *, negated: bool
) -> tuple[list[Complaint], tuple[str, ...]]:
    """Compare the journal of a case with its snapshot: complaints, and the changes in words."""
    now = snapshot_text(runs)
    before = compare(located, now)
    name = "not-journal-snapshot" if negated else "journal-snapshot"
    if before is None:
        hint = "to accept the journal: agentrun test --update"
        return [Complaint(claim=name, message="this case has no snapshot yet", hint=hint)], ()
    if (before == now) is not negated:
        return [], ()
    if negated:
        return [Complaint(claim=name, message="the journal equals the accepted one")], ()
    changes = tuple(change.text for change in compare_journals(before, now))
    detail = "\n".join(journal_diff(before, now, "accepted", "now"))
    hint = "to accept the new journal: agentrun test --update"
    complaint = Complaint(claim=name, message="the journal differs from the accepted one", detail=detail, hint=hint)
    return [complaint], changes


# --- Accept journals -------------------------------------------------------------------------------------------


class WrittenSnapshot(Struct, frozen=True, kw_only=True):
    path: str
    how: Literal["new", "changed"]
    changes: tuple[str, ...] = ()
    """In words."""


class SnapshotUpdate:
    """A `SnapshotLookup` that accepts the current journal of one case. `write` writes it."""

    def __init__(self) -> None:
        self._before: str | None = None
        self._now: str | None = None

    def __call__(self, located: LocatedCase, now: str) -> str | None:
        self._before = accepted_snapshot(located, now)
        if not may_accept_snapshot(located):
            return self._before
        refuse_credentials(located, now)
        self._now = now
        return now

    def write(self, located: LocatedCase) -> WrittenSnapshot | None:
        """Returns None if nothing changed. Raises `storage.failed`."""
        if self._now is None or self._now == self._before:
            return None
        path = snapshot_path(located)
        write_snapshot(located, self._now, self._before)
        if self._before is None:
            return WrittenSnapshot(path=display_path(path), how="new")
        changes = tuple(change.text for change in compare_journals(self._before, self._now))
        return WrittenSnapshot(path=display_path(path), how="changed", changes=changes)


def may_accept_snapshot(located: LocatedCase) -> bool:
    snapshot = located.snapshot
    return snapshot is not None and not snapshot.negated and located.case.xfail is UNSET


def refuse_credentials(located: LocatedCase, now: str) -> None:
    """Raises `storage.failed` if a new journal contains a credential."""
    name = find_credential(now)
    if name is not None and accepted_snapshot(located, now) != now:
        path = display_path(snapshot_path(located))
        message = f"{path} was not written because the journal contains the value of {name}"
        hint = f"record the case again while {name} is set: the cassette then has a placeholder instead"
        raise StorageError("storage.failed", message, hint=hint, fields={"path": "snapshot"})


def find_unused_snapshots(files: Iterable[Sequence[LocatedCase]]) -> list[tuple[LocatedCase, Path]]:
    """The snapshots that no case uses, each with a case of its file. `files`: all cases of each case file."""
    unused: list[tuple[LocatedCase, Path]] = []
    for cases in files:
        used = {snapshot_path(each).name for each in cases if each.snapshot is not None}
        folder = snapshot_directory(cases[0].file)
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        unused += [(cases[0], folder / name) for name in names if name.endswith(".journal") and name not in used]
    return unused


def remove_snapshot(located: LocatedCase, path: Path) -> None:
    """Remove a snapshot, and its folder if it is empty then. Raises `storage.failed`."""
    tree, path = _tree_and_path(located, path)
    tree.remove(path)
    tree.remove_empty_directory(path.parent)


def write_snapshot(located: LocatedCase, text: str, before: str | None) -> None:
    """Replace the snapshot `before`. Raises `storage.failed`, also if another process changed it meanwhile."""
    project = find_project(located.spec)
    tree, path = _tree_and_path(located, snapshot_path(located))
    with lock_project_files(project):
        if read_snapshot(path) not in (before, text):
            message = f"{display_path(path)} was not written because another process changed it meanwhile"
            raise StorageError("storage.failed", message, hint="run the command again", fields={"path": "snapshot"})
        tree.write(path, text.encode())


def check_snapshot_writable(located: LocatedCase) -> None:
    """Raises `storage.failed` if the snapshot of a case cannot be written."""
    tree, path = _tree_and_path(located, snapshot_path(located))
    tree.check_writable(path)


def _tree_and_path(located: LocatedCase, path: Path) -> tuple[ProjectTree, Path]:
    """The tree and path to write to. Links are resolved in the path of the case file, which the user gave, and not
    below it."""
    tree = find_project(located.spec).source_tree("snapshot")
    return tree, Path(os.path.realpath(located.file.parent)) / path.relative_to(located.file.parent)
