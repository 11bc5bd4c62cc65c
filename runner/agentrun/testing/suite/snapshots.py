"""Journals as they were accepted: one file for each case, `__snapshots__/<spec>/<case>.journal` beside the spec."""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import TypeAlias

from agentrun.compiler.cases import ENDING
from agentrun.engine.run import FinishedRun
from agentrun.errors import StorageError
from agentrun.report.changes import changes_between
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.verdict import Complaint

Compare: TypeAlias = Callable[[Found, str], str | None]
"""Given the journal of a case as it is now: what was accepted, or None if nothing was. Whoever accepts what is new
writes it and gives it back."""

MOST_LINES = 200
"""Lines of a difference that are shown."""


def folder_of(file: Path) -> Path:
    """Where the snapshots of a file of cases are."""
    return file.parent / "__snapshots__" / file.name.removesuffix(ENDING)


def path_of(found: Found) -> Path:
    return folder_of(found.file) / f"{found.case.name}.journal"


def snapshot_of(runs: tuple[FinishedRun, ...]) -> str:
    """The canonical journal of a run; of a conversation, those of its runs one after the other."""
    return "\n".join(run.canonical() for run in runs)


def accepted(found: Found, now: str) -> str | None:  # noqa: ARG001  # whatever it is
    """What was accepted. None: nothing yet."""
    return read_snapshot(path_of(found))


def read_snapshot(path: Path) -> str | None:
    """None: there is none. Raises `storage.failed`."""
    try:
        if S_ISREG(path.stat().st_mode):  # a pipe would never end
            return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror, error.errno) from None
    raise _unreadable(path, "it is not a file")


def _unreadable(path: Path, why: str | None, errno: int | None = None) -> StorageError:
    fields = {"path": "snapshot", "errno": errno}
    return StorageError("storage.failed", f"the snapshot {path.name} cannot be read: {why}", fields=fields)


def compared(
    found: Found, runs: tuple[FinishedRun, ...], compare: Compare, *, negated: bool
) -> tuple[list[Complaint], tuple[str, ...]]:
    """What is wrong with the journal of a case, and in words what changed in it."""
    now = snapshot_of(runs)
    before = compare(found, now)
    name = "not-journal-snapshot" if negated else "journal-snapshot"
    if before is None:
        hint = "look at it, and accept it: agentrun test --update"
        return [Complaint(claim=name, message="there is no snapshot of this case yet", hint=hint)], ()
    if (before == now) is not negated:
        return [], ()
    if negated:
        return [Complaint(claim=name, message="the journal is the one that was accepted")], ()
    changes = tuple(change.text for change in changes_between(before, now))
    lines = unified_diff(before.splitlines(), now.splitlines(), "accepted", "now", lineterm="")
    shown = list(islice(lines, MOST_LINES))
    detail = "\n".join([*changes, "", *shown])
    hint = "if this is what you want: agentrun test --update"
    return [
        Complaint(claim=name, message="the journal is not the one that was accepted", detail=detail, hint=hint)
    ], changes
