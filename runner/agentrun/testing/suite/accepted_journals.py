"""The accepted journals of one case or Python test: `<case>.journal` and `<case>.<name>.journal` in one folder.

Rule 1  A run passes if it equals one of them. There are at most five, because a case that accepts all tests nothing.
Rule 2  A name has the form of the names in a spec, so it has no dot: the name of a file says which case it belongs to.
Rule 3  A journal that is not equal to any is compared with the nearest one. Accepting it replaces that one, or adds one
        under a new name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from difflib import unified_diff
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from time import time_ns

from msgspec import Struct

from agentrun.errors import RequestError, StorageError
from agentrun.spec.safe_text import join_words
from agentrun.spec.v1.field_types import NAME_PATTERN

MAX_ACCEPTED_JOURNALS = 5
JOURNAL_SUFFIX = ".journal"
SETTLED_NANOSECONDS = 2_000_000_000
"""More than the resolution of the times of any file system."""
JOURNAL_NAME_FORM = "a name of at most 64 lowercase letters, digits, - and _ that begins with a letter"
_NAME = re.compile(NAME_PATTERN)


class AcceptedJournal(Struct, frozen=True):
    path: Path
    text: str


def is_journal_name(text: str) -> bool:
    """Whether a text can be the name of an accepted journal."""
    return _NAME.fullmatch(text) is not None


def named_path(path: Path, name: str | None) -> Path:
    """The file of an accepted journal. `path`: the one without a name, `<case>.journal`."""
    return path if name is None else path.with_name(f"{path.name.removesuffix(JOURNAL_SUFFIX)}.{name}{JOURNAL_SUFFIX}")


def split_name(file: str) -> tuple[str, str | None]:
    """The file of the journal without a name, and the name: `a.b.journal` → `a.journal`, `b`."""
    owner, dot, name = file.removesuffix(JOURNAL_SUFFIX).rpartition(".")
    return (f"{owner}{JOURNAL_SUFFIX}", name) if dot and is_journal_name(name) else (file, None)


def read_accepted(path: Path) -> tuple[AcceptedJournal, ...]:
    """The one without a name, if there is one, then the others in the order of their names. Raises `storage.failed`,
    and `input.rejected` if there are too many."""
    try:
        names = _named_files(str(path.parent)).get(path.name, ())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise _read_error(path, error.strerror, error.errno) from None
    files = (path, *map(path.with_name, names))
    found = tuple(AcceptedJournal(each, text) for each in files if (text := read_snapshot(each)) is not None)
    refuse_too_many(found)
    return found


def _named_files(folder: str) -> dict[str, tuple[str, ...]]:
    """The files with names, by the file without one. A folder may have thousands, one for each case, so they are listed
    once, unless the folder changed so recently that its time would be the same after another change."""
    changed = os.stat(folder).st_mtime_ns
    is_settled = time_ns() - changed > SETTLED_NANOSECONDS
    return _list_settled(folder, changed) if is_settled else _list_named_files(folder)


@lru_cache(maxsize=16)
def _list_settled(folder: str, changed: int) -> dict[str, tuple[str, ...]]:  # noqa: ARG001  # part of the key
    return _list_named_files(folder)


def _list_named_files(folder: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(JOURNAL_SUFFIX) and (owner := split_name(name)[0]) != name:
            found[owner] = (*found.get(owner, ()), name)
    return found


def journal_to_write(
    path: Path, accepted: Sequence[AcceptedJournal], now: str, add: str | None = None
) -> AcceptedJournal | None:
    """How to accept a journal: under the name `add`, or instead of the nearest one. None: it is accepted. Raises
    `input.rejected` if there would be too many."""
    if any(each.text == now for each in accepted):
        return None
    if add is None:
        return AcceptedJournal(nearest_journal(accepted, now).path if accepted else path, now)
    added = AcceptedJournal(named_path(path, add), now)
    refuse_too_many(replace_journal(accepted, added))
    return added


def replace_journal(accepted: Sequence[AcceptedJournal], new: AcceptedJournal) -> tuple[AcceptedJournal, ...]:
    """The journals after one was written."""
    if all(each.path != new.path for each in accepted):
        return (*accepted, new)
    return tuple(new if each.path == new.path else each for each in accepted)


def nearest_journal(accepted: Sequence[AcceptedJournal], now: str) -> AcceptedJournal:
    """The one with the fewest changed lines; of several, the first."""
    return min(accepted, key=lambda each: _count_changed_lines(each.text, now)) if len(accepted) > 1 else accepted[0]


def _count_changed_lines(before: str, now: str) -> int:
    if before == now:
        return 0
    lines = unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm="")
    return sum(line.startswith(("+", "-")) for line in lines)


def refuse_too_many(accepted: Sequence[AcceptedJournal]) -> None:
    """Raises `input.rejected`."""
    if len(accepted) > MAX_ACCEPTED_JOURNALS:
        message = f"a case can have at most {MAX_ACCEPTED_JOURNALS} accepted journals, not {len(accepted)}"
        names = join_words([each.path.name for each in accepted])
        hint = f"remove one of {names}, or replace one by its name: agentrun test --update --add NAME"
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "snapshot"})


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
