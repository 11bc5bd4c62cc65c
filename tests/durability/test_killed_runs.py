"""Some of the cases of `make crash`: real processes that are killed, and a bug that this finds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .crash import Undisturbed
from .killed_agents import AGENTS
from .killed_run import Death
from .outside_world import OutsideWorld

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied with fork")

RUNS_TWICE = "from agentrun.core import tool_calls; tool_calls.tool_effect = lambda tool, name: 'read'"


@pytest.fixture
def world() -> Iterator[OutsideWorld]:
    with OutsideWorld() as world:
        yield world


@pytest.mark.parametrize("agent", AGENTS)
def test_killed_run_ends_like_an_undisturbed_one(agent: str, tmp_path: Path, world: OutsideWorld) -> None:
    undisturbed = Undisturbed(agent, tmp_path, [world])
    deaths = undisturbed.deaths()
    for number in range(3, len(deaths), len(deaths) // 3):
        undisturbed.try_disturbances([deaths[number], deaths[number // 2]], 0)


def test_call_that_runs_twice_is_found(tmp_path: Path, world: OutsideWorld) -> None:
    """Every tool is taken for one that may run twice, and the process dies after the last payment of the batch."""
    undisturbed = Undisturbed("batch", tmp_path, [world], RUNS_TWICE)
    after_payment = undisturbed.command.events - 2  # the last two are of the model
    with pytest.raises(AssertionError, match=r"tool='pay', about='p5'\): 2"):
        undisturbed.try_disturbances([Death(event=after_payment)], 0)
