"""Canonical JSON is the same for equal data, whether or not it was written before."""

from typing import Any

import pytest
import rfc8785

from agentrun.canonical_json import canonical_json, map_json

SIMILAR_VALUES: list[Any] = [
    1,
    True,
    "1",
    0,
    False,
    None,
    0.5,
    "0.5",
    [],
    {},
    [1],
    [True],
    {"a": 1},
    {"a": True},
    "\u00e9",
    "e\u0301",
]
"""Values that a careless comparison would take for each other."""


@pytest.mark.parametrize("value", SIMILAR_VALUES)
def test_values_that_look_alike(value: Any) -> None:
    for other in SIMILAR_VALUES:
        canonical_json({"value": other})
    assert canonical_json({"value": value}) == rfc8785.dumps({"value": value})


def test_the_order_of_keys_and_shared_values_do_not_matter() -> None:
    shared = ["a", "b" * 40]
    one: dict[str, Any] = {"b": shared, "a": [shared, shared], "\U0001f600": 1, "\ufb33": 2}
    two: dict[str, Any] = {"\ufb33": 2, "a": [["a", "b" * 40], list(shared)], "\U0001f600": 1, "b": ["a", "b" * 40]}
    assert canonical_json(one) == canonical_json(two) == rfc8785.dumps(two)


def test_a_value_that_is_changed_is_written_anew() -> None:
    value = {"a": [1]}
    before = canonical_json(value)
    value["a"].append(2)
    assert (before, canonical_json(value)) == (b'{"a":[1]}', b'{"a":[1,2]}')


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 2**53, 2**70])
def test_numbers_without_a_canonical_form(number: float) -> None:
    canonical_json({"value": None})
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical_json({"value": number})


@pytest.mark.parametrize("depth", [1900, 2100, 50_000])
def test_nesting(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with pytest.raises(RecursionError):
        canonical_json(value)


def test_half_a_character() -> None:
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical_json({"value": "\ud800"})


def test_map_json_changes_texts_numbers_and_keys() -> None:
    value = {"a": ["x", 1, True, None], "b": ("y", 2.5)}
    assert map_json(value, text=str.upper) == {"a": ["X", 1, True, None], "b": ("Y", 2.5)}
    assert map_json(value, text=str.upper, keys=True) == {"A": ["X", 1, True, None], "B": ("Y", 2.5)}
    assert map_json(value, number=lambda number: -number) == {"a": ["x", -1, True, None], "b": ("y", -2.5)}
    assert map_json(value, text=lambda text: text, keys=True) is value


def test_map_json_changes_a_key_to_one_that_exists() -> None:
    assert map_json({"A": None, "a": None}, text=str.upper, keys=True) == {"A": None}
