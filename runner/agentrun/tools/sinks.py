"""Writes answers to files and to standard output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentrun.core.effects import Deliver
from agentrun.core.facts_base import Fault


class FileSinks:
    """Writes each answer to a file, replacing it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def deliver(self, delivery: Deliver) -> Fault | None:
        raise NotImplementedError


class JsonlSinks:
    """Appends one JSON line for each answer."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def deliver(self, delivery: Deliver) -> Fault | None:
        raise NotImplementedError


class StdoutSinks:
    """Prints each answer as one JSON line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    async def deliver(self, delivery: Deliver) -> Fault | None:
        raise NotImplementedError
