"""Read the files of a project. There is no other way to read them.

Rule 1  A path in a document cannot leave the project.
Rule 2  A path is opened folder by folder from the root, without following symbolic links. So the file that was checked
        is the file that is read, even if something changes in between.
Rule 3  Only regular files are read, up to 1 MiB, as UTF-8 with `\\n` line ends. A pipe or a device is opened without
        waiting and refused.
Rule 4  An error message names the path as it was written, never the content and never a path outside the root.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrun.spec.problems import DocumentError, Refusal, Source, SourcePlace, did_you_mean, quote_text

MAX_FILE_BYTES = 1024 * 1024

_O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_O_READ = (
    os.O_RDONLY | _O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
)
_O_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_O_FOLDER = os.O_RDONLY | _O_CLOEXEC | _O_NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
_CAN_WALK = os.open in os.supports_dir_fd and bool(_O_NOFOLLOW)


class FileRefused(Refusal):
    """Why a file cannot be read."""

    def __init__(self, code: str, message: str, hint: str | None = None, line: int = 1) -> None:
        super().__init__(code, message, hint)
        self.line = line
        """The line of the file with the encoding error."""


def read_source(path: Path, root: Path | None = None) -> Source:
    """Read a file that the user named. `root`: its project, for messages. Raises `DocumentError`."""
    name = display_path(path, root)
    full = Path(os.path.realpath(path.parent)) / path.name
    try:
        return Source(full, name, read_text(path, name))
    except FileRefused as refused:
        raise DocumentError([refused.problem(SourcePlace(Source(full, name, ""), refused.line, 1))]) from None


def read_project_file(root: Path, base_dir: Path, ref: str) -> Source:
    """Read the file that a document in `base_dir` names as `ref`. It must be inside the root."""
    root = Path(os.path.realpath(root))
    parts = _path_parts(root, Path(os.path.realpath(base_dir)), ref)
    descriptor = _open_below(root, parts, ref) if _CAN_WALK else _open_strictly(root, parts, ref)
    path = root.joinpath(*parts)
    return Source(path, display_path(path, root), _read_descriptor(descriptor, ref))


def display_path(path: Path, root: Path | None = None) -> str:
    """Return a path for messages: relative to the working directory, else to the project root, else unchanged."""
    full = Path(os.path.abspath(path))
    real = Path(os.path.realpath(path.parent)) / path.name
    bases = [Path.cwd()] if root is None or not path.is_absolute() else [Path.cwd(), root]
    for base in bases:
        for known in (full, real):
            if known.is_relative_to(base) and known != base:
                return known.relative_to(base).as_posix()
    return path.as_posix()


def read_text(path: Path, name: str) -> str:
    try:
        descriptor = os.open(path, _O_READ)
    except (OSError, ValueError) as error:
        raise _refusal(error, name) from None
    return _read_descriptor(descriptor, name)


def _path_parts(root: Path, base_dir: Path, ref: str) -> list[str]:
    """Return the path of a reference relative to the root. Raises `FileRefused` if its form is invalid."""
    outside = FileRefused(
        "spec.file_outside",
        f"the file {quote_text(ref)} is not inside the project",
        "use a path inside the project, relative to this document and with /",
    )
    if "\0" in ref or not ref.strip() or ref.endswith("/"):
        raise FileRefused("spec.file_missing", f"{quote_text(ref)} is not a file name")
    if ref.startswith("/") or "\\" in ref or re.match(r"[A-Za-z]:", ref) or not base_dir.is_relative_to(root):
        raise outside
    parts = list(base_dir.relative_to(root).parts)
    for part in ref.split("/"):
        if part == ".." and not parts:
            raise outside
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        raise FileRefused("spec.file_unreadable", f"{quote_text(ref)} is a folder")
    return parts


def _open_below(root: Path, parts: list[str], ref: str) -> int:
    """Open a path folder by folder, each relative to the one before."""
    try:
        folder = os.open(root, os.O_RDONLY | _O_CLOEXEC)
    except OSError as error:
        raise _refusal(error, ref) from None
    try:
        for part in parts[:-1]:
            with _translate_errors(folder, part, ref):
                inner = os.open(part, _O_FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        with _translate_errors(folder, parts[-1], ref):
            return os.open(parts[-1], _O_READ | _O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def _translate_errors(folder: int, part: str, ref: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        linked = isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
        if linked and _is_link(folder, part):
            raise _link_refusal(ref) from None
        siblings = os.listdir(folder) if isinstance(error, FileNotFoundError) else []
        raise _refusal(error, ref, did_you_mean(part, sorted(siblings))) from None


def _is_link(folder: int, part: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _link_refusal(ref: str) -> FileRefused:
    message = f"the path {quote_text(ref)} goes through a symbolic link"
    return FileRefused("spec.file_outside", message, "copy the file into the project")


def _open_strictly(root: Path, parts: list[str], ref: str) -> int:
    """Open a path where folders cannot be opened (Windows): the real path must equal the written one."""
    path = Path(os.path.realpath(root)).joinpath(*parts)
    try:
        real = os.path.realpath(path, strict=True)
        if os.path.normcase(real) != os.path.normcase(path):
            raise _link_refusal(ref)
        return os.open(path, _O_READ)
    except (OSError, ValueError) as error:
        siblings = os.listdir(path.parent) if os.path.isdir(path.parent) else []
        raise _refusal(error, ref, did_you_mean(parts[-1], sorted(siblings))) from None


def _refusal(error: OSError | ValueError, name: str, hint: str | None = None) -> FileRefused:
    """Translate an error of the operating system. Its own text may contain private paths."""
    if isinstance(error, FileNotFoundError):
        return FileRefused("spec.file_missing", f"the file {quote_text(name)} does not exist", hint)
    if isinstance(error, PermissionError) and os.name != "nt":
        message = f"no permission to read the file {quote_text(name)}"
        return FileRefused("spec.file_unreadable", message, "check its permissions")
    return FileRefused("spec.file_unreadable", f"{quote_text(name)} cannot be read as a file")


def _read_descriptor(descriptor: int, name: str) -> str:
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise FileRefused("spec.file_unreadable", f"{quote_text(name)} is a folder")
        if not stat.S_ISREG(mode):
            raise FileRefused("spec.file_unreadable", f"{quote_text(name)} is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _refusal(error, name) from None
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise FileRefused("spec.too_large", f"{quote_text(name)} is larger than 1 MiB", "split it into files")
    return decode_text(data, name)


def decode_text(data: bytes, name: str) -> str:
    """Decode UTF-8, drop one leading byte order mark, and convert line ends to `\\n`."""
    save = "save it as UTF-8"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileRefused("spec.encoding", f"{quote_text(name)} is UTF-16, not UTF-8", save)
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileRefused("spec.encoding", f"{quote_text(name)} is not UTF-8 (line {line})", save, line) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FileRefused("spec.encoding", f"{quote_text(name)} has a NUL character in line {line}", save, line)
    return text.replace("\r\n", "\n").replace("\r", "\n")
