"""The only module that creates, changes or removes files.

Rule 1  Project files are opened from the root of their tree, one path component at a time, without following symbolic
        links. A repository can contain links, and another process can create one between a check and a write.
Rule 2  A file is replaced as a whole: the new content goes to a temporary file in the same directory, which is then
        renamed. If anything fails, the temporary file is removed and the old file is unchanged.
Rule 3  A path from the command line is used as it is, links included.
Rule 4  Nothing is written into `.git`, because other programs execute files in it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from weakref import finalize

from msgspec import Struct

from agentrun.errors import storage_failed

TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.new")
"""The name of a temporary file. Only a process that was killed leaves one behind."""

_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_FILE = os.O_CLOEXEC | os.O_NOFOLLOW
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK)
"""Errors of file systems without hard links."""
_NEVER_WRITTEN = ".git"


class PathRefused(OSError):
    """A path that agentrun does not write to, even if the file system allows it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(errno.EPERM, message)
        self.hint = hint


class _LinkFound(OSError):
    def __init__(self, depth: int) -> None:
        super().__init__(errno.ELOOP, os.strerror(errno.ELOOP))
        self.depth = depth
        """The number of path components up to and including the link."""


class ProjectTree(Struct, frozen=True):
    """A directory for project files. Paths are absolute and lie below `root`. Every method raises `storage.failed`."""

    root: Path
    """The root of the project, or a directory that the operator named. Links in it are followed."""
    kind: str
    """What the files are, for the fields of an error: `cassette`, `snapshot`, …"""
    top: str = ""
    """The directory below the root that a setting names, or empty."""
    setting: str = ""
    """The key of `[tool.agentrun]` that names `top`."""
    variable: str = ""
    """With it the operator can choose another directory."""
    private: bool = False
    """Whether only the user may read and write the files."""
    hint: str | None = None
    """The hint of an error of the file system."""

    @property
    def _file_mode(self) -> int:
        return 0o600 if self.private else 0o666

    def write(self, path: Path, data: bytes, *, confirm: Callable[[], None] = lambda: None, sync: bool = True) -> None:
        """`confirm` is called right before the rename and may raise to keep the old file."""
        with self._failures(path, "written"), self._parent(path) as (directory, name):
            _replace(directory, name, data, confirm, self._file_mode, sync=sync)

    def check_writable(self, path: Path) -> None:
        """Check that a file can be written, before a run spends money on its content."""
        with self._failures(path, "written"), self._parent(path) as (directory, name):
            _check_replaceable(directory, name, self._file_mode)

    def remove_leftovers(self, path: Path) -> None:
        """Remove what killed processes left. The caller holds the lock of the file."""
        with self._failures(path, "written"), self._parent(path) as (directory, name):
            for entry in os.listdir(directory):
                if (match := TEMPORARY_NAME.fullmatch(entry)) and match[1] == name:
                    _remove_quietly(entry, directory)

    def open_file(self, path: Path, flags: int, *, sync: bool = True) -> int:
        """`sync`: whether the name of a new file is on the disk when this returns."""
        creates = bool(flags & os.O_CREAT)
        with self._failures(path, "opened"), self._parent(path, create=creates) as (directory, name):
            _mode(directory, name)
            # O_NONBLOCK: the file may have been replaced by a pipe since the check.
            descriptor = os.open(name, flags | os.O_NONBLOCK | _FILE, self._file_mode, dir_fd=directory)
            try:
                _refuse_special(os.fstat(descriptor))
                if creates and sync:
                    os.fsync(directory)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

    def append(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Append to a file with one write, so that processes that append at the same time do not mix their data."""
        descriptor = self.open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, sync=False)
        with self._failures(path, "written"):
            try:
                write_all(descriptor, data)
                if sync:
                    sync_data(descriptor)
            finally:
                os.close(descriptor)

    def read(
        self, path: Path, limit: int, *, tail: bool = False, start: int = 0, only_own: bool = False
    ) -> bytes | None:
        """The first `limit` bytes of a file after `start`, or with `tail` the last ones. None: there is no such
        file. `only_own`: refuse a file that another user made, or that all users could write."""
        with self._failures(path, "read"):
            try:
                with self._parent(path, create=False) as (directory, name):
                    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FILE, dir_fd=directory)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                _refuse_special(status)
                if only_own and (status.st_uid != os.geteuid() or status.st_mode & 0o002):
                    raise PathRefused("another user could have written it")
                if tail or start:
                    file.seek(start or max(0, status.st_size - limit))
                return file.read(limit)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted. Empty if there is no such directory."""
        with self._failures(path, "read"):
            try:
                with self._parent(path / "*", create=False) as (directory, _):
                    return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    @contextmanager
    def directory(self, path: Path) -> Iterator[int | None]:
        """Open a directory to read what is in it. None: there is no such directory."""
        with ExitStack() as stack:
            opened = None
            with self._failures(path, "read"), suppress(FileNotFoundError):
                opened, _ = stack.enter_context(self._parent(path / "*", create=False))
            yield opened

    def refuse_shared_directory(self, path: Path) -> None:
        """Raises `storage.failed` if others than the user can reach what is in a directory."""
        with self._failures(path, "used"), self._parent(path / "*", create=False) as (directory, _):
            status = os.fstat(directory)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PathRefused("other users have access to it", f"chmod 700 {shlex.quote(str(path))}")

    def make_directory(self, path: Path, *, sync: bool = True) -> None:
        """Create a directory and those above it."""
        with self._failures(path, "created"), self._parent(path / "*") as (directory, _):
            if sync:
                os.fsync(directory)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory, and its own name, are on the disk."""
        with self._failures(path, "written"):
            for each in (path, path.parent):
                with self._parent(each / "*", create=False) as (directory, _):
                    os.fsync(directory)

    def make_private(self, path: Path) -> None:
        """Take the rights of other users from a directory and all that is in it. Links are not followed."""
        with self._failures(path, "changed"), self._parent(path / "*", create=False) as (directory, _):
            _make_private(directory)

    def remove_directory(self, path: Path) -> None:
        """Remove a directory with its content. Links in it are removed, not followed."""
        with self._failures(path, "removed"), self._parent(path, create=False) as (directory, name):
            _remove_tree(directory, name)

    def create(self, path: Path, data: bytes) -> None:
        """Create a file, whole or not at all. If there is one already, it stays as it is."""
        with self._failures(path, "created"), self._parent(path, refuse_link=False) as (directory, name):
            try:
                os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                _create(directory, name, data, self._file_mode)

    def remove(self, path: Path) -> None:
        with self._failures(path, "removed"), self._parent(path, create=False, refuse_link=False) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def remove_empty_directory(self, path: Path) -> None:
        with self._failures(path, "removed"), self._parent(path, create=False) as (directory, name):
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    @contextmanager
    def _parent(self, path: Path, *, create: bool = True, refuse_link: bool = True) -> Iterator[tuple[int, str]]:
        """Open the directory of a file; yield its descriptor and the file name."""
        below = path.parts[len(self.root.parts) :]
        if not below or path.parts != (*self.root.parts, *below) or ".." in path.parts or "\0" in str(path):
            raise PathRefused(f"it is not inside {self.root}")
        *above, name = below
        if any(part.casefold() == _NEVER_WRITTEN for part in (*above, name)):
            raise PathRefused(f"it is inside {_NEVER_WRITTEN}")
        mode = 0o700 if self.private else 0o777
        if create:
            self.root.mkdir(mode, parents=True, exist_ok=True)
        try:
            directory = open_directory(self.root, above, create=mode if create else None)
        except _LinkFound as found:
            raise self._refuse_link(above, found.depth) from None
        try:
            if refuse_link and _is_link(name, directory):
                raise self._refuse_link([*above, name], len(above) + 1)
            yield directory, name
        finally:
            os.close(directory)

    def _refuse_link(self, parts: list[str], depth: int) -> PathRefused:
        link = "/".join(parts[:depth])
        real = Path(os.path.realpath(self.root / link))
        message = f"{_display_path(self.root / link, self.root)} is a symbolic link to {_display_path(real, self.root)}"
        if not self.top or not f"{self.top}/".startswith(f"{link}/"):
            return PathRefused(f"{message}, and links are not followed", "replace the link by a real file or directory")
        named = real / self.top[len(link) :].strip("/")
        if named.is_relative_to(self.root):
            hint = f'name it in pyproject.toml: [tool.agentrun] {self.setting} = "{named.relative_to(self.root)}"'
        else:
            hint = f"to use that directory, set {self.variable}={shlex.quote(str(named))}"
        return PathRefused(f"{message}, and links are not followed", hint)

    @contextmanager
    def _failures(self, path: Path, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"{_display_path(path, self.root)} cannot be {verb}: {error.strerror}"
            if not isinstance(error, PathRefused):
                raise storage_failed(self.kind, message, error, self.hint) from error
            refused = storage_failed(self.kind, message, error, error.hint)
            refused.fields["reason"] = "path"
            raise refused from None


def open_directory(root: Path, parts: list[str], *, create: int | None = None) -> int:
    """`create`: the mode of directories that are created. None: they must exist."""
    here = os.open(root, _DIRECTORY)
    try:
        for depth, part in enumerate(parts, 1):
            below = _open_below(here, part, depth, create=create)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _open_below(directory: int, part: str, depth: int, *, create: int | None) -> int:
    try:
        try:
            return os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        except FileNotFoundError:
            if create is None:
                raise
            with suppress(FileExistsError):
                os.mkdir(part, create, dir_fd=directory)
            return os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except OSError as error:
        if _is_link(part, directory):
            raise _LinkFound(depth) from error
        raise


def _is_link(name: str, directory: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _mode(directory: int, name: str) -> int | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _refuse_special(status)
    return stat.S_IMODE(status.st_mode)


def _refuse_special(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused("it is a directory" if stat.S_ISDIR(status.st_mode) else "it is not a plain file")


def _make_private(directory: int) -> None:
    os.fchmod(directory, 0o700)
    with os.scandir(directory) as entries:
        for entry in list(entries):
            flags = _DIRECTORY if entry.is_dir(follow_symlinks=False) else os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                below = os.open(entry.name, flags | os.O_NOFOLLOW, dir_fd=directory)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a socket
                    continue
                raise
            try:
                if entry.is_dir(follow_symlinks=False):
                    _make_private(below)
                else:
                    os.fchmod(below, 0o600)
            finally:
                os.close(below)


def _remove_tree(directory: int, name: str) -> None:
    below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        with os.scandir(below) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    _remove_tree(below, entry.name)
                else:
                    os.unlink(entry.name, dir_fd=below)
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=directory)


def _replace(
    directory: int,
    name: str,
    data: bytes,
    confirm: Callable[[], None] = lambda: None,
    new_mode: int = 0o666,
    *,
    sync: bool = True,
) -> None:
    temporary = _write_beside(directory, name, data, new_mode, sync=sync)
    try:
        confirm()
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        _remove_quietly(temporary, directory)
        raise
    if sync:
        os.fsync(directory)


def _create(directory: int, name: str, data: bytes, mode: int) -> None:
    temporary = _write_beside(directory, name, data, mode, sync=False)
    try:
        with suppress(FileExistsError):  # another process was first
            os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        _remove_quietly(temporary, directory)


def _check_replaceable(directory: int, name: str, new_mode: int = 0o666) -> None:
    _remove_quietly(_write_beside(directory, name, b"", new_mode), directory)


def _write_beside(directory: int, name: str, data: bytes, new_mode: int, *, sync: bool = True) -> str:
    mode = _mode(directory, name)
    temporary = f".{name[:200]}.{secrets.token_hex(8)}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, new_mode, dir_fd=directory)
    try:
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
            write_all(descriptor, data)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _remove_quietly(temporary, directory)
        raise
    return temporary


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes. On a full disk the first sign is a short write."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def append_or_cut(descriptor: int, data: bytes, size: int) -> None:
    """Append to a file of this size. If not all bytes can be written, cut off those that were."""
    try:
        written = os.write(descriptor, data)
        if written != len(data):
            write_all(descriptor, data[written:])
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def cut_file(descriptor: int, size: int) -> None:
    os.ftruncate(descriptor, size)
    os.fsync(descriptor)


sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def _remove_quietly(name: str, directory: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)


def _display_path(path: Path, root: Path) -> str:
    """The path relative to the working directory or else to the root, if it is below one of them."""
    for base in (Path.cwd(), root):
        if path.is_relative_to(base) and path != base:
            return path.relative_to(base).as_posix()
    return str(path)


def write_user_file(path: Path, data: bytes) -> None:
    """Write to a file, pipe or device. A file is replaced as a whole, and a link to it stays a link."""
    with _user_file_failures(path, "written"):
        if path.exists() and not path.is_file():
            with path.open("wb") as special:
                special.write(data)
            return
        with _user_directory(path) as (directory, name):
            _replace(directory, name, data)


def check_user_file(path: Path) -> None:
    """Check that `write_user_file` can write, before a run spends money on the content."""
    with _user_file_failures(path, "written"):
        if path.exists() and not path.is_file():
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with _user_directory(path) as (directory, name):
            _check_replaceable(directory, name)


@contextmanager
def _user_directory(path: Path) -> Iterator[tuple[int, str]]:
    """Open the directory of a file, or of the file that a link names; yield its descriptor and the file name."""
    real = path.resolve()
    directory = os.open(real.parent, _DIRECTORY)
    try:
        yield directory, real.name
    finally:
        os.close(directory)


def append_user_file(path: Path, data: bytes) -> None:
    with _user_file_failures(path, "written"), path.open("ab") as file:
        file.write(data)


def open_user_file(path: Path, flags: int, kind: str) -> int:
    with _user_file_failures(path, "opened", kind):
        return os.open(path, flags | os.O_CLOEXEC, 0o666)


def make_user_directory(path: Path) -> None:
    with _user_file_failures(path, "created"):
        path.mkdir(parents=True, exist_ok=True)


def user_directory_tree(path: Path) -> ProjectTree:
    """Create a directory and return its tree. Links inside it are not followed."""
    make_user_directory(path)
    return ProjectTree(Path(os.path.realpath(path)), path.name)


def remove_user_file(path: Path) -> None:
    with _user_file_failures(path, "removed"):
        path.unlink(missing_ok=True)


class TemporaryRecording:
    """A recording in a file without a name, which is gone when the process ends."""

    def __init__(self, start: bytes) -> None:
        self._descriptor, path = mkstemp(prefix="agentrun-")
        os.unlink(path)
        finalize(self, os.close, self._descriptor)
        self.append(start)

    def append(self, data: bytes) -> None:
        with _user_file_failures(Path("a temporary file"), "written", "recording"):
            append_or_cut(self._descriptor, data, os.fstat(self._descriptor).st_size)

    def read(self) -> bytes:
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)

    def rewrite(self, data: bytes) -> None:
        self.remove()
        self.append(data)

    def remove(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)


@contextmanager
def temporary_folder(files: Iterable[tuple[str, bytes]]) -> Iterator[Path]:
    """A folder with these files, for the length of the context. They are not synced, because they are removed soon."""
    with TemporaryDirectory(prefix="agentrun-") as name:
        folder = Path(os.path.realpath(name))
        for file, data in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        yield folder


@contextmanager
def _user_file_failures(path: Path, verb: str, kind: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_failed(kind or path.name, f"{path} cannot be {verb}: {error.strerror}", error) from None
