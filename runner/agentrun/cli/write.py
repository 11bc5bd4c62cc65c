"""Writing files that people asked for: whole or not at all, and never over something else."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from agentrun.errors import StorageError


def write_file(path: Path, data: bytes, *, replaces: bytes = b"") -> None:
    """Writes a file in one step; on failure the old content is untouched.

    An existing file is replaced only if it begins with `replaces`: a slip of the hand must not cost a spec.
    `-` is standard output; pipes and devices are written to, not replaced.
    """
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as special:
                special.write(data)
            return
        refuse_other(path, replaces)
        _replace(path.resolve(), data)
    except OSError as error:
        fields = {"path": path.name, "errno": error.errno}
        raise StorageError("storage.failed", f"cannot write {path}: {error.strerror}", fields=fields) from None


def make_folder(path: Path) -> None:
    """Makes a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fields = {"path": path.name, "errno": error.errno}
        raise StorageError("storage.failed", f"cannot make {path}: {error.strerror}", fields=fields) from None


def refuse_other(path: Path, replaces: bytes) -> None:
    """Refuse a file that is there and begins otherwise."""
    if not path.exists() or not replaces:
        return
    with path.open("rb") as file:
        begins = file.read(len(replaces))
    if begins and begins != replaces:
        raise click.UsageError(f"{path} is there and is something else; nothing was written")


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
