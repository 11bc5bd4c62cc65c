"""Some of the cases of `make crash`: real processes that are killed, and a bug that this finds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ..long_loops import times
from .crash import Undisturbed, find_bug
from .killed_agents import AGENTS
from .outside_world import OutsideWorld
from .planted_bugs import BUGS_IN_PROCESSES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied with fork")


@pytest.fixture
def world() -> Iterator[OutsideWorld]:
    with OutsideWorld() as world:
        yield world


@pytest.mark.parametrize("agent", AGENTS)
def test_killed_run_ends_like_an_undisturbed_one(agent: str, tmp_path: Path, world: OutsideWorld) -> None:
    undisturbed = Undisturbed(agent, tmp_path, [world])
    deaths = undisturbed.deaths()
    for number in range(3, len(deaths), len(deaths) // times(2, 3)):
        undisturbed.try_disturbances([deaths[number], deaths[number // 2]], 0)


@pytest.mark.parametrize("bug", BUGS_IN_PROCESSES)
def test_planted_bug_is_found(bug: str, tmp_path: Path, world: OutsideWorld) -> None:
    find_bug(bug, tmp_path / bug, [world], Random(1))  # noqa: S311  # reproducible, not secret
