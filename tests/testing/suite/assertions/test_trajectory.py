"""Matching of expected steps with calls."""

from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.testing.suite.assertions.trajectory import unmatched_steps

from .evidence import call, failed_assertion, make_evidence


def most_matches_by_brute_force(choices: list[list[int]]) -> int:
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
def test_most_possible_steps_are_matched(choices: list[list[int]]) -> None:
    assert len(choices) - len(unmatched_steps(choices)) == most_matches_by_brute_force(choices)


def test_flexible_step_leaves_the_call_to_a_specific_one() -> None:
    """The first step would take the only call that the second can have."""
    calls = (call("pay", {"amount": 5}), call("pay", {"amount": 50}))
    greedy = ["pay", {"tool": "pay", "args": {"amount": 5}}]
    assert failed_assertion({"type": "tools-any-order", "value": greedy}, make_evidence(calls=calls)) is None
    assert (
        failed_assertion({"type": "tools-any-order", "value": [*greedy, "pay"]}, make_evidence(calls=calls)) is not None
    )


def test_long_augmenting_path_is_found() -> None:
    """Each step gives way to the next, a thousand times: nothing here is deep."""
    size = 1000
    choices = [[at, at + 1] for at in range(size)] + [[0]]
    assert unmatched_steps(choices) == []
    assert len(unmatched_steps([*choices, [size]])) == 1


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc*"), min_size=1, max_size=4))
def test_tools_in_order_matches_a_subsequence(made: list[str], wanted: list[str]) -> None:
    evidence = make_evidence(calls=tuple(call(name) for name in made))
    holds = any(
        all(want in ("*", made[at]) for want, at in zip(wanted, places, strict=True))
        for places in combinations(range(len(made)), len(wanted))
    )
    assert (failed_assertion({"type": "tools-in-order", "value": wanted}, evidence) is None) is holds


@pytest.mark.parametrize(
    ("assertion", "holds"),
    [
        ({"type": "tool-called", "value": "docs.a/b"}, True),
        ({"type": "tool-called", "value": "docs.*"}, True),
        ({"type": "tools-exact", "value": ["docs.*"]}, True),
        ({"type": "tool-calls", "value": 1}, True),
    ],
)
def test_mcp_tool_name_may_contain_a_slash(assertion: dict[str, Any], holds: bool) -> None:
    assert (failed_assertion(assertion, make_evidence(calls=(call("docs.a/b"),))) is None) is holds


def test_invalid_arguments_match_no_expected_arguments() -> None:
    broken = call("pay")
    broken = type(broken)(id="c", tool="pay", args=None, status="tool.invalid_arguments", result="", turn=1)
    wrong = failed_assertion({"type": "tool-called", "value": "pay", "args": {}}, make_evidence(calls=(broken,)))
    assert wrong is not None
    assert "not a JSON object" in wrong.message
    named = {"type": "tool-called", "value": "pay", "status": "tool.invalid_arguments"}
    assert failed_assertion(named, make_evidence(calls=(broken,))) is None


EXPECTATIONS = {
    "tools-exact": ["look"],
    "tools-in-order": [],
    "tools-any-order": ["look"],
    "tool-called": None,
}
"""The types of trajectory assertions, with the calls that are expected before `pay`."""


def about_pay(kind: str, **status: str) -> dict[str, Any]:
    """An assertion of a type that expects a call of `pay`."""
    before = EXPECTATIONS[kind.removeprefix("not-")]
    if before is None:
        return {"type": kind, "value": "pay", **status}
    return {"type": kind, "value": [*before, {"tool": "pay", **status}]}


@pytest.mark.parametrize("status", ["tool.execution", "tool.timeout", "tool.denied", "tool.aborted", "tool.unknown"])
@pytest.mark.parametrize("kind", EXPECTATIONS)
def test_call_that_failed_needs_an_expected_status(kind: str, status: str) -> None:
    evidence = make_evidence(calls=(call("look"), call("pay", {"amount": 5}, status)))
    wrong = failed_assertion(about_pay(kind), evidence)
    assert wrong is not None
    assert f"it failed; if it should, expect status: {status}" in wrong.message
    assert failed_assertion(about_pay(kind, status=status), evidence) is None
    assert failed_assertion(about_pay(kind, status="tool.*"), evidence) is None
    assert failed_assertion(about_pay(kind, status="ok"), evidence) is not None


@pytest.mark.parametrize("status", ["ok", "open"])
@pytest.mark.parametrize("kind", EXPECTATIONS)
def test_call_that_succeeded_or_is_open_needs_no_expected_status(kind: str, status: str) -> None:
    evidence = make_evidence(calls=(call("look"), call("pay", {"amount": 5}, status)))
    assert failed_assertion(about_pay(kind), evidence) is None
    assert failed_assertion(about_pay(f"not-{kind}"), evidence) is not None


@pytest.mark.parametrize("kind", EXPECTATIONS)
def test_not_counts_calls_that_failed(kind: str) -> None:
    """A refund that failed was asked for all the same, and may have happened."""
    evidence = make_evidence(calls=(call("look"), call("pay", {"amount": 5}, "tool.timeout")))
    assert failed_assertion(about_pay(f"not-{kind}"), evidence) is not None
    assert failed_assertion(about_pay(f"not-{kind}", status="ok"), evidence) is None
    assert failed_assertion(about_pay(f"not-{kind}"), make_evidence(calls=(call("look"),))) is None


def test_another_call_that_succeeded_is_enough() -> None:
    """The first attempt failed, and the second did not."""
    calls = (call("pay", {"amount": 5}, "tool.execution"), call("pay", {"amount": 5}))
    assert failed_assertion({"type": "tool-called", "value": "pay"}, make_evidence(calls=calls)) is None
    assert failed_assertion({"type": "tools-in-order", "value": ["pay"]}, make_evidence(calls=calls)) is None
    assert failed_assertion({"type": "tools-any-order", "value": ["pay"]}, make_evidence(calls=calls)) is None
    assert (
        failed_assertion({"type": "tools-any-order", "value": ["pay", "pay"]}, make_evidence(calls=calls)) is not None
    )
    assert failed_assertion({"type": "tools-exact", "value": ["pay", "pay"]}, make_evidence(calls=calls)) is not None
