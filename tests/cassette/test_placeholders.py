"""Values of placeholders, learned by comparing a recorded request with the current one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.redaction import MAX_LEARNED_VALUES, PlaceholderValues, RunRedaction, match_placeholders
from agentrun.wire import HttpCall


def call(body: Any, url: str = "https://api.example/", method: str = "POST") -> HttpCall:
    return HttpCall(method, url, (), body if isinstance(body, bytes) else json.dumps(body).encode())


def revealed(found: PlaceholderValues | None) -> tuple[list[tuple[str, str]], list[tuple[str, str]]] | None:
    if found is None:
        return None
    values = [(name, value.reveal()) for name, value in found.values]
    return values, [(value.reveal(), words) for value, words in found.stretches]


A, B = "[redacted:a]", "[redacted:b]"


@pytest.mark.parametrize(
    ("was", "now", "values", "stretches"),
    [
        (f"I am {A}.", "I am Jo.", [("a", "Jo")], []),
        (A, "Jo", [("a", "Jo")], []),
        (f"{A}, {B}", "Jo, Ann", [("a", "Jo"), ("b", "Ann")], []),
        (f"{A} {B}", "Jo Ann Lee", [], [("Jo Ann Lee", f"{A} {B}")]),
        (f"{A}{B}!", "JoAnn!", [], [("JoAnn", f"{A}{B}")]),
        (f"x {A} {B}: {A}", "x Jo Ann Lee: Jo", [("a", "Jo")], [("Jo Ann Lee", f"{A} {B}")]),
        ([{"k": A}, 1], [{"k": 4711}, 1.0], [("a", "4711")], []),
        (f"{A} stays", f"{A} stays", [], []),
    ],
)
def test_values_are_learned_from_a_matching_text(was: Any, now: Any, values: list[Any], stretches: list[Any]) -> None:
    marked = {"mark": A, "text": was}
    given = {"mark": A, "text": now}
    assert revealed(match_placeholders(call(marked), call(given))) == (values, stretches)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (f"I am {A}.", "I am ."),
        (f"I am {A}.", "I am Jo!"),
        (f"{A}{B}", "J"),
        (f"{A} {B}", " x"),
        (A, True),
        (A, None),
        ({"k": A}, {"other": "Jo"}),
        ([A], ["Jo", "Ann"]),
        ("[redacted:]", "x"),
        ("[redacted:a", "x"),
    ],
)
def test_text_that_does_not_match_teaches_nothing(was: Any, now: Any) -> None:
    assert match_placeholders(call(was), call(now)) is None


def test_method_url_and_other_text_must_be_equal() -> None:
    assert match_placeholders(call(A), call("Jo", method="GET")) is None
    assert match_placeholders(call(A), call("Jo", url="https://other.example/")) is None
    assert match_placeholders(call("plain"), call("plain")) is None, "there is nothing to learn"
    assert revealed(match_placeholders(call(b"x=" + A.encode()), call(b"x=Jo"))) == ([("a", "Jo")], []), "no JSON"
    with_query = call({}, url=f"https://api.example/?q={A}")
    assert revealed(match_placeholders(with_query, call({}, url="https://api.example/?q=Jo"))) == ([("a", "Jo")], [])


PIECE = st.text(st.sampled_from("xy ,"), max_size=3)
VALUE = st.text(st.sampled_from("abx, "), min_size=3, max_size=6)


@given(st.lists(st.tuples(PIECE, st.sampled_from("ab")), min_size=1, max_size=4), PIECE, st.data())
def test_redaction_with_learned_values_gives_the_recorded_text(
    parts: list[tuple[str, str]], end: str, data: st.DataObject
) -> None:
    was = "".join(f"{piece}[redacted:{name}]" for piece, name in parts) + end
    now = "".join(piece + data.draw(VALUE) for piece, _ in parts) + end
    redaction = RunRedaction()
    assert redaction.learn_placeholders(call(was), call(now))
    found = match_placeholders(call(was), call(now))
    assert found is not None
    learned = [value.reveal() for _, value in found.values] + [text.reveal() for text, _ in found.stretches]
    if len(learned) == 1 and sum(now.startswith(learned[0], at) for at in range(len(now))) == 1:
        assert redaction.text(now) == was  # a value that also stands elsewhere, or half in itself, is hidden there too


def test_large_and_hostile_texts_are_matched_quickly() -> None:
    """No pattern, no recursion."""
    was, now = f"{A} " * 200_000, "Jo " * 200_000
    assert match_placeholders(call(was), call(now)) is not None
    assert match_placeholders(call(was), call("a" * 500_000)) is None
    assert match_placeholders(call(b"[" * 100_000 + A.encode()), call(b"[" * 100_000)) is None
    many = match_placeholders(call(f"{A}{B}!" * 50_000), call("JoAnn!" * 50_000))
    assert many is not None
    assert len(many.stretches) == 50_000


def test_number_of_learned_values_is_limited() -> None:
    """A request fits, but what a stranger's file hides by the thousand is not learned: each value costs memory."""
    words = [f"w{n:06}" for n in range(MAX_LEARNED_VALUES + 1)]
    redaction = RunRedaction()
    assert redaction.learn_placeholders(call(f"{A}, " * len(words)), call(", ".join([*words, ""])))
    assert redaction.text(words[0]) == words[0]
    assert redaction.learn_placeholders(call(f"{A}, " * 9), call(", ".join([*words[:9], ""])))
    assert redaction.text(words[0]) == A
