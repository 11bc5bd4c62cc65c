"""The order in which the runs of a store began: `.agentrun/order`, a run id in each line.

It is what makes one position in all journals: a reader that knows the runs up to a place in this file, and what it has
not read of those that are not finished, misses nothing and reads nothing twice.

Rule 1  A run is added before its first record is written, so no run with a record is missing. Sub-agents are not in it;
        they are named in the journals of their parents.
Rule 2  Lines are only appended, each with one write. A removed run stays in the list, and is added again if its id is
        used again.
Rule 3  If the file is missing, its content is that of all runs in the order of their first records. It is written with
        the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from agentrun.files import ProjectTree
from agentrun.store.run_ids import is_run_id

MAX_RUN_ORDER_BYTES = 256 * 1024 * 1024


class RunPlace(Struct, frozen=True):
    """A place in the order, right after a run. The default is the beginning."""

    offset: int = 0
    run: str = ""


class RunOrder:
    def __init__(self, tree: ProjectTree, path: Path, find_runs: Callable[[], Iterable[str]]) -> None:
        """`find_runs`: the runs that users started, in the order of their first records."""
        self._tree = tree
        self._path = path
        self._find_runs = find_runs

    def after(self, place: RunPlace) -> list[RunPlace] | None:
        """The runs after a place. None: the place is not in this order."""
        line = f"{place.run}\n".encode() if place.offset else b""
        before = b"\n" if place.offset > len(line) else b""
        start = place.offset - len(before + line)
        if start < 0:
            return None
        data = self._tree.read(self._path, MAX_RUN_ORDER_BYTES, start=start)
        if data is None:
            data = self._missing_content()[start:]
        if not data.startswith(before + line):
            return None
        data = data[len(before + line) :]
        places, offset = [], place.offset
        for line in data.splitlines(keepends=True):
            offset += len(line)
            run = line[:-1].decode(errors="replace")
            if line.endswith(b"\n") and is_run_id(run):
                places.append(RunPlace(offset, run))
        return places

    def add(self, run: str, *, is_left: bool, sync: bool) -> None:
        """Add a run before its first record. `is_left`: whether a process that ended before this record may have added
        it already."""
        if self._tree.read(self._path, 1) is None:
            self._tree.create(self._path, self._missing_content())
        if is_left and any(place.run == run for place in self.after(RunPlace()) or ()):
            return
        is_torn = self._tree.read(self._path, 1, tail=True) not in (b"\n", b"")
        self._tree.append(self._path, b"\n" * is_torn + f"{run}\n".encode(), sync=sync)

    def _missing_content(self) -> bytes:
        return "".join(f"{run}\n" for run in self._find_runs()).encode()
