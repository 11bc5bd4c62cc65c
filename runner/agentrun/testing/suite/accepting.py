"""Accepting journals: writing snapshots, and removing those that no case claims.

Rule 1  Only the journal of a case that claims one and holds otherwise is accepted; one that is known to fail keeps its
        snapshot.
Rule 2  A snapshot is written whole or not at all.
Rule 3  No credential of the environment gets into one: a recording may hold it that was made elsewhere.
Rule 4  What no case claims is looked for only among the snapshots of a file of which all cases are run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import UNSET, Struct

from agentrun.errors import StorageError
from agentrun.report.changes import changes_between
from agentrun.spec.files import shown_path
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.snapshots import accepted, folder_of, path_of
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
        _replace(path, self._now)
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


def unclaimed(files: Iterable[Sequence[Found]]) -> list[Path]:
    """Snapshots that no case claims, of files of cases that are given whole."""
    found: list[Path] = []
    for cases in files:
        claimed = {
            path_of(each).name for each in cases if any(isinstance(c, JournalSnapshot) for c in each.case.claims)
        }
        folder = folder_of(cases[0].file)
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [folder / name for name in names if name.endswith(".journal") and name not in claimed]
    return found


def remove(path: Path) -> None:
    """Remove a snapshot, and its folder if it was the last. Raises `storage.failed`."""
    try:
        path.unlink()
        if not os.listdir(path.parent):
            path.parent.rmdir()
    except OSError as error:
        raise _failed(path, "removed", error) from error


def prepare(path: Path) -> None:
    """Find out whether a snapshot can be written, before somebody else writes it. Raises `storage.failed`."""
    try:
        os.unlink(_beside(path, ""))
    except OSError as error:
        raise _failed(path, "written", error) from error


def _replace(path: Path, text: str) -> None:
    try:
        temporary = _beside(path, text)
        try:
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise _failed(path, "written", error) from error


def _beside(path: Path, text: str) -> str:
    """A new file with the text, in the same folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
    except OSError:
        os.unlink(temporary)
        raise
    return temporary


def _failed(path: Path, what: str, error: OSError) -> StorageError:
    fields = {"path": "snapshot", "errno": error.errno}
    return StorageError("storage.failed", f"{shown_path(path)} cannot be {what}: {error.strerror}", fields=fields)
