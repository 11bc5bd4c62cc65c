"""Two folders of snapshots, journals or recordings, file by file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from agentrun.cli.diff_shown import Compared
from agentrun.cli.diff_sides import Side, changes_in, side_of
from agentrun.errors import StorageError
from agentrun.journal.places import is_child, is_child_of
from agentrun.report.change import Change
from agentrun.spec.text import short

_KINDS: dict[Side, str] = {"snapshot": "snapshot", "journal": "journal", "cassette": "recording"}


def folders_compared(a: Path, b: Path) -> list[Compared]:
    """The files of two folders by their names. Raises what reading them raises."""
    one, two = _files(a), _files(b)
    if not one and not two:
        raise click.UsageError(f"{a} and {b} hold no snapshots, journals or recordings")
    found = []
    for name in sorted(one.keys() | two.keys()):
        if name not in one or name not in two:
            how = "new" if name in two else "gone"
            side = two[name] if name in two else one[name]
            change = Change(text=f"the {_KINDS[side]} is {how}", kind="run", how="new" if how == "new" else "gone")
            found.append(Compared(side, a / name, b / name, (change,), name))
        elif one[name] != two[name] and "cassette" in (one[name], two[name]):
            raise click.UsageError(f"{short(name)} is a {_KINDS[one[name]]} in {a} and a {_KINDS[two[name]]} in {b}")
        else:
            changes = changes_in(a / name, b / name, one[name], two[name])
            found.append(Compared(two[name], a / name, b / name, changes, name))
    return found


def _files(folder: Path) -> dict[str, Side]:
    """What can be compared, by its path in the folder. The journals of sub-agents belong to their parents'."""
    found: dict[str, Side] = {}
    for here, folders, names in os.walk(folder, onerror=_refuse):  # what is not seen is not gone
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for path in (Path(here, name) for name in sorted(names) if not name.startswith(".")):
            side = _side_of(path)
            if side in _KINDS and not (side == "journal" and _is_childs(path)):
                found[path.relative_to(folder).as_posix()] = side
    return found


def _side_of(path: Path) -> Side | None:
    try:
        return side_of(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def _refuse(error: OSError) -> None:
    raise _unreadable(Path(error.filename), error)


def _unreadable(path: Path, error: OSError) -> StorageError:
    fields = {"path": "comparison", "errno": error.errno}
    return StorageError("storage.failed", f"{path} cannot be read: {error.strerror}", fields=fields)


def _is_childs(path: Path) -> bool:
    return is_child(path) and any(is_child_of(other, path) for other in path.parent.glob(f"*{path.suffix}"))
