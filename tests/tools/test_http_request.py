"""What a tool sends: each argument stays where it is put."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.wire import HttpAuth, NetworkAccess

from .endpoints import AUTH, asked, http_call, refused

# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "value", "expected"),
    [
        ("https://a.example/o/{{ args.x }}", "7", "https://a.example/o/7"),
        ("https://a.example/o/{{ args.x }}", 7, "https://a.example/o/7"),
        ("https://a.example/o/{{ args.x }}/items", "a b", "https://a.example/o/a%20b/items"),
        ("https://a.example/o-{{ args.x }}.json", "ü?&=#%2f", "https://a.example/o-%C3%BC%3F%26%3D%23%252f.json"),
        ("https://a.example/{{ args.x }}?y={{ args.x }}&z=1", "a+b", "https://a.example/a%2Bb?y=a%2Bb&z=1"),
        ("https://a.example?y={{ args.x }}", "a/../b\r\n", "https://a.example?y=a%2F..%2Fb%0D%0A"),
        ("https://a.example/%41/ü?q=%20{{ args.x }}", "x", "https://a.example/%41/%C3%BC?q=%20x"),
        ("https://a.example/{{ '}}' }}/{{ args.x }}", "x", "https://a.example/%7D%7D/x"),
        ("https://a.example/{{ args.x|upper }}", "${KEY}", "https://a.example/%24%7BKEY%7D"),
        ("${BASE}/fixed", "x", "${BASE}/fixed"),
        ("https://${HOST}/fixed?a=b", "x", "https://${HOST}/fixed?a=b"),
    ],
)
def test_addresses(url: str, value: object, expected: str) -> None:
    assert asked(http_call({"x": value}, url=url)).url == expected


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a/b", "/", "..\\x", "a\r\nb", "a\nb", "\0", "\x7f", "\x1b[2J", "\ud800", "../../admin"]
)
def test_what_is_no_segment_of_a_path(value: str) -> None:
    words = refused(http_call({"x": value}, url="https://a.example/o/{{ args.x }}/items"))
    assert value not in words or value in ("", ".", "..", "/")


def test_parts_that_make_a_dot() -> None:
    refused(http_call({"x": "."}, url="https://a.example/.{{ args.x }}/b"))
    refused(http_call({"x": "."}, url="https://a.example/%2e{{ args.x }}"))
    assert asked(http_call({"x": "."}, url="https://a.example/v1{{ args.x }}")).url == "https://a.example/v1."


@pytest.mark.parametrize("url", ["https://a.example/{{ args.y }}", "https://a.example/?y={{ args.y }}"])
def test_an_argument_that_is_not_there(url: str) -> None:
    assert "cannot be filled in" in refused(http_call({"x": "1"}, url=url))


def test_params() -> None:
    call = http_call({"x": "1"}, {"shop": "a b"}, url="https://a.example/{{ shop }}/{{ args.x }}")
    assert asked(call).url == "https://a.example/a%20b/1"


def test_query() -> None:
    query = {"q": "{{ args.x }}", "a&b": "1", "n": "{{ args.n }}"}
    call = http_call({"x": "a&admin=1", "n": 3}, url="https://a.example/s?fixed=1", query=query)
    assert asked(call).url == "https://a.example/s?fixed=1&q=a%26admin%3D1&a%26b=1&n=3"
    assert asked(http_call({"x": "", "n": 0}, url="https://a.example", query={"q": "{{ args.x }}"})).url.endswith("?q=")


def test_an_address_that_is_too_long() -> None:
    assert "8,192" in refused(http_call({"x": "x" * 9000}, url="https://a.example/", query={"q": "{{ args.x }}"}))


@given(st.text(), st.text())
def test_any_text_stays_in_its_place(path: str, value: str) -> None:
    """Whoever reads the address gets exactly the values, in their places, and nothing else changed."""
    url = "https://a.example/o/{{ args.p }}/items?before=1&v={{ args.v }}&after=2"
    made = _url({"p": path, "v": value}, url)
    if made is None:
        odd = any(ord(letter) < 32 or letter in "/\\\x7f" or 0xD800 <= ord(letter) < 0xE000 for letter in path)
        assert odd or path in ("", ".", "..") or any(0xD800 <= ord(letter) < 0xE000 for letter in value)
        return
    parts = urlsplit(made)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "a.example", "")
    assert [unquote(each) for each in parts.path.split("/")] == ["", "o", path, "items"]
    assert parse_qsl(parts.query, keep_blank_values=True) == [("before", "1"), ("v", value), ("after", "2")]
    assert made.isascii()
    assert "${" not in made


def _url(arguments: dict[str, Any], url: str) -> str | None:
    try:
        return asked(http_call(arguments, url=url)).url
    except AssertionError:
        refused(http_call(arguments, url=url))
        return None


# --- headers ------------------------------------------------------------------------------------------------


def test_headers() -> None:
    call = http_call({"x": "de"}, headers={"X-Lang": "{{ args.x }}", "X-Team": "${TEAM}", "Accept": "a/b"})
    assert asked(call).headers == (("X-Lang", "de"), ("X-Team", "${TEAM}"), ("Accept", "a/b"))


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\0b", "é", "\x7f", "${OPENAI_API_KEY}", "a${B}c"])
def test_what_is_no_header(value: str) -> None:
    """An argument must not end its line, and must not name a variable that the sender would fill in."""
    assert value not in refused(http_call({"x": value}, headers={"X-Lang": "{{ args.x }}"}))


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
def test_headers_of_the_request_itself(name: str) -> None:
    assert name in refused(http_call({"x": "1"}, headers={name: "{{ args.x }}"}))


def test_the_credential_is_named_and_not_there() -> None:
    assert asked(http_call(auth=AUTH)).auth == HttpAuth("Authorization", "Bearer ", "SHOP_KEY")
    assert asked(http_call(auth=AUTH | {"scheme": "", "header": "X-Key"})).auth == HttpAuth("X-Key", "", "SHOP_KEY")


def test_reach() -> None:
    call = http_call({"x": "1"}, url="https://a.example/{{ args.x }}", hosts=["a.example"], private_network=False)
    assert asked(call).reach == NetworkAccess(("a.example",), False, 1_000_000, "https://a.example/1")


@pytest.mark.parametrize(
    ("effect", "headers", "expected"),
    [
        ("read", {}, {}),
        ("idempotent", {}, {"Idempotency-Key": "key-of-the-call"}),
        ("at_most_once", {}, {"Idempotency-Key": "key-of-the-call"}),
        ("idempotent", {"idempotency-key": "{{ args.x }}"}, {"idempotency-key": "mine"}),
    ],
)
def test_keys(effect: str, headers: dict[str, str], expected: dict[str, str]) -> None:
    assert dict(asked(http_call({"x": "mine"}, effect=effect, method="POST", headers=headers)).headers) == expected


# --- bodies -------------------------------------------------------------------------------------------------

ARGUMENTS = {"n": 3, "t": 'a"b', "l": [1, None], "o": {"k": True}, "z": None}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"n": "{{ args.n }}"}, {"n": 3}),
        ({"n": "{{args.n}}", "t": "{{- args.t -}}"}, {"n": 3, "t": 'a"b'}),
        (["{{ args.l }}", "{{ args.o }}", "{{ args.o.k }}", "{{ args.z }}"], [[1, None], {"k": True}, True, None]),
        ({"n": "no. {{ args.n }}"}, {"n": "no. 3"}),
        ({"n": "{{ args.n + 1 }}"}, {"n": "4"}),
        ({"a": {"b": ["x", 1, None, False]}}, {"a": {"b": ["x", 1, None, False]}}),
        ({"{{ args.n }}": "${KEY}"}, {"{{ args.n }}": "${KEY}"}),
        ("{{ args.o }}", {"k": True}),
    ],
)
def test_json(body: Any, expected: Any) -> None:
    call = asked(http_call(ARGUMENTS, method="POST", body=body))
    assert msgspec.json.decode(call.body) == expected
    assert call.headers == (("Content-Type", "application/json"),)


def test_text() -> None:
    call = asked(http_call(ARGUMENTS, method="POST", body="n={{ args.n }}\nü"))
    assert call.body == "n=3\nü".encode()
    assert call.headers == (("Content-Type", "text/plain; charset=utf-8"),)
    typed = http_call(ARGUMENTS, method="POST", body="<n>{{ args.n }}</n>", headers={"content-type": "text/xml"})
    assert asked(typed).headers == (("content-type", "text/xml"),)


def test_a_body_that_cannot_be_written() -> None:
    refused(http_call({"x": "\ud800"}, method="POST", body={"x": "{{ args.x }}"}))
    refused(http_call({"x": "\ud800"}, method="POST", body="x={{ args.x }}"))
    refused(http_call({}, method="POST", body={"x": "{{ args.x }}"}))
