"""The cassette player: matching, tiers, misses and unused interactions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.match import match_key
from agentrun.cassette.match_tiers import MatchTier
from agentrun.cassette.player import Player, unused_error
from agentrun.cassette.redaction import RunRedaction
from agentrun.cassette.request_diff import describe_differences
from agentrun.core.package import RedactionRule as Rule
from agentrun.errors import CassetteError
from agentrun.wire import HttpCall, HttpReply

from ..steps import at_most

URL = "https://api.example/v1/chat"


def call(body: Any, url: str = URL, method: str = "POST") -> HttpCall:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpCall(method, url, (), data)


def cassette_of(*calls: HttpCall) -> Cassette:
    """A recording whose replies are numbered from 1."""
    played = [Interaction(one, HttpReply(200, (), b"%d" % n), end=n * 100, line=n) for n, one in enumerate(calls, 1)]
    return Cassette(tuple(played), {}, 0)


def player(*calls: HttpCall, **given: Any) -> Player:
    return Player(cassette_of(*calls), **given)


def play(on: Player, asked: HttpCall, path: str = "") -> int:
    return int(on.play(asked, path).reply.body)


def miss(on: Player, asked: HttpCall, path: str = "") -> dict[str, Any]:
    with pytest.raises(CassetteError) as caught:
        play(on, asked, path)
    assert (caught.value.code, caught.value.exit_code) == ("cassette.miss", 3)
    return caught.value.fields


def tool_call(argument: int = 1) -> HttpCall:
    return call({"at": argument}, "tool://look", "CALL")


def test_repeat_is_found_only_before_the_next_model_request() -> None:
    on = player(call({"turn": 1}), tool_call(), tool_call(), call({"turn": 2}), tool_call(), call({"turn": 3}))
    assert not on.has_repeat(tool_call()), "no model was asked yet, so the turns are not known"
    play(on, call({"turn": 1}))
    assert play(on, tool_call()) == 2
    assert on.has_repeat(tool_call())
    assert not on.has_repeat(tool_call(2)), "another request"
    assert play(on, tool_call()) == 3, "asking does not play it"
    assert not on.has_repeat(tool_call()), "the next one belongs to the next turn"
    play(on, call({"turn": 2}))
    assert play(on, tool_call()) == 5
    assert not on.has_repeat(tool_call())
    play(on, call({"turn": 3}))
    assert on.unused() == ()


def test_repeat_of_another_run_does_not_count() -> None:
    calls = [call({"turn": 1}), tool_call(), tool_call()]
    paths = ["", "", "c1.0"]
    recorded = [Interaction(each, HttpReply(200, (), b"1"), path=path) for each, path in zip(calls, paths, strict=True)]
    on = Player(Cassette(tuple(recorded), {}, 0))
    play(on, call({"turn": 1}))
    play(on, tool_call())
    assert not on.has_repeat(tool_call())
    assert not on.has_repeat(tool_call(), "c1.0"), "the model of the sub-agent was not asked yet"


def test_looking_for_a_repeat_does_not_change_the_tier() -> None:
    calls = [call({"turn": 1}), tool_call(), call({"turn": 2}), call({"at": 9}, "tool://look", "CALL")]
    on = player(*calls, volatile=["at"], require="normalised")
    play(on, call({"turn": 1}))
    play(on, tool_call())
    assert not on.has_repeat(tool_call())
    assert on.tier == "exact"


def test_requests_are_matched_in_any_order() -> None:
    on = player(call({"a": 1}), call({"a": 2}))
    assert play(on, call({"a": 2})) == 2
    assert on.unused() == (1,)
    assert play(on, call({"a": 1})) == 1
    assert on.unused() == ()
    assert on.tier == "exact"


def test_equal_requests_are_played_in_recorded_order() -> None:
    on = player(call({}), call({"a": 1}), call({}), call({}))
    assert [play(on, call({})) for _ in range(3)] == [1, 3, 4]
    assert "fewer times than the run sends it" in miss(on, call({}))["difference"]


def test_equal_requests_with_different_spelling_are_all_played() -> None:
    on = player(call(b'{"a":1}'), call(b'{"a":1.0}'), call(b'{"a":1}'))
    assert sorted(play(on, call(body)) for body in (b'{"a":1}', b'{"a":1}', b'{"a":1e0}')) == [1, 2, 3]
    assert on.unused() == ()


@pytest.mark.parametrize(
    "asked",
    [
        call(b'{"b":[1,2],"a":0}'),
        call(b' { "a" : 0.0 , "b" : [1.0, 2e0] } '),
        call(b'{"a":-0.0,"b":[1,2]}', method="post"),
        HttpCall("POST", URL, (("authorization", "x"),), b'{"a":0,"b":[1,2]}'),
    ],
)
def test_request_with_equal_json_matches_exactly(asked: HttpCall) -> None:
    on = player(call({"a": 0, "b": [1, 2]}), require="exact")
    assert (play(on, asked), on.tier) == (1, "exact")


@pytest.mark.parametrize(
    "asked",
    [
        call({"a": 0, "b": [1, 2]}, method="PUT"),
        call({"a": 0, "b": [1, 2]}, url=URL + "s"),
        call({"a": False, "b": [1, 2]}),
        call({"a": 0, "b": [2, 1]}),
        call({"a": 0, "b": [1]}),
        call({"b": [1, 2]}),
        call({"a": 0, "b": [1, 2], "c": None}),
        call([]),
        call(b"text"),
    ],
)
def test_different_request_is_a_miss(asked: HttpCall) -> None:
    on = player(call({"a": 0, "b": [1, 2]}))
    assert miss(on, asked)["nearest"] == 1
    assert on.unused() == (1,), "a miss plays nothing"


def test_body_that_is_not_json_is_compared_by_bytes() -> None:
    on = player(call(b"a=1"), call(b"\xff"))
    assert play(on, call(b"\xff")) == 2
    assert miss(on, call(b"a=2"))["nearest"] == 1
    assert play(on, call(b"a=1")) == 1


def test_sub_agent_interactions_are_separate() -> None:
    one, two = cassette_of(call({}), call({})).interactions
    on = Player(Cassette((replace(one, path="c1.0"), two), {}, 0))
    assert play(on, call({})) == 2, "the run's own, although a child's came first"
    assert miss(on, call({}))["nearest"] is None, "what is left is a child's"
    assert play(on, call({}), "c1.0") == 1


# --- tiers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volatile", "was", "now"),
    [
        ("user", {"user": "ada", "a": 1}, {"user": "bob", "a": 1}),
        ("body.user", {"user": "ada"}, {"user": "bob"}),
        ("metadata.*", {"metadata": {"id": 1, "at": 2}}, {"metadata": {"id": 3, "at": 4}}),
        ("messages.*.id", {"messages": [{"id": 1}, {"id": 2}]}, {"messages": [{"id": 3}, {"id": 4}]}),
        ("messages.1.id", {"messages": [{"id": 1}, {"id": 2}]}, {"messages": [{"id": 1}, {"id": 4}]}),
        ("x-*", {"x-id": 1, "y": 1}, {"x-id": 2, "y": 1}),
    ],
)
def test_difference_in_a_volatile_field_matches_normalised(volatile: str, was: Any, now: Any) -> None:
    on = player(call(was), volatile=[volatile])
    assert (play(on, call(now)), on.tier) == (1, "normalised")
    miss(player(call(was)), call(now))
    miss(player(call(was), volatile=[volatile], require="exact"), call(now))


@pytest.mark.parametrize(
    ("volatile", "was", "now"),
    [
        ("user", {"user": "ada", "a": 1}, {"user": "ada", "a": 2}),
        ("user", {"user": "ada"}, {}),
        ("messages.1.id", {"messages": [{"id": 1}, {"id": 2}]}, {"messages": [{"id": 3}, {"id": 2}]}),
        ("user", {"a": {"user": 1}}, {"a": {"user": 2}}),
    ],
)
def test_difference_outside_of_volatile_fields_is_a_miss(volatile: str, was: Any, now: Any) -> None:
    miss(player(call(was), volatile=[volatile]), call(now))


@pytest.mark.parametrize("require", ["exact", "normalised"])
def test_exact_match_is_preferred_to_a_normalised_one(require: MatchTier) -> None:
    on = player(call({"user": "a"}), call({"user": "b"}), volatile=["user"], require=require)
    assert (play(on, call({"user": "b"})), on.tier) == (2, "exact")


# --- redaction -------------------------------------------------------------------------------------------------------

EMAIL = Rule(name="email", path=None, pattern=r"[a-z]+@[a-z.]+")


def test_redacted_values_are_ignored_in_the_comparison() -> None:
    recorded = call({"a": "mail [redacted:email] now"})
    for body in ({"a": "mail ada@example.org now"}, {"a": "mail bob@example.org now"}):
        on = player(recorded, redaction=RunRedaction([EMAIL]), require="exact")
        assert (play(on, call(body)), on.tier) == (1, "exact")
    miss(player(recorded, redaction=RunRedaction([EMAIL])), call({"a": "mail ada@example.org later"}))


def test_value_of_a_recorded_placeholder_is_learned() -> None:
    redaction = RunRedaction()
    on = player(call({"a": "I am [redacted:name]."}), call({"b": "[redacted:name] again"}), redaction=redaction)
    miss(on, call({"a": "You are Grace."}))
    assert play(on, call({"a": "I am Grace."})) == 1
    assert redaction.text("Grace was here") == "[redacted:name] was here"
    assert play(on, call({"b": "Grace again"})) == 2


def test_placeholder_does_not_match_an_empty_value() -> None:
    miss(player(call({"a": "I am [redacted:name]."})), call({"a": "I am ."}))
    miss(player(call({"a": "[redacted:name]", "b": 1})), call({"a": "Grace", "b": 2}))


# --- misses ----------------------------------------------------------------------------------------------------------


def test_miss_names_the_nearest_interaction() -> None:
    on = player(call({"a": 1, "b": 1}), call({"a": 2, "b": 2, "c": 2}), call({"a": 9, "b": 9, "c": 9}))
    found = miss(on, call({"a": 2, "b": 2, "c": 3}))
    assert (found["nearest"], found["line"]) == (2, 2)
    assert "c is 3, but the cassette has 2" in found["difference"]


def test_played_interactions_are_not_named_as_nearest() -> None:
    on = player(call({"a": 1}))
    play(on, call({"a": 1}))
    assert miss(on, call({"a": 2}))["nearest"] is None
    assert miss(player(), call({}))["nearest"] is None


def test_secrets_are_masked_in_a_miss() -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    for was, now in (
        ({"a": "none"}, {"a": f"Bearer {key}", "b": key}),
        ({}, {"b": {"c": key}}),
        ({"a": key + "1"}, {"a": key + "2"}),
    ):
        shown = json.dumps(miss(player(call(was)), call(now)))
        assert key[10:30] not in shown


def test_unused_error_names_the_unplayed_interactions() -> None:
    recorded = cassette_of(call({"a": 1}), call({"a": 2}), call({"a": 3}))
    error = unused_error((2, 3), recorded.interactions)
    assert (error.code, error.exit_code) == ("cassette.unused", 3)
    assert error.fields == {"turn": None, "nearest": 2, "difference": None, "unused": [2, 3], "line": 2}
    what = "the request like POST https://api.example/v1/chat"
    assert error.message == f"2 of 3 recorded interactions were not played: {what}, and 1 more"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
    max_leaves=6,
)


@given(JSON_VALUES, JSON_VALUES)
def test_requests_match_exactly_when_no_difference_is_named(one: Any, two: Any) -> None:
    """Two requests are told apart exactly when a difference can be named."""
    assert (match_key(call(one)) == match_key(call(two))) == (not list(describe_differences(call(one), call(two))))


def test_matching_time_does_not_grow_with_the_cassette() -> None:
    """Finding a reply does not get slower with the cassette."""
    calls = [call({"n": n, "text": "x" * 200}) for n in range(5000)]
    on = player(*calls)
    with at_most(800_000):
        assert [play(on, asked) for asked in reversed(calls)] == list(range(5000, 0, -1))
