"""Evaluation of CEL conditions: true, false, or failed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.condition import (
    CONDITION_VARIABLES,
    FailedEvaluation,
    compile_condition,
    constant_condition,
    evaluate_condition,
    is_met,
    to_timestamp,
)
from agentrun.core.evolve import fold
from agentrun.core.policy import condition_variables

from .script import RUN_STARTED, records

DATA: dict[str, Any] = {
    "args": {"n": 7, "s": "text", "l": [1, 2], "o": {"a": {"b": 1}}, "none": None, "yes": True, "f": 1.5},
    "params": {"team": "x"},
    "spend": {"turns": 1, "tokens": 20, "cost": 3, "time": 4, "tool_calls": 5},
    "calls": {"refund": 2, "files.read": 1},
    "session": {"runs": 1, "turns": 9},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("args.n > 6", True),
        ("args.n > 7", False),
        ("args.s == 'text' && params.team == 'x'", True),
        ("args.s.matches('^t.*t$')", True),
        ("size(args.l) == 2 && 2 in args.l", True),
        ("args.o.a.b == 1", True),
        ("args.none == null", True),
        ("args.yes", True),
        ("args.f > 1.0", True),
        ("spend.tokens + spend.cost + spend.time == 27", True),
        ("calls.refund >= 2 && calls['files.read'] == 1", True),
        ("has(calls.other) && calls.other > 0", False),
        ("session.runs == 1 && session.turns == 9", True),
        ("true", True),
    ],
)
def test_condition_is_true_or_false(expression: str, value: bool) -> None:
    assert is_met(expression, DATA) is value


@pytest.mark.parametrize(
    "expression",
    [
        "args.missing > 1",
        "args.o.missing.b == 1",
        "args.s > 1",
        "args.n",
        "args.s",
        "args.l[9] == 1",
        "args.n / 0 == 1",
        "calls.other > 0",
        "args.none > 1",
        "args.n + 9223372036854775807 > 0",
    ],
)
def test_condition_that_cannot_be_evaluated_is_none(expression: str) -> None:
    assert is_met(expression, DATA) is None


@pytest.mark.parametrize(
    ("expression", "args", "reason"),
    [
        ("args.a.exists(x, args.a.exists(y, x + y < 0))", {"a": list(range(200))}, "Iteration budget exceeded"),
        ("args.a.all(x, args.a.all(y, x >= 0))", {"a": list(range(200))}, "Iteration budget exceeded"),
        ("args.a == 'x'", {"a": "\ud800"}, ""),
        ("args.b == 1", {}, 'Key not found in map : "b"'),
        ("args.a", {"a": 1}, "its result is neither true nor false"),
        ("args.a > 1", {"a": 2**70}, "Integer value '1180591620717411303424' out of range for"),
    ],
)
def test_failed_evaluation_has_a_reason(expression: str, args: dict[str, Any], reason: str) -> None:
    """Also where the engine raises: that is no bug of ours that would end the run."""
    found = evaluate_condition(expression, {"args": args})
    assert isinstance(found, FailedEvaluation)
    assert found.reason.startswith(reason)
    assert "[INTERNAL]" not in found.reason
    assert is_met(expression, {"args": args}) is None


def test_reason_of_a_failed_evaluation_is_cut() -> None:
    found = evaluate_condition("args.a > 1", {"args": {"a": {"x" * 1000: 2**70}}})
    assert isinstance(found, FailedEvaluation)
    assert len(found.reason) == 300


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("args.many.all(x, params.long + params.long != '')", None),
        ("args.many . exists_one (x, [params.long + 'x', params.long + 'y'] == [])", None),
        ("args.many.all(x, args.many + args.many != [])", None),
        ("args.many.all(x, params.long != '')", True),
        ("params.long + params.long != '' && calls.refund > 0", True),
        ("args.many + args.many != [] && calls.refund > 0", True),
        ("params.few.all(x, params.long + params.long != '')", True),
        ("params.few.map(x, x + 'b') == ['ab', 'bb']", True),
    ],
)
def test_memory_of_an_evaluation_is_bounded(expression: str, value: bool | None) -> None:
    """The engine frees nothing before the end: 3,000 rounds over 100 kB of text would hold 600 MB."""
    args = {"many": list(range(3000))} if "args" in expression else {}
    params = {"long": "x" * 100_000, "few": ["a", "b"]}
    assert is_met(expression, {"args": args, "params": params, "calls": {"refund": 1}}) is value


def test_missing_field_in_an_unneeded_operand_is_ignored() -> None:
    assert is_met("args.n == 7 || args.missing == 1", DATA) is True
    assert is_met("args.n == 8 && args.missing == 1", DATA) is False


@pytest.mark.parametrize(("n", "value"), [(2**63 - 1, True), (2**64 - 1, True), (2**64, None), (-(2**63) - 1, None)])
def test_integer_beyond_64_bits_cannot_be_compared(n: int, value: bool | None) -> None:
    assert is_met("args.n > 5", {"args": {"n": n}}) is value


@pytest.mark.parametrize("expression", ["args.", "other == 1", "1 + ", "args.n > 'x' +", "nope(1)", ""])
def test_invalid_condition_does_not_compile(expression: str) -> None:
    with pytest.raises(RuntimeError):
        compile_condition(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("true", True),
        ("1 > 2", False),
        ("args.n == 1", None),
        ("1", None),
        ("now != now", None),
        ("'known' == ''", False),
    ],
)
def test_constant_condition_is_recognised(expression: str, value: bool | None) -> None:
    assert constant_condition(expression) is value


def test_condition_variables_match_the_documented_ones() -> None:
    given = condition_variables(fold(records([RUN_STARTED])))
    assert set(given) == set(CONDITION_VARIABLES)
    assert all(tuple(given[name]) == fields for name, fields in CONDITION_VARIABLES.items() if fields is not None)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["n", "a", ""]), JSON_VALUES))
def test_any_arguments_evaluate_without_an_exception(args: dict[str, Any]) -> None:
    """Never an exception: true, false or None, and true only for what is greater."""
    found = is_met("args.n > 5", {"args": args})
    number: Any = args.get("n")
    if found is not None:
        assert found is (not isinstance(number, bool) and number > 5)
    elif isinstance(number, int) and not isinstance(number, bool) and len(args) == 1:
        assert not -(2**63) <= number < 2**64


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1_763_449_200_123, "2025-11-18T07:00:00.123000+00:00"),
        (-1, "1970-01-01T00:00:00+00:00"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999000+00:00"),
        (253_402_300_800_000, "9999-12-31T23:59:59.999000+00:00"),
    ],
)
def test_timestamp_of_milliseconds(milliseconds: int, text: str) -> None:
    assert to_timestamp(milliseconds).isoformat() == text
