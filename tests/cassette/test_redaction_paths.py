"""Values selected by the paths and patterns of `replay.redact`."""

import json
from typing import Any

import pytest

from agentrun.cassette.interactions import Failure, Interaction
from agentrun.cassette.redaction import find_redacted_values, redact_interaction
from agentrun.core.package import RedactionRule
from agentrun.redactor import Redactor
from agentrun.wire import HttpCall, HttpReply

from .unredacted import find_unredacted

MAIL = "[a-z]+@[a-z.]+[a-z]"
JSON = (("content-type", "application/json"),)


def call(body: Any, url: str = "https://shop.example/v1", reply: Any = None) -> Interaction:
    return Interaction(HttpCall("POST", url, JSON, _bytes(body)), HttpReply(200, JSON, _bytes(reply)))


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()


def find_values(interaction: Interaction, path: str | None = None, pattern: str | None = None) -> list[str]:
    values = find_redacted_values([interaction], [RedactionRule("it", path, pattern)])
    assert {name for name, _ in values} <= {"it"}
    return [value.reveal() for _, value in values]


ORDER = {
    "user": {"mail": "ann@shop.example", "id": 70012, "tags": ["first", "second"], "is_new": True, "note": None},
    "items": [{"price": 12.50, "name": "lamp"}, {"price": 3, "name": "rug of ann@home.example"}],
    "body": {"mail": "in-body"},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("user.mail", ["ann@shop.example"]),
        ("body.user.mail", ["ann@shop.example"]),
        ("body.mail", ["in-body"]),
        ("user.id", ["70012"]),
        ("items.*.name", ["lamp", "rug of ann@home.example"]),
        ("items.1.name", ["rug of ann@home.example"]),
        ("items.*.price", ["12.5"]),
        ("user.tags", ["first", "second"]),
        ("user.*", ["ann@shop.example", "70012", "first", "second"]),
        ("*.mail", ["ann@shop.example", "in-body"]),
        ("user.is_new", []),
        ("user.note", []),
        ("mail", []),
        ("user.mail.x", []),
        ("items.2.name", []),
    ],
)
def test_path_selects_values_in_request_and_reply(path: str, values: list[str]) -> None:
    assert find_values(call(ORDER), path) == values
    assert find_values(call(None, reply=ORDER), path) == values
    assert find_values(call(None, reply=json.dumps(ORDER, indent=2).encode()), path) == values


def test_numbers_are_found_in_every_spelling() -> None:
    assert find_values(call(b'{"a": 12.50, "b": 1e3, "c": -100}'), "*") == ["12.50", "12.5", "1e3", "1000.0", "-100"]


def test_path_with_a_pattern_selects_the_match() -> None:
    assert find_values(call(ORDER), "items.*.name", MAIL) == ["ann@home.example"]
    assert find_values(call(ORDER), "user.mail", "^[a-z]+") == ["ann"]


def test_pattern_is_searched_in_every_text() -> None:
    everywhere = Interaction(
        HttpCall("GET", "https://x.example/a%40url.example?m=bob+cat%40query.example", (("x", "b@head.example"),), b""),
        HttpReply(200, (("y", "c@answer.example"),), b"plain d@text.example\n\xff"),
        failure=Failure("x", "e@failure.example", {"deep": ["f@fields.example"], "g@key.example": 1}),
    )
    values = find_values(everywhere, None, MAIL)
    names = ["a@url.example", "cat@query.example", "b@head.example", "c@answer.example", "d@text.example"]
    assert values == [*names, "e@failure.example", "g@key.example", "f@fields.example"]
    assert find_values(call({"k@key.example": {"l": "m@leaf.example"}}), None, MAIL) == [
        "k@key.example",
        "m@leaf.example",
    ]
    assert find_values(call({"n": [4111111111111111, "no"]}), None, "[0-9]{16}") == ["4111111111111111"]


def test_paths_and_patterns_enter_json_texts() -> None:
    """Arguments and results: a path may lead through them or begin there, and a pattern does not take their signs."""
    arguments = json.dumps({"to": {"mail": "ann@shop.example"}, "n": 70012})
    asked = call({"calls": [{"function": {"arguments": arguments}}]})
    assert find_values(asked, "to.mail") == ["ann@shop.example"]
    assert find_values(asked, "calls.*.function.arguments.to.mail") == ["ann@shop.example"]
    assert find_values(asked, "n") == ["70012"]
    assert find_values(asked, "calls.*.function.arguments") == [arguments]
    assert find_values(asked, None, "[^ ]+@[^ ]+") == ["ann@shop.example"]
    assert find_values(call(None, reply=arguments.encode()), "to.mail") == ["ann@shop.example"]


def test_short_values_and_empty_rules_are_ignored() -> None:
    asked = call({"a": "xy", "b": "xyz"})
    assert find_values(asked, "*") == ["xyz"]
    assert find_values(asked, None, "x?") == []
    assert find_values(asked, None, None) == []
    assert find_redacted_values([asked], []) == []


def test_values_are_listed_once_in_order() -> None:
    rules = [RedactionRule("one", "a", None), RedactionRule("two", None, "\\bx[a-z]+")]
    values = find_redacted_values([call({"a": "xyz"}), call({"a": "xyz", "b": "xab"})], rules)
    assert [(name, value.reveal()) for name, value in values] == [("one", "xyz"), ("two", "xyz"), ("two", "xab")]
    assert "xyz" not in repr(values)


def test_placeholders_are_not_selected() -> None:
    asked = call({"a": "[redacted:other]", "b": "say [redacted:other]!"})
    assert find_values(asked, "a") == []
    assert find_values(asked, None, "[a-z]+") == ["https", "shop", "example", "application", "json", "say"]
    assert find_values(asked, None, "say.*") == ["say [redacted:other]!"]


def test_value_found_once_is_redacted_in_all_interactions() -> None:
    told = call({"city": "Ulm", "mail": "ann@shop.example"}, url="tool://save")
    other = call({"text": "Ann of Ulm, ann@shop.example"}, reply=b'data: {"d":"U"}\n\ndata: {"d":"lm!"}\n\n')
    rules = [RedactionRule("city", "city", None), RedactionRule("mail", None, MAIL)]
    redactor = Redactor([]).with_values(find_redacted_values([told, other], rules), shortest=3)
    clean = [redact_interaction(one, redactor) for one in (told, other)]
    assert json.loads(clean[0].call.body) == {"city": "[redacted:city]", "mail": "[redacted:mail]"}
    assert json.loads(clean[1].call.body) == {"text": "Ann of [redacted:city], [redacted:mail]"}
    assert clean[1].reply.body == b'data: {"d":"[redacted:city]"}\n\ndata: {"d":"!"}\n\n'
    assert find_unredacted(clean, redactor) is None
    assert find_redacted_values(clean, rules) == [], "what is redacted has no values"
