"""`Tally`: persistent counters that states of a run share."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.tally import Tally, TextTally, fnv1a

Kind = tuple[Callable[[dict[str, int]], Tally], Callable[[str], str]]
STARTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 3))
STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), max_size=15)


def make_tally(start: dict[str, int]) -> Tally:
    return Tally(start)


def by_text(start: dict[str, int]) -> Tally:
    return TextTally({fnv1a(key): count for key, count in start.items()})


@given(STARTS, STEPS, st.sampled_from([(make_tally, str), (by_text, fnv1a)]))
def test_adding_to_a_tally_changes_no_other(start: dict[str, int], steps: list[tuple[int, str]], kind: Kind) -> None:
    """Compared with counters that are copied: any tally may be gone on from, also more than once."""
    make, name = kind
    tallies, counters = [make(start)], [Counter(start)]
    for place, key in steps:
        index = place % len(tallies)
        tallies.append(tallies[index].plus(key))
        counters.append(counters[index] + Counter([key]))
    for tally, counter in zip(tallies, counters, strict=True):
        assert [tally.count(key) for key in "abcd"] == [counter[key] for key in "abcd"]
        assert tally.totals() == {name(key): count for key, count in counter.items()}
        assert list(tally.totals()) == sorted(tally.totals())


def test_tally_shares_its_list_until_it_forks() -> None:
    one = Tally().plus("a")
    two = one.plus("b")
    fork = one.plus("c")
    assert two._keys is one._keys
    assert fork._keys is not one._keys


def test_tallies_compare_by_content() -> None:
    assert Tally({"a": 1}).plus("b") == Tally({"b": 1}).plus("a")
    assert Tally().plus("a") != Tally().plus("a").plus("a")
    assert Tally() != {}
    assert repr(Tally({"b": 1}).plus("a")) == "Tally({'a': 1, 'b': 1})"
    with pytest.raises(TypeError):
        hash(Tally())
