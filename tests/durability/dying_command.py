"""The program of a process that runs an `agentrun` command and is killed at an operation of the store.

The copies of `forked_command.py` run it in place of the command.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import NoReturn

from agentrun.cli import main

from .store_operations import CrashPoint, StoreOperations

ROOT = Path(__file__).parents[2]


def program(directories: list[Path], point: CrashPoint | None, listing: Path, planted: str = "") -> str:
    """Python that runs the command. A process that is not killed writes its operations to `listing`. `planted`: Python
    that puts a bug into the product."""
    arguments = [*map(str, directories)], None if point is None else tuple(point), str(listing)
    lines = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})",
        planted,
        "from tests.durability.dying_command import run",
        f"run{arguments!r}",
    )
    return "\n".join(lines)


def run(directories: list[str], point: tuple[int, str, int] | None, listing: str) -> None:
    death = None if point is None else CrashPoint(*point)  # type: ignore[arg-type]  # made by `program`
    with StoreOperations([*map(Path, directories)], death, _kill_this_process) as operations:
        try:
            main()
        finally:
            Path(listing).write_text(json.dumps(operations.seen), encoding="utf-8")


def _kill_this_process() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")
