"""What a model reads of a reply."""

from __future__ import annotations

import pytest

from agentrun.compiler.jmespath import UnusableJmespath, evaluate_jmespath, parse_jmespath
from agentrun.wire import HttpReply

from .endpoints import gives, http_call, text_of

ORDERS = b'{"orders": [{"id": 7, "state": "late"}, {"id": 8, "state": "paid"}], "next": null, "name": "shop"}'
JSON = (("content-type", "application/json"),)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, ORDERS.decode()),
        ("orders[*].id", "[7,8]"),
        ("orders[?state=='late'].{id: id, s: state}", '[{"id":7,"s":"late"}]'),
        ("name", "shop"),
        ("next", "null"),
        ("nothing.there", "null"),
        ("length(orders)", "2"),
    ],
)
def test_results(result: str | None, expected: str) -> None:
    returned = gives(http_call(result=result), HttpReply(200, JSON, ORDERS))
    assert (text_of(returned), returned.fault) == (expected, None)


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b"<html>", "a"),
        (b'{"a": NaN}', "a"),
        (b"[" * 100_000, "a"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a"),
        (b"\xff\xfe", "a"),
        (b'{"a": "x"}', "abs(a)"),
        (b'{"a": "1e999"}', "to_number(a)"),
        (b'"\\ud800"', "@"),
        (b"[" + b"1," * 300_000 + b"1]", "[?@>`0`]|[?@>`0`]|[?@>`0`]"),
    ],
)
def test_what_gives_no_result(body: bytes, result: str) -> None:
    returned = gives(http_call(result=result), HttpReply(200, JSON, body))
    assert returned.fault is not None
    assert (returned.fault.code, returned.fault.fields["status"]) == ("tool.execution", 200)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", "grüße".encode(), "grüße"),
        ("text/plain; charset=iso-8859-1", "grüße".encode("latin-1"), "grüße"),
        ('text/html; charset="windows-1252"', "€".encode("cp1252"), "€"),
        ("text/plain; charset=idna", b"abc", "abc"),
        ("text/plain; charset=zip", b"abc", "abc"),
        ("text/plain; charset=no-such", b"a\xff", "a\ufffd"),
        ("application/problem+json", b'{"a": 1}', '{"a": 1}'),
        ("application/xml", b"<a/>", "<a/>"),
        ("", b"plain", "plain"),
        ("", b"\xff\xd8\xff", "[3 bytes that are not text; content type: unknown]"),
        ("image/png", b"\x89PNG", "[4 bytes that are not text; content type: image/png]"),
        ("image/\x1b[2J", b"\x89PNG", "[4 bytes that are not text; content type: unknown]"),
    ],
)
def test_texts(kind: str, body: bytes, expected: str) -> None:
    headers = (("content-type", kind),) if kind else ()
    assert text_of(gives(http_call(), HttpReply(200, headers, body))) == expected


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 199])
def test_refusals_are_read(status: int) -> None:
    returned = gives(http_call(result="a"), HttpReply(status, JSON, b'{"why": "no"}'))
    assert returned.fault is not None
    assert (returned.fault.code, returned.fault.fields) == ("tool.execution", {"tool": "shop", "status": status})
    assert text_of(returned) == f'tool.execution: status {status}\n{{"why": "no"}}'


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_successes(status: int) -> None:
    assert text_of(gives(http_call(result="a"), HttpReply(status, (), b""))) == f"status {status}, no body"


def test_a_redirection_of_what_changes_something_is_its_result() -> None:
    reply = HttpReply(303, (("location", "/orders/7"),), b"see there")
    returned = gives(http_call(method="POST", effect="at_most_once"), reply)
    assert (text_of(returned), returned.fault) == ("status 303, location: /orders/7\nsee there", None)


# --- expressions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "", "a[", "a..b", "(" * 600, "!" * 1000, "foo(@)", "[@,@]|" * 8 + "@", "[@,@][]|" * 8 + "@", "'a\\", "`[[[[`",
        "to_string(" * 8 + "@" + ")" * 8, "map(&[@,@]|[@,@]|[@,@]|[@,@], @)|" * 2 + "@", "*" * 1024,
    ],
)  # fmt: skip
def test_what_is_no_expression(expression: str) -> None:
    with pytest.raises(UnusableJmespath):
        parse_jmespath(expression)
    with pytest.raises(UnusableJmespath):
        evaluate_jmespath(expression, {})


MANY = "[*].{" + ", ".join(f"f{n}: f{n}" for n in range(60)) + "}"


@pytest.mark.parametrize("expression", ["a", "a.b[0]", MANY, "@"])
def test_expressions(expression: str) -> None:
    parse_jmespath(expression)


def test_a_join_that_makes_too_much() -> None:
    with pytest.raises(UnusableJmespath):
        evaluate_jmespath("join(s, l)", {"s": "x" * 1000, "l": ["y"] * 10_000})
    assert evaluate_jmespath("join(s, l)", {"s": ",", "l": ["y"] * 3}) == "y,y,y"
