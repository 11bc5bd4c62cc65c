"""Finds the files of commands, once, when a run begins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def found_programs(commands: Iterable[str], root: Path) -> dict[str, str]:
    """The file of each command. Raises `host.missing` for one that is not there."""
    raise NotImplementedError
