"""Comparison of call arguments with the expected ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.canonical_json import same_json
from agentrun.spec.v1.assertions import COMPARISONS
from agentrun.testing.suite.assertions.trajectory import _COMPARISONS, argument_mismatches

CALL_ARGUMENTS = {
    "amount": 39.9,
    "count": 3,
    "why": "Late again",
    "tags": ["new", 1, {"a": 1}],
    "to": {"name": "Ada", "in": "x"},
    "none": None,
    "sure": True,
    "in": "box",
}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"count": 3.0}, True),
        ({"count": "3"}, False),
        ({"sure": 1}, False),
        ({"sure": True, "none": None}, True),
        ({"missing": None}, False),
        ({"to": {"name": "Ada"}}, True),
        ({"to": {}}, True),
        ({"why": {}}, False),
        ({"to": {"equals": {"name": "Ada"}}}, False),
        ({"to": {"equals": {"in": "x", "name": "Ada"}}}, True),
        ({"to": {"name": {"starts-with": "A"}}}, True),
        ({"to": {"name": "Ada", "age": 1}}, False),
        ({"tags": ["new", 1, {"a": 1}]}, True),
        ({"tags": ["new", 1]}, False),
        ({"tags": ["new", {"gt": 0}, {}]}, True),
        ({"tags": ["new", {"gt": 1}, {}]}, False),
        ({"in": "box"}, True),
        ({"amount": {"gt": 39.9}}, False),
        ({"amount": {"gt": 39.8}}, True),
        ({"amount": {"gte": 39.9, "lte": 39.9}}, True),
        ({"amount": {"lt": 39.9}}, False),
        ({"amount": {"lt": 40, "gt": 50}}, False),
        ({"why": {"gt": "Lat"}}, True),
        ({"why": {"gt": 3}}, False),
        ({"sure": {"gte": 1}}, False),
        ({"sure": {"lte": True}}, False),
        ({"why": {"contains": "again"}}, True),
        ({"why": {"contains": "AGAIN"}}, False),
        ({"tags": {"contains": 1.0}}, True),
        ({"tags": {"contains": True}}, False),
        ({"count": {"contains": 3}}, False),
        ({"why": {"icontains": "AGAIN"}}, True),
        ({"tags": {"icontains": "new"}}, False),
        ({"why": {"starts-with": "Late"}}, True),
        ({"why": {"starts-with": "late"}}, False),
        ({"why": {"regex": "^L.*n$"}}, True),
        ({"why": {"regex": "^again"}}, False),
        ({"count": {"regex": "3"}}, False),
        ({"count": {"in": [1, 3.0]}}, True),
        ({"sure": {"in": [1, 0]}}, False),
        ({"none": {"present": True}}, True),
        ({"none": {"present": False}}, False),
        ({"missing": {"present": False}}, True),
        ({"missing": {"present": True}}, False),
        ({"count": {"type": "integer"}}, True),
        ({"count": {"type": "number"}}, True),
        ({"amount": {"type": "integer"}}, False),
        ({"sure": {"type": "integer"}}, False),
        ({"none": {"type": "null"}, "tags": {"type": "array"}, "to": {"type": "object"}}, True),
        ({"why": {"type": "string"}, "sure": {"type": "boolean"}}, True),
    ],
)
def test_arguments_match_or_not(wanted: dict[str, Any], fits: bool) -> None:
    assert (not list(argument_mismatches(wanted, CALL_ARGUMENTS))) is fits


def test_every_comparison_is_implemented() -> None:
    assert _COMPARISONS.keys() == COMPARISONS


def test_every_mismatch_is_named() -> None:
    wanted = {"to": {"name": "Bob", "zip": 1}, "tags": {"contains": "old"}, "count": {"gt": 5, "lt": 2}}
    assert list(argument_mismatches(wanted, CALL_ARGUMENTS)) == [
        'to.name is "Ada", not "Bob"',
        "to.zip is missing",
        'tags is ["new",1,{"a":1}], which fails {contains: "old"}',
        "count is 3, which fails {gt: 5}",
        "count is 3, which fails {lt: 2}",
    ]


KEYS = st.sampled_from(["a", "b", "c", "d"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, JSON_VALUES, max_size=4), st.data())
def test_subset_of_the_arguments_matches(found: dict[str, Any], data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(found)))) if found else set()
    assert list(argument_mismatches({name: found[name] for name in names}, found)) == []
    assert list(argument_mismatches({name: {"equals": found[name]} for name in names}, found)) == []


@given(JSON_VALUES, JSON_VALUES)
def test_equality_is_json_equality(one: Any, other: Any) -> None:
    """Compared with an equality that is written in another way: by normal forms."""
    assert same_json(one, other) is (_normal(one) == _normal(other))
    assert same_json(one, one)


def _normal(value: Any) -> Any:
    match value:
        case bool() | None:
            return ("word", str(value))
        case int() | float():
            return ("number", float(value))
        case list():
            return ("list", tuple(map(_normal, value)))
        case dict():
            return ("map", frozenset((key, _normal(inner)) for key, inner in value.items()))
    return ("text", value)
