"""A path of the repository as it was at a git revision, in a temporary folder with the rest of its project.

Rule 1  Files are read with `git cat-file`. No hook, filter, textconv or fsmonitor of the repository runs, nothing is
        fetched, and neither the index nor the work tree changes.
Rule 2  Symbolic links and submodules are left out, and so are files above the size limit. A spec that refers to one
        gets the usual error for a missing file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath

from agentrun.distribution import git_output
from agentrun.files import temporary_folder
from agentrun.spec.problems import did_you_mean, quote_text
from agentrun.spec.project import has_agentrun_table

MAX_BLOB = 16 * 1024 * 1024
_REGULAR_FILES = (b"100644", b"100755")


class RevisionError(Exception):
    """A revision or path that does not exist. The text is a message for the user."""


@contextmanager
def path_at_revision(revision: str, path: str, folder: Path) -> Iterator[Path]:
    """The path at the revision, for the length of the context. Raises `RevisionError`.

    `path` is relative to the top of the repository of `folder`; `./path` is relative to `folder`, as in git.
    """
    top = _git_line(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise RevisionError(f"{folder} is not in a git repository, or git is not installed")
    commit = _git_line(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise RevisionError(f"there is no revision {quote_text(revision)}")
    inside = _path_in_repository(path, folder, Path(top))
    blobs = dict(_list_blobs(Path(top), commit))
    if inside and inside not in blobs and not any(name.startswith(f"{inside}/") for name in blobs):
        near = did_you_mean(inside, _names_beside(inside, blobs))
        raise RevisionError(f"{quote_text(inside)} does not exist in {revision}{f': {near}' if near else ''}")
    root = _project_root(Path(top), inside, blobs)
    wanted = {name: oid for name, oid in blobs.items() if name.startswith(root)}
    files = zip(wanted, _read_blobs(Path(top), list(wanted.values())), strict=True)
    with temporary_folder(chain([(".git", b"")], files)) as copy:  # `.git` marks the top in the search for a project
        yield copy / inside


def _git_line(folder: Path, *words: str) -> str | None:
    """The output of a git command without its line end. None: the command failed."""
    output = git_output(folder, *words)
    return None if output is None else os.fsdecode(output).removesuffix("\n")


def _path_in_repository(path: str, folder: Path, top: Path) -> str:
    if path.startswith(("./", "../")) or path in (".", ".."):
        path = os.path.relpath(os.path.normpath(Path(os.path.realpath(folder)) / path), os.path.realpath(top))
    inside = os.path.normpath(path or ".")
    if inside.startswith("..") or os.path.isabs(inside):
        raise RevisionError(f"{quote_text(path)} is not in the repository {top}")
    return "" if inside == "." else inside


def _list_blobs(top: Path, commit: str) -> Iterator[tuple[str, str]]:
    """The files of a commit and their object ids."""
    for entry in (git_output(top, "ls-tree", "-r", "-z", "-l", "--full-tree", commit) or b"").split(b"\0"):
        about, _, name = entry.partition(b"\t")
        fields = about.split()
        if len(fields) != 4 or fields[0] not in _REGULAR_FILES or int(fields[3]) > MAX_BLOB:
            continue
        path = PurePosixPath(os.fsdecode(name))
        if ".." not in path.parts and ".git" not in path.parts and not path.is_absolute():
            yield str(path), fields[2].decode()


def _names_beside(path: str, blobs: dict[str, str]) -> list[str]:
    parent = str(PurePosixPath(path).parent)
    return [name for name in blobs if str(PurePosixPath(name).parent) == parent] or list(blobs)


def _project_root(top: Path, inside: str, blobs: dict[str, str]) -> str:
    """The folder of the project that the path belongs to, with a `/` at its end. Empty: the top of the repository."""
    for parent in PurePosixPath(inside or ".").parents:
        oid = blobs.get(str(parent / "pyproject.toml"))
        if oid is not None and has_agentrun_table(next(_read_blobs(top, [oid])).decode("utf-8", "replace")):
            return "" if parent == PurePosixPath() else f"{parent}/"
    return ""


def _read_blobs(top: Path, oids: list[str]) -> Iterator[bytes]:
    request = "".join(f"{oid}\n" for oid in oids).encode()
    output = git_output(top, "cat-file", "--batch", stdin=request)
    if output is None:
        raise RevisionError("git cannot read the files of this revision")
    start = 0
    for oid in oids:
        end = output.index(b"\n", start)
        _, kind, size = output[start:end].split(b" ") if output[start:end].count(b" ") == 2 else (b"", b"", b"0")
        if kind != b"blob":
            raise RevisionError(f"git cannot read the object {oid}")
        start = end + 1 + int(size) + 1
        yield output[end + 1 : start - 1]
