"""The laws, tested on random agents."""

import pytest

from agentrun.testing.laws import any_order, crash_everywhere

from .random_agents import random_agent


@pytest.mark.parametrize("seed", range(10))
def test_crash_law_passes_for_random_agents(seed: int) -> None:
    assert crash_everywhere(*random_agent(seed, calm=False))


@pytest.mark.parametrize("seed", range(10))
def test_order_law_passes_for_random_agents(seed: int) -> None:
    assert any_order(*random_agent(seed, calm=True), seeds=20) == 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 200))
def test_both_laws_pass_for_many_random_agents(seed: int) -> None:
    crash_everywhere(*random_agent(seed, calm=False))
    any_order(*random_agent(seed, calm=True))
