"""The result that the model reads of an HTTP reply, and the expressions that select it."""

from __future__ import annotations

import pytest

from agentrun.compiler.jmespath import UnusableJmespath, evaluate_jmespath, parse_jmespath
from agentrun.wire import HttpReply

from .http_calls import http_call, result_of_reply, text_of

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
def test_result_expression_selects_from_a_json_reply(result: str | None, expected: str) -> None:
    returned = result_of_reply(http_call(result=result), HttpReply(200, JSON, ORDERS))
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
def test_reply_that_the_expression_cannot_read_is_a_fault(body: bytes, result: str) -> None:
    returned = result_of_reply(http_call(result=result), HttpReply(200, JSON, body))
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
def test_reply_is_decoded_by_its_content_type(kind: str, body: bytes, expected: str) -> None:
    headers = (("content-type", kind),) if kind else ()
    assert text_of(result_of_reply(http_call(), HttpReply(200, headers, body))) == expected


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 199])
def test_error_status_is_a_fault_with_the_body(status: int) -> None:
    returned = result_of_reply(http_call(result="a"), HttpReply(status, JSON, b'{"why": "no"}'))
    assert returned.fault is not None
    assert (returned.fault.code, returned.fault.fields) == ("tool.execution", {"tool": "shop", "status": status})
    assert text_of(returned) == f'tool.execution: status {status}\n{{"why": "no"}}'


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_empty_success_reply_names_its_status(status: int) -> None:
    assert text_of(result_of_reply(http_call(result="a"), HttpReply(status, (), b""))) == f"status {status}, no body"


def test_redirect_of_a_post_is_its_result() -> None:
    reply = HttpReply(303, (("location", "/orders/7"),), b"see there")
    returned = result_of_reply(http_call(method="POST", effect="at_most_once"), reply)
    assert (text_of(returned), returned.fault) == ("status 303, location: /orders/7\nsee there", None)


# --- expressions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "", "a[", "a..b", "(" * 600, "!" * 1000, "foo(@)", "[@,@]|" * 8 + "@", "[@,@][]|" * 8 + "@", "'a\\", "`[[[[`",
        "to_string(" * 8 + "@" + ")" * 8, "map(&[@,@]|[@,@]|[@,@]|[@,@], @)|" * 2 + "@", "*" * 1024,
    ],
)  # fmt: skip
def test_invalid_or_too_complex_expression_is_refused(expression: str) -> None:
    with pytest.raises(UnusableJmespath):
        parse_jmespath(expression)
    with pytest.raises(UnusableJmespath):
        evaluate_jmespath(expression, {})


MANY = "[*].{" + ", ".join(f"f{n}: f{n}" for n in range(60)) + "}"


@pytest.mark.parametrize("expression", ["a", "a.b[0]", MANY, "@"])
def test_valid_expression_is_parsed(expression: str) -> None:
    parse_jmespath(expression)


def test_join_with_too_large_a_result_is_refused() -> None:
    with pytest.raises(UnusableJmespath):
        evaluate_jmespath("join(s, l)", {"s": "x" * 1000, "l": ["y"] * 10_000})
    assert evaluate_jmespath("join(s, l)", {"s": ",", "l": ["y"] * 3}) == "y,y,y"
