"""Number each operation that changes a file below some directories, and die at one of them.

The product has no hooks for this: the functions of `os` that it calls are replaced for a while. Operations of libraries
written in C, such as SQLite, are not seen; `faults.py` covers them with strace.

    with StoreOperations([folder], CrashPoint(7, "before"), die):
        ...

Rule 1  An operation is a write, a sync, a truncation, a rename, a removal, a lock, a new directory, or an open of a
        file for writing. They are numbered from 1.
Rule 2  A process dies before an operation, after it, or after only some bytes of a write. The head of a journal, which
        is written in place with `pwrite`, is smaller than what a disk or a kernel writes at once, and is not torn.
Rule 3  A process that died, but is still there because `die` raised an exception, changes nothing any more.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, NoReturn, Self

Moment = Literal["before", "after", "torn"]

SYNCS = ("fsync", "fdatasync")
ON_DESCRIPTORS = ("write", "pwrite", "ftruncate", *SYNCS)
ON_NAMES = ("mkdir", "unlink", "rmdir")


class Operation(NamedTuple):
    name: str
    path: str
    """Relative to its directory."""
    size: int = 0
    """The bytes of a write."""

    def __str__(self) -> str:
        return f"{self.name} {self.path}" + (f" ({self.size} bytes)" if self.size else "")


class CrashPoint(NamedTuple):
    number: int
    when: Moment = "before"
    size: int = 0
    """With `torn`: the bytes that are still written."""

    def __str__(self) -> str:
        return f"{self.when} {self.number}" + (f" {self.size}" if self.when == "torn" else "")


def points_of(operations: list[Operation], *, after: bool = False) -> list[CrashPoint]:
    """All points at which these operations can die. `after` can differ from `before` the next only by what happens in
    between, such as an effect."""
    points = []
    for number, operation in enumerate(operations, 1):
        points.append(CrashPoint(number))
        if operation.name == "write":
            sizes = sorted({1, operation.size // 2, operation.size - 1} & set(range(1, operation.size)))
            points += [CrashPoint(number, "torn", size) for size in sizes]
        if after or number == len(operations):
            points.append(CrashPoint(number, "after"))
    return points


class StoreOperations:
    def __init__(
        self,
        directories: Sequence[Path],
        point: CrashPoint | None = None,
        die: Callable[[], NoReturn] | None = None,
        *,
        syncs: bool = True,
    ) -> None:
        """`syncs`: False if a sync need not reach the disk, because only a process dies and not the machine."""
        self._directories = [os.path.realpath(each) for each in directories]
        self._point = point
        self._die = die
        self._syncs = syncs
        self._real: list[tuple[ModuleType, str, Any]] = []
        self.seen: list[Operation] = []
        self.is_dead = False

    def __enter__(self) -> Self:
        replacements = {
            **{(os, name): partial(self._on_file, name, getattr(os, name)) for name in ON_DESCRIPTORS},
            **{(os, name): partial(self._on_name, name, getattr(os, name)) for name in ON_NAMES},
            (os, "replace"): partial(self._rename, os.replace),
            (os, "link"): partial(self._link, os.link),
            (os, "open"): partial(self._open, os.open),
            (fcntl, "flock"): partial(self._flock, fcntl.flock),
        }
        own = tuple(key for key in sys.modules if key.startswith("agentrun."))
        for (module, name), replacement in replacements.items():
            real = getattr(module, name)
            for each, key in ((module, name), *_own_names(real, own)):
                self._real.append((each, key, real))
                setattr(each, key, replacement)
        return self

    def __exit__(self, *_: object) -> None:
        for module, name, real in self._real:
            setattr(module, name, real)

    def close_files(self) -> None:
        """Close the files below the directories, as the kernel does when a process ends. This releases their locks."""
        for name in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
            if self._relative(path) is not None:
                os.close(int(name))

    def _on_file(self, name: str, real: Any, file: int, *args: Any) -> Any:
        path = self._path_of(file)
        work = (lambda: None) if name in SYNCS and not self._syncs else (lambda: real(file, *args))
        if path is None:
            return work()
        if name == "pwrite":
            return self._run(name, path, work, len(args[0]))
        if name != "write":
            return self._run(name, path, work)
        data = memoryview(args[0])
        return self._run(name, path, work, len(data), lambda size: real(file, data[:size]))

    def _on_name(self, name: str, real: Any, path: Any, *args: Any, **options: Any) -> Any:
        directory = options.get("dir_fd")
        if name == "mkdir" and _exists(path, directory):
            return real(path, *args, **options)  # it fails, and changes nothing
        return self._run(name, self._below(path, directory), lambda: real(path, *args, **options))

    def _rename(self, real: Any, source: Any, target: Any, **options: Any) -> None:
        path = self._below(target, options.get("dst_dir_fd"))
        self._run("replace", path, lambda: real(source, target, **options))

    def _link(self, real: Any, source: Any, target: Any, **options: Any) -> None:
        path = self._below(target, options.get("dst_dir_fd"))
        self._run("link", path, lambda: real(source, target, **options))

    def _open(self, real: Any, path: Any, flags: int, *args: Any, **options: Any) -> int:
        changes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        below = self._below(path, options.get("dir_fd")) if changes else None
        return int(self._run("open", below, lambda: real(path, flags, *args, **options)))

    def _flock(self, real: Any, file: Any, how: int) -> None:
        path = self._path_of(file if isinstance(file, int) else file.fileno())
        self._run("flock", path, lambda: real(file, how))

    def _run(
        self,
        name: str,
        path: str | None,
        work: Callable[[], Any],
        size: int = 0,
        write_part: Callable[[int], Any] = lambda size: None,
    ) -> Any:
        if path is None:
            return work()
        if self.is_dead:
            self._end()
        self.seen.append(Operation(name, path, size))
        due = self._point if self._point is not None and self._point.number == len(self.seen) else None
        if due is not None and due.when != "after":
            if due.when == "torn":
                write_part(due.size)
            self._end()
        result = work()
        if due is not None:
            self._end()
        return result

    def _end(self) -> NoReturn:
        self.is_dead = True
        assert self._die is not None
        self._die()

    def _path_of(self, file: int) -> str | None:
        try:
            return self._relative(os.readlink(f"/proc/self/fd/{file}"))
        except OSError:
            return None

    def _below(self, path: Any, directory: int | None) -> str | None:
        name = os.fspath(path)
        if directory is not None:
            above = self._path_of(directory)
            return None if above is None else os.path.join(above, name)
        return self._relative(os.path.abspath(name))

    def _relative(self, path: str) -> str | None:
        for directory in self._directories:
            if f"{path}/".startswith(f"{directory}/"):
                return path[len(directory) + 1 :]
        return None


@cache
def _own_names(function: object, modules: tuple[str, ...]) -> list[tuple[ModuleType, str]]:
    """Where these modules have a function under a name of their own. They are searched once: there are many trials."""
    return [
        (module, key)
        for module in map(sys.modules.__getitem__, modules)
        for key, value in vars(module).items()
        if value is function
    ]


def _exists(path: Any, directory: int | None) -> bool:
    try:
        os.stat(path, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
