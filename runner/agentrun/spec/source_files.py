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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path, PurePath

from agentrun.spec.problems import (
    DocumentError,
    ProblemError,
    Source,
    SourcePlace,
    did_you_mean,
    quote_text,
    similar_word,
)

MAX_FILE_BYTES = 1024 * 1024

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY


_reads: ContextVar[set[Path] | None] = ContextVar("reads", default=None)
_INSTALLED_PACKAGES = {"node_modules", "site-packages", "__pycache__"}


@contextmanager
def collect_reads() -> Iterator[set[Path]]:
    """Collect the paths of all files that are read in the context, including those that are missing or refused."""
    paths: set[Path] = set()
    token = _reads.set(paths)
    try:
        yield paths
    finally:
        _reads.reset(token)


def _collect(path: Path) -> None:
    if (paths := _reads.get()) is not None:
        paths.add(Path(os.path.abspath(path)))


class FileRefused(ProblemError):
    def __init__(self, code: str, message: str, hint: str | None = None, line: int = 1) -> None:
        super().__init__(code, message, hint)
        self.line = line


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
    parts = _path_parts(root, base_dir, ref)
    root = Path(os.path.realpath(root))
    path = root.joinpath(*parts)
    _collect(path)
    return Source(path, display_path(path, root), _read_descriptor(_open_below(root, parts, ref), ref))


def read_referenced_file(root: Path, base_dir: Path, ref: str) -> Source:
    """Read a file whose text becomes a part of a package. Hidden files are refused, because a package has no secrets.

    A document in a hidden folder can name the files next to it."""
    folder = _path_parts(root, base_dir, "file")[:-1]
    if any(part.startswith(".") and part not in folder for part in _path_parts(root, base_dir, ref)):
        message = f"the file {quote_text(ref)} is hidden, because a name in its path begins with a dot"
        raise FileRefused("spec.file_hidden", message, "hidden files may have secrets; use a file that is not hidden")
    return read_project_file(root, base_dir, ref)


def display_path(path: Path, root: Path | None = None) -> str:
    """Return a path for messages: relative to the working directory, else to the project root, else unchanged."""
    full, here = os.path.abspath(path), os.getcwd()
    if full.startswith(here + "/"):
        return full[len(here) + 1 :]
    real = os.path.join(os.path.realpath(path.parent), path.name)
    bases = [here] if root is None or not path.is_absolute() else [here, str(root)]
    for base in bases:
        for known in (Path(full), Path(real)):
            if known.is_relative_to(base) and known != Path(base):
                return known.relative_to(base).as_posix()
    return path.as_posix()


def read_text(path: Path, name: str) -> str:
    _collect(path)
    try:
        descriptor = os.open(path, _READ)
    except (OSError, ValueError) as error:
        raise _refusal(error, name) from None
    return _read_descriptor(descriptor, name)


def _path_parts(root: Path, base_dir: Path, ref: str) -> list[str]:
    """Return the names on the path from the root to a file."""
    root, base_dir = Path(os.path.realpath(root)), Path(os.path.realpath(base_dir))
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
    try:
        folder = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(error, ref) from None
    try:
        for part in parts[:-1]:
            with _translate_errors(folder, part, ref):
                inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        with _translate_errors(folder, parts[-1], ref):
            return os.open(parts[-1], _READ | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def _translate_errors(folder: int, part: str, ref: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        linked = isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
        if linked and _is_link(folder, part):
            message = f"the path {quote_text(ref)} goes through a symbolic link"
            raise FileRefused("spec.file_outside", message, "copy the file into the project") from None
        siblings = os.listdir(folder) if isinstance(error, FileNotFoundError) else []
        raise _refusal(error, ref, did_you_mean(part, sorted(siblings))) from None


def _is_link(folder: int, part: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _refusal(error: OSError | ValueError, name: str, hint: str | None = None) -> FileRefused:
    """Translate an error of the operating system. Its own text may contain private paths."""
    if isinstance(error, FileNotFoundError):
        return FileRefused("spec.file_missing", f"the file {quote_text(name)} does not exist", hint)
    if isinstance(error, PermissionError):
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


def walk_folders(
    top: Path,
    is_skipped: Callable[[Path], bool] = lambda folder: False,
    on_error: Callable[[OSError], None] | None = None,
) -> Iterator[tuple[Path, list[str]]]:
    """A folder and those below it, each with the names of its files, in order. Hidden folders, virtual environments and
    installed packages are left out."""
    for here, folders, names in os.walk(top, onerror=on_error):
        folder = Path(here)
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".")
            and each not in _INSTALLED_PACKAGES
            and not (folder / each / "pyvenv.cfg").exists()
            and not is_skipped(folder / each)
        )
        yield folder, sorted(names)


def did_you_mean_path(path: Path, start: Path = Path()) -> str | None:
    """`did you mean "specs/support.yaml"?` for a path with misspelt names or without its folder. None: nothing similar
    exists. `start`: the folder that a relative path is relative to."""
    found = Path(path.anchor)
    for part in path.parts[bool(path.anchor) :]:
        names = _names_in(start / found)
        near = part if part in (*names, "..") else _similar_name(part, names)
        if near is None:
            found = next(_in_subfolders(path, start), path)
            break
        found /= near
    return None if found == path else f"did you mean {quote_text(str(found), most=200)}?"


def _similar_name(name: str, names: list[str]) -> str | None:
    """The most similar name of a file. The endings are not compared, because most are `.yaml`."""
    ending = PurePath(name).suffix
    stems = {PurePath(each).stem: each for each in sorted(names, key=lambda each: PurePath(each).suffix == ending)}
    stem = PurePath(name).stem
    near = stem if stem in stems else similar_word(stem, stems)
    return None if near is None else stems[near]


def _in_subfolders(path: Path, start: Path) -> Iterator[Path]:
    """The files of this name in the folders next to it. The ending may be missing."""
    name = path.name if path.suffix else f"{path.name}.yaml"
    for folder in sorted(_names_in(start / path.parent))[:100]:
        if not folder.startswith(".") and name in _names_in(start / path.parent / folder):
            yield path.parent / folder / name


def _names_in(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() and os.access(folder, os.R_OK) else []
