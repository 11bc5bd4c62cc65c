"""`align_lists`: added and removed items are found, and the other items stay paired."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.report.value_diff import MAX_EQUAL_PAIRS, MAX_PAIRS, align_lists


def same_word(word: str) -> Hashable:
    return word


def first(word: str) -> Hashable:
    return word[:1]


@pytest.mark.parametrize(
    ("one", "two", "pairs"),
    [
        ("", "", ""),
        ("", "a1", "-/a1"),
        ("a1 b1 c1", "a1 x1 b1 c1", "a1/a1 -/x1 b1/b1 c1/c1"),
        ("a1 b1 c1", "a1 c1", "a1/a1 b1/- c1/c1"),
        ("a1 b1 c1", "a1 b2 c1", "a1/a1 b1/b2 c1/c1"),
        ("a1 b1 c1 d1", "a1 x1 b2 c1 d1", "a1/a1 -/x1 b1/b2 c1/c1 d1/d1"),
        ("a1 b1 d1", "x1 a2 d1", "-/x1 a1/a2 b1/- d1/d1"),
        ("a1 b1", "x1 y1", "a1/x1 b1/y1"),
        ("a1 a2 a3", "a2 a3", "a1/- a2/a2 a3/a3"),
        ("a1 b1 c1 a2 d1", "a3 b1 x1 c1 d1", "a1/a3 b1/b1 -/x1 c1/c1 a2/- d1/d1"),
    ],
)
def test_lists_are_aligned(one: str, two: str, pairs: str) -> None:
    found = align_lists(one.split(), two.split(), same_word, first)
    assert " ".join(f"{old or '-'}/{new or '-'}" for old, new in found) == pairs


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_all_items_are_kept_in_order(one: list[str], two: list[str]) -> None:
    found = align_lists(one, two, same_word)
    assert [old for old, _ in found if old is not None] == one
    assert [new for _, new in found if new is not None] == two
    assert align_lists(one, one, same_word) == list(zip(one, one, strict=True))


def test_lists_beyond_the_limit_are_aligned_by_position() -> None:
    """Neither the first nor the last are the same, and so many lie between that equal ones are not looked for."""
    side = int(MAX_PAIRS**0.5)
    for size, looked in ((side, True), (side + 1, False)):
        one = ["start", *map(str, range(size - 1))]
        two = [*map(str, range(size - 1)), "end"]
        assert (("0", "0") in align_lists(one, two, same_word)) is looked


def test_changes_far_apart_are_found_in_a_long_list() -> None:
    one = [str(n) for n in range(5_000)]
    two = ["new", *one[:10], *one[11:]]
    assert [pair for pair in align_lists(one, two, same_word) if pair[0] != pair[1]] == [(None, "new"), ("10", None)]


def test_too_many_equal_items_are_aligned_by_position() -> None:
    side = int(MAX_EQUAL_PAIRS**0.5)
    for size, looked in ((side, True), (side + 1, False)):
        one, two = ["x"] * size + ["y"], ["z"] + ["x"] * size
        assert ((None, "z") in align_lists(one, two, same_word)) is looked
