"""Where the journals of a run's children stand: beside its own, named after the calls that lead to them.

run.jsonl    run.c1.0.jsonl    run.c1.0.c2.1.jsonl
"""

from __future__ import annotations

import re
from pathlib import Path

from agentrun.core.effect_ids import CALL_PATTERN

_CALLS = re.compile(rf"(\.{CALL_PATTERN})+")


def child_file(path: Path, calls: str) -> Path:
    """The journal of a child, given its parent's and the calls that lead to it, such as `c1.0`."""
    return path.with_name(f"{path.stem}.{calls}{path.suffix}")


def child_files(path: Path) -> list[Path]:
    """The journals of children that stand beside a journal."""
    return sorted(each for each in path.parent.glob("*") if each.suffix == path.suffix and is_child_of(path, each))


def is_child_of(path: Path, other: Path) -> bool:
    rest = other.stem.removeprefix(path.stem)
    return other.stem.startswith(path.stem) and _CALLS.fullmatch(rest) is not None


def is_child(path: Path) -> bool:
    """Whether a file is named as the journal of somebody's child."""
    return re.search(rf"\.{CALL_PATTERN}$", path.stem) is not None
