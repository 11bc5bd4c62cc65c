"""Runs commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentrun.core.effects import Returned, RunTool
from agentrun.net.environment import Lookup


class ShellTools:
    """Runs commands, never through a shell."""

    def __init__(self, root: Path, programs: Mapping[str, str], lookup: Lookup) -> None:
        self._root = root
        self._programs = programs
        self._lookup = lookup

    async def run(self, call: RunTool) -> Returned:
        raise NotImplementedError
