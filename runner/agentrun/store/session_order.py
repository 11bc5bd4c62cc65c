"""The order of the runs of a session: `.agentrun/sessions/<session>/runs`, a run id in each line.

A run is added before its first record is written, so no run is missing. A run that was removed stays in the list, with
the word `removed` after its id. The list can be made again from the first records of all runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from agentrun.canonical_json import text_hash
from agentrun.files import ProjectTree

MAX_ORDER_BYTES = 16 * 1024 * 1024
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LINE = re.compile(r"(\S+)( removed)?")


class SessionEntry(Struct, frozen=True):
    run: str
    removed: bool = False


def session_directory(store: Path, name: str) -> Path:
    return store / "sessions" / (name if _PLAIN.fullmatch(name) else text_hash(name)[7:])


def read_order(tree: ProjectTree, directory: Path) -> tuple[SessionEntry, ...] | None:
    """None: there is no list."""
    data = tree.read(directory / "runs", MAX_ORDER_BYTES)
    if data is None:
        return None
    found = (_LINE.fullmatch(line) for line in data.decode(errors="replace").split("\n"))
    return tuple(SessionEntry(line[1], line[2] is not None) for line in found if line)


def add_to_order(
    tree: ProjectTree, directory: Path, run: str, find_all: Callable[[], Iterable[str]], *, sync: bool
) -> None:
    """`find_all`: the runs of the session in their order, if there is no list."""
    before = read_order(tree, directory)
    if before is None:
        before = tuple(SessionEntry(each) for each in find_all())
    if not any(entry.run == run for entry in before):
        _write(tree, directory, (*before, SessionEntry(run)), sync=sync)


def remove_from_order(tree: ProjectTree, directory: Path, run: str) -> None:
    """Forget a run that never began."""
    if before := read_order(tree, directory):
        _write(tree, directory, (entry for entry in before if entry.run != run), sync=True)


def mark_removed(tree: ProjectTree, directory: Path, run: str) -> None:
    if before := read_order(tree, directory):
        entries = (replace(entry, removed=True) if entry.run == run else entry for entry in before)
        _write(tree, directory, entries, sync=True)


def _write(tree: ProjectTree, directory: Path, entries: Iterable[SessionEntry], *, sync: bool) -> None:
    text = "".join(f"{entry.run}{' removed' * entry.removed}\n" for entry in entries)
    tree.write(directory / "runs", text.encode(), sync=sync)
