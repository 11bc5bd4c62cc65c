"""Whose store it is.

A repository can contain a forged store with a run that waits to be resumed. So the runs of a store are continued only
if the user made the store on this machine.

Rule 1  A trusted store belongs to the user, only the user can read and write it, git does not track it, and the id in
        its file `owner` is also in the state directory of the user (`$XDG_STATE_HOME/agentrun`).
Rule 2  The first run makes a store that is new or empty the user's own. Any other store is trusted only by command.
Rule 3  A new run can be stored in any store that can be written. To resume a run, answer it, or follow its session, the
        store must be trusted.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from agentrun.distribution import run_git
from agentrun.errors import StorageError
from agentrun.files import TEMPORARY_NAME, ProjectTree
from agentrun.spec.project import Project
from agentrun.spec.source_files import display_path

MAX_KNOWN_STORES = 1000
"""If there are more, the ids of stores that do not exist any more are removed."""
_ID = re.compile(rb"[0-9a-f]{32}\n")
_EMPTY_STORE = {".gitignore", "locks", "recorded", "last-failed.json"}
"""What is in a store before its first run."""
_EMPTY_FOLDERS = ("runs", "sessions")


def claim_store(project: Project) -> None:
    """Make a new or empty store the user's own. Raises `storage.failed`."""
    tree, directory, known = project.store_tree, project.store_directory, _known_stores()
    if known is not None and not os.path.lexists(directory / "owner") and _is_empty(tree, directory):
        with suppress(StorageError):  # without a state directory the store is not trusted, but runs are stored
            _write_owner(tree, directory, known)


def refuse_untrusted(project: Project) -> None:
    """Raises `storage.untrusted` unless the user made the store on this machine."""
    if (found := distrust(project)) is not None:
        reason, sentence = found
        shown = display_path(project.store_directory, project.root)
        hint = "see what is in it with `agentrun store`, then run `agentrun store trust`"
        if reason == "tracked":
            hint = f"take it out of version control: git rm -r --cached {shown}"
        elif reason == "user":
            hint = "set AGENTRUN_STORE to a directory of your own"
        message = f"the store {shown} is not trusted: {sentence}"
        raise StorageError("storage.untrusted", message, hint=hint, fields={"reason": reason})


def distrust(project: Project) -> tuple[str, str] | None:
    """Why a store is not trusted: a word for programs, and the end of a sentence. None: it is trusted, or there is
    none."""
    directory = project.store_directory
    try:
        status = os.stat(directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if status.st_uid != os.geteuid():
        return "user", "it belongs to another user"
    if _is_tracked(project):
        return "tracked", "it is under version control, so another person may have written it"
    if not is_private(project):
        return "mode", "other users can read or write it"
    if not is_claimed(project):
        return "unknown", "it was not made by you on this machine"
    return None


def is_private(project: Project) -> bool:
    """Whether only its user can read and write the store. One that does not exist will be."""
    try:
        return not stat.S_IMODE(os.stat(project.store_directory, follow_symlinks=False).st_mode) & 0o077
    except FileNotFoundError:
        return True


def is_claimed(project: Project) -> bool:
    """Whether the id of the store is known on this machine."""
    data, known = project.store_tree.read(project.store_directory / "owner", 64), _known_stores()
    if data is None or known is None or not _ID.fullmatch(data):
        return False
    return known.read(known.root / data.decode().strip(), 1) is not None


def trust_store(project: Project) -> None:
    """Make the store the user's own, with a new id. Raises `storage.untrusted` if that is not possible."""
    found = distrust(project)
    if found is not None and found[0] in ("user", "tracked"):
        refuse_untrusted(project)
    known = _known_stores()
    if known is None:
        message = "there is no place to remember that the store is trusted"
        raise StorageError(
            "storage.untrusted", message, hint="set HOME or XDG_STATE_HOME", fields={"reason": "unknown"}
        )
    project.store_tree.make_private(project.store_directory)
    with suppress(FileNotFoundError, StorageError):
        project.store_tree.remove(project.store_directory / "owner")
    _write_owner(project.store_tree, project.store_directory, known)


def _write_owner(tree: ProjectTree, directory: Path, known: ProjectTree) -> None:
    own = secrets.token_hex(16)
    _forget_removed_stores(known)
    known.write(known.root / own, f"{directory}\n".encode())
    tree.create(directory / "owner", f"{own}\n".encode())
    tree.make_private(directory)
    if tree.read(directory / "owner", 64) != f"{own}\n".encode():  # another process was first
        known.remove(known.root / own)


def _forget_removed_stores(known: ProjectTree) -> None:
    names = known.names(known.root)
    for name in names[:MAX_KNOWN_STORES] if len(names) > MAX_KNOWN_STORES else ():
        if not os.path.isdir((known.read(known.root / name, 4096) or b"").strip()):
            known.remove(known.root / name)


def _known_stores() -> ProjectTree | None:
    """The directory with the ids of the user's stores. None: the environment names no place for it."""
    state, home = os.environ.get("XDG_STATE_HOME", ""), os.environ.get("HOME", "")
    if not os.path.isabs(state):
        if not os.path.isabs(home):
            return None
        state = f"{home}/.local/state"
    return ProjectTree(Path(state) / "agentrun" / "stores", "state", private=True)


def _is_empty(tree: ProjectTree, directory: Path) -> bool:
    names = {name for name in tree.names(directory) if not TEMPORARY_NAME.fullmatch(name)}
    below: Iterable[str] = (
        name for folder in _EMPTY_FOLDERS if folder in names for name in tree.names(directory / folder)
    )
    return names <= {*_EMPTY_STORE, *_EMPTY_FOLDERS} and not any(below)


def _is_tracked(project: Project) -> bool:
    directory = project.store_directory
    code, listed = run_git(directory.parent, "ls-files", "--", directory.name)
    return code == 0 and bool(listed.strip())
