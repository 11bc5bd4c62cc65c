"""Playing a cassette: matching, misses, leftovers."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.explain import differences
from agentrun.cassette.match import key_of
from agentrun.cassette.player import Player, unused_error
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.engine.clock import StepClock
from agentrun.errors import CassetteError
from agentrun.wire import HttpCall, HttpReply

URL = "https://api.example/v1/chat"


def call(body: Any, url: str = URL, method: str = "POST") -> HttpCall:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpCall(method, url, (), data)


def tape(*calls: HttpCall) -> Cassette:
    """A recording whose replies are numbered from 1."""
    played = [Interaction(one, HttpReply(200, (), b"%d" % n), end=n * 100, line=n) for n, one in enumerate(calls, 1)]
    return Cassette(tuple(played), {}, 0, "sha256:tape")


def player(*calls: HttpCall) -> Player:
    return Player(tape(*calls), lambda end: None)


def play(on: Player, asked: HttpCall) -> int:
    return int(StepClock().run(on.send(asked, gap=0, time=0)).body)


def miss(on: Player, asked: HttpCall) -> dict[str, Any]:
    with pytest.raises(CassetteError) as caught:
        play(on, asked)
    assert (caught.value.code, caught.value.exit_code) == ("cassette.miss", 3)
    assert caught.value.fields["difference"] in caught.value.message
    return caught.value.fields


def test_play() -> None:
    on = player(call({"a": 1}), call({"a": 2}))
    assert play(on, call({"a": 2})) == 2
    assert on.unused() == (1,)
    assert play(on, call({"a": 1})) == 1
    assert on.unused() == ()


def test_a_streamed_reply_is_heard_in_one_piece() -> None:
    heard: list[bytes] = []
    sent = player(call({})).send(call({}), gap=0, time=0, heard=heard.append)
    assert StepClock().run(sent).body == b"1"
    assert heard == [b"1"]


def test_a_refusal_is_not_heard() -> None:
    refused = Cassette((Interaction(call({}), HttpReply(500, (), b"no")),), {}, 0, "sha256:tape")
    heard: list[bytes] = []
    sent = Player(refused, lambda end: None).send(call({}), gap=0, time=0, heard=heard.append)
    assert StepClock().run(sent).status == 500
    assert heard == []


def test_equal_requests_in_recorded_order() -> None:
    on = player(call({}), call({"a": 1}), call({}), call({}))
    assert [play(on, call({})) for _ in range(3)] == [1, 3, 4]
    assert miss(on, call({})) == {"nearest": None, "difference": "it was recorded, but not this many times"}


@pytest.mark.parametrize(
    "asked",
    [
        call(b'{"b":[1,2],"a":0}'),
        call(b' { "a" : 0.0 , "b" : [1.0, 2e0] } '),
        call(b'{"a":-0.0,"b":[1,2]}', method="post"),
        HttpCall("POST", URL, (("authorization", "x"),), b'{"a":0,"b":[1,2]}'),
    ],
)
def test_equal_in_meaning(asked: HttpCall) -> None:
    assert play(player(call({"a": 0, "b": [1, 2]})), asked) == 1


@pytest.mark.parametrize(
    ("asked", "difference"),
    [
        (call({"a": 0, "b": [1, 2]}, method="PUT"), "the method is PUT, recorded was POST"),
        (
            call({"a": 0, "b": [1, 2]}, url=URL + "s"),
            'the address is "…example/v1/chats", recorded was "…example/v1/chat"',
        ),
        (call({"a": 1, "b": [1, 2]}), "a is 1, recorded was 0"),
        (call({"a": False, "b": [1, 2]}), "a is false, recorded was 0"),
        (call({"a": 0, "b": [1, 3]}), "b[1] is 3, recorded was 2"),
        (call({"a": 0, "b": [1]}), "b has 1 items, recorded were 2"),
        (call({"a": 0, "b": {"0": 1}}), 'b is {"0":1}, recorded was [1,2]'),
        (call({"b": [1, 2]}), "a is missing, recorded was 0"),
        (call({"a": 0, "b": [1, 2], "c": None}), "c is new: null"),
        (call([]), 'the body is [], recorded was {"a":0,"b":[1,2]}'),
        (call(b"text"), "the body differs, and is not JSON"),
    ],
)
def test_miss(asked: HttpCall, difference: str) -> None:
    on = player(call({"a": 0, "b": [1, 2]}))
    assert miss(on, asked) == {"nearest": 1, "difference": difference}
    assert on.unused() == (1,), "a miss plays nothing"


def test_body_that_is_not_json() -> None:
    on = player(call(b"a=1"), call(b"\xff"))
    assert play(on, call(b"\xff")) == 2
    assert miss(on, call(b"a=2"))["nearest"] == 1
    assert play(on, call(b"a=1")) == 1


def test_only_the_address_differs() -> None:
    shown = miss(player(call(b"text")), call(b"text", url="https://other.example"))["difference"]
    assert shown.startswith("the address is ")


def test_nearest() -> None:
    on = player(call({"a": 1, "b": 1}), call({"a": 2, "b": 2, "c": 2}), call({"a": 9, "b": 9, "c": 9}))
    assert miss(on, call({"a": 2, "b": 2, "c": 3})) == {"nearest": 2, "difference": "c is 3, recorded was 2"}


def test_nearest_of_what_is_left() -> None:
    on = player(call({"a": 1}))
    play(on, call({"a": 1}))
    assert miss(on, call({"a": 2})) == {"nearest": None, "difference": "every recorded interaction was played already"}
    assert miss(player(), call({}))["nearest"] is None


def test_texts_are_shown_around_the_difference() -> None:
    one, two = "x" * 500 + "region: eu. " + "y" * 500, "x" * 500 + "region: us. " + "y" * 500
    shown = miss(player(call({"m": [{"content": one}]})), call({"m": [{"content": two}]}))["difference"]
    assert shown.startswith('m[0].content is "…xxxxxxxregion: us. yyy')
    assert 'recorded was "…xxxxxxxregion: eu. yyy' in shown
    assert len(shown) < 200


def test_secrets_are_masked() -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    shown = miss(player(call({"a": "none"})), call({"a": f"Bearer {key}", "b": key}))["difference"]
    assert key not in shown
    assert key[10:30] not in shown
    assert key not in miss(player(call({})), call({"b": {"c": key}}))["difference"]


def test_secrets_are_masked_before_they_are_cut() -> None:
    """A key that begins before the shown part must not be shown from its middle."""
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    shown = miss(player(call({"a": key + "1"})), call({"a": key + "2"}))["difference"]
    assert "ABCDEFGHIJ" not in shown


def test_clock_moves_to_the_recorded_end() -> None:
    moves: list[int] = []
    silent = Interaction(call({"a": 3}), HttpReply(200, (), b"3"))
    recorded = tape(call({"a": 1}), call({"a": 2})).interactions
    on = Player(Cassette((*recorded, silent), {}, 0, ""), moves.append)
    for asked in ({"a": 2}, {"a": 3}, {"a": 1}):
        play(on, call(asked))
    assert moves == [200, 100]


def test_unused() -> None:
    recorded = tape(call({"a": 1}), call({"a": 2}), call({"a": 3}))
    error = unused_error((2, 3), recorded.interactions)
    assert (error.code, error.exit_code) == ("cassette.unused", 3)
    assert error.fields == {"unused": [2, 3], "nearest": 2, "line": 2}
    assert "2 of 3" in error.message


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_a_miss_has_a_difference(one: Any, two: Any) -> None:
    """Two requests are told apart exactly when a difference can be named."""
    assert (key_of(call(one)) == key_of(call(two))) == (not list(differences(call(one), call(two))))


def test_many() -> None:
    """Finding a reply does not get slower with the tape."""
    calls = [call({"n": n, "text": "x" * 200}) for n in range(5000)]
    on = player(*calls)
    began = time.perf_counter()
    assert [play(on, asked) for asked in reversed(calls)] == list(range(5000, 0, -1))
    assert time.perf_counter() - began < 2
