"""`any_order`: every completion order gives the same outcome, and violations are found."""

from math import factorial
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import evolve as evolve_module
from agentrun.core.effects import ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.messages import Text
from agentrun.core.state import CallState, SpendMeter
from agentrun.engine.clock import StepClock
from agentrun.testing import call, calls, scripted, stub, text
from agentrun.testing.laws import Setting, any_order

from ..core.script import tool
from ..long_loops import times
from ..packages import package
from .law_shapes import ALLOW, SHAPES, Shape

FIVE = package(tools={"search": tool()}, policy=ALLOW)


def five_calls(clock: StepClock) -> Setting:
    batch = calls(*(call("search", q=str(number)) for number in range(5)))
    return Setting(model=scripted(batch, text("Done.")), tools={"search": stub(lambda q: f"found {q}")}, message="Hi.")


def test_order_law_tries_all_permutations_of_five_calls() -> None:
    assert any_order(FIVE, five_calls, every=True) == factorial(5) == 120


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_order_law_passes_for_every_shape(shape: Shape) -> None:
    seeds = times(60, 200)
    assert any_order(*shape, seeds=seeds) == seeds


@pytest.mark.parametrize("width", [1, 2, 3])
def test_order_law_tries_fewer_orders_with_limited_parallelism(width: int) -> None:
    """With one at a time there is nothing to choose; with fewer than five, less."""
    tried = any_order(FIVE, five_calls, every=True, width=width)
    assert tried == {1: 1, 2: 16, 3: 54}[width]


def test_order_law_finds_order_dependent_results() -> None:
    def counting(clock: StepClock) -> Setting:
        numbers = iter(range(5))
        search = stub(lambda q: ToolReturn((Text(f"the {next(numbers)}th"),)))
        return Setting(model=five_calls(clock).model, tools={"search": search}, message="Hi.")

    with pytest.raises(AssertionError, match=r"in the order .*c1\.1, .*the journal differs"):
        any_order(FIVE, counting)


def test_order_law_finds_an_order_dependent_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journals are alike, but the state knows which call was done first."""
    counted = evolve_module._evolve_meter

    def confused(meter: SpendMeter, call: CallState, fact: Any) -> SpendMeter:
        after = counted(meter, call, fact)
        return replace(after, cost=2 * after.cost + int(fact.call[-1])) if isinstance(fact, ToolFinished) else after

    monkeypatch.setattr(evolve_module, "_evolve_meter", confused)
    with pytest.raises(AssertionError, match="the journal is the same, but the state differs"):
        any_order(FIVE, five_calls)


def test_order_law_refuses_too_many_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrun.testing.laws.MAX_ORDERS", 119)
    with pytest.raises(AssertionError, match="more than 119 orders"):
        any_order(FIVE, five_calls, every=True)
