"""Things other than a file at the path of a cassette."""

from __future__ import annotations

import os
from errno import EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR
from pathlib import Path
from stat import S_IFSOCK

NOT_FILES = [
    ("directory", "it is a directory", EISDIR),
    ("pipe", "it is a named pipe", EINVAL),
    ("socket", "it is a socket", EINVAL),
    ("device", "it is a device", EINVAL),
    ("dangling link", "it is a link to a file that does not exist", ENOENT),
    ("link to itself", "Too many levels of symbolic links", ELOOP),
    ("below a file", "Not a directory", ENOTDIR),
]
"""What can be there, what is said about it, and its errno."""


def put_non_file(path: Path, kind: str) -> Path:
    """Put one of them at a path where nothing is."""
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, S_IFSOCK | 0o600)  # not by bind: the whole path may be too long for it
        case "device":
            path.symlink_to("/dev/zero")
        case "dangling link":
            path.symlink_to(path.with_name("nowhere.yaml"))
        case "link to itself":
            path.symlink_to(path)
        case _:
            path.parent.rmdir()
            path.parent.write_text("", encoding="utf-8")
    return path
