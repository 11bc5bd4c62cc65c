"""The laws, tried on agents by chance."""

import pytest

from agentrun.testing.laws import any_order, crash_everywhere

from .random_agents import random_agent


@pytest.mark.parametrize("seed", range(10))
def test_crashes(seed: int) -> None:
    assert crash_everywhere(*random_agent(seed, calm=False))


@pytest.mark.parametrize("seed", range(10))
def test_orders(seed: int) -> None:
    assert any_order(*random_agent(seed, calm=True), seeds=20) == 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 200))
def test_many(seed: int) -> None:
    crash_everywhere(*random_agent(seed, calm=False))
    any_order(*random_agent(seed, calm=True))
