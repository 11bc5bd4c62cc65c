"""Which calls answer for which steps."""

from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.testing.suite.assertions.trajectory import unmatched_steps

from .observed import call, said, seen


def most(choices: list[list[int]]) -> int:
    """How many steps can have a call of their own, by trying all ways."""
    calls = sorted({each for fitting in choices for each in fitting})
    for size in range(min(len(choices), len(calls)), 0, -1):
        for steps in combinations(choices, size):
            if any(
                all(taken in step for step, taken in zip(steps, way, strict=True)) for way in permutations(calls, size)
            ):
                return size
    return 0


@given(st.lists(st.lists(st.integers(0, 4), unique=True, max_size=4), max_size=5))
def test_as_many_steps_as_can_be_have_a_call(choices: list[list[int]]) -> None:
    assert len(choices) - len(unmatched_steps(choices)) == most(choices)


def test_a_step_gives_way_to_one_that_fits_less() -> None:
    """The first step would take the only call that the second can have."""
    calls = (call("pay", {"amount": 5}), call("pay", {"amount": 50}))
    greedy = ["pay", {"tool": "pay", "args": {"amount": 5}}]
    assert said({"type": "tools-any-order", "value": greedy}, seen(calls=calls)) is None
    assert said({"type": "tools-any-order", "value": [*greedy, "pay"]}, seen(calls=calls)) is not None


def test_a_long_way_is_found() -> None:
    """Each step gives way to the next, a thousand times: nothing here is deep."""
    size = 1000
    choices = [[at, at + 1] for at in range(size)] + [[0]]
    assert unmatched_steps(choices) == []
    assert len(unmatched_steps([*choices, [size]])) == 1


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc*"), min_size=1, max_size=4))
def test_in_order_is_a_subsequence(made: list[str], wanted: list[str]) -> None:
    evidence = seen(calls=tuple(call(name) for name in made))
    holds = any(
        all(want in ("*", made[at]) for want, at in zip(wanted, places, strict=True))
        for places in combinations(range(len(made)), len(wanted))
    )
    assert (said({"type": "tools-in-order", "value": wanted}, evidence) is None) is holds


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        ({"type": "tool-called", "value": "docs.a/b"}, True),
        ({"type": "tool-called", "value": "docs.*"}, True),
        ({"type": "tools-exact", "value": ["docs.*"]}, True),
        ({"type": "tool-calls", "value": 1}, True),
    ],
)
def test_a_tool_of_a_server_may_have_a_slash(claim: dict[str, Any], holds: bool) -> None:
    assert (said(claim, seen(calls=(call("docs.a/b"),))) is None) is holds


def test_arguments_that_are_none_fit_nothing() -> None:
    broken = call("pay")
    broken = type(broken)(id="c", tool="pay", args=None, status="tool.invalid_arguments", result="", turn=1)
    wrong = said({"type": "tool-called", "value": "pay", "args": {}}, seen(calls=(broken,)))
    assert wrong is not None
    assert "not a JSON object" in wrong.message
    assert said({"type": "tool-called", "value": "pay"}, seen(calls=(broken,))) is None
