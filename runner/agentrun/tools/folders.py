"""Folders of a project, opened so that nobody can put another one in their place.

Rule 1  The way from the root is walked folder by folder, and no symbolic link is followed on it: what was checked is
        what is used, whatever is renamed or linked meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrun.files import open_directory


class NoFolder(OSError):
    """There is no such folder in the project, or it is reached through a link."""


@contextmanager
def folder_inside(root: Path, path: str = ".") -> Iterator[int]:
    """A descriptor of a folder of the project. Raises `NoFolder`."""
    here = _walked(root, path)
    try:
        yield here
    finally:
        os.close(here)


def _walked(root: Path, path: str) -> int:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise NoFolder(errno.EINVAL, os.strerror(errno.EINVAL))
    try:
        return open_directory(root, parts)  # the root itself is the operator's: it may be reached through links
    except OSError as error:
        raise NoFolder(error.errno, error.strerror) from None
