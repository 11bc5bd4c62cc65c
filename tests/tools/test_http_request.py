"""The request of an HTTP tool, where each argument stays in its place."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.wire import HttpAuth, NetworkAccess

from .http_calls import AUTH, http_call, refusal_of_call, request_of_call

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
def test_arguments_are_percent_encoded_in_the_url(url: str, value: object, expected: str) -> None:
    assert request_of_call(http_call({"x": value}, url=url)).url == expected


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a/b", "/", "..\\x", "a\r\nb", "a\nb", "\0", "\x7f", "\x1b[2J", "\ud800", "../../admin"]
)
def test_argument_that_is_no_path_segment_is_refused(value: str) -> None:
    words = refusal_of_call(http_call({"x": value}, url="https://a.example/o/{{ args.x }}/items"))
    assert value not in words or value in ("", ".", "..", "/")


def test_argument_that_completes_a_dot_segment_is_refused() -> None:
    refusal_of_call(http_call({"x": "."}, url="https://a.example/.{{ args.x }}/b"))
    refusal_of_call(http_call({"x": "."}, url="https://a.example/%2e{{ args.x }}"))
    assert request_of_call(http_call({"x": "."}, url="https://a.example/v1{{ args.x }}")).url == "https://a.example/v1."


@pytest.mark.parametrize("url", ["https://a.example/{{ args.y }}", "https://a.example/?y={{ args.y }}"])
def test_missing_argument_is_refused(url: str) -> None:
    assert "cannot be filled in" in refusal_of_call(http_call({"x": "1"}, url=url))


def test_params_of_the_agent_fill_the_url() -> None:
    call = http_call({"x": "1"}, {"shop": "a b"}, url="https://a.example/{{ shop }}/{{ args.x }}")
    assert request_of_call(call).url == "https://a.example/a%20b/1"


def test_query_values_are_percent_encoded() -> None:
    query = {"q": "{{ args.x }}", "a&b": "1", "n": "{{ args.n }}"}
    call = http_call({"x": "a&admin=1", "n": 3}, url="https://a.example/s?fixed=1", query=query)
    assert request_of_call(call).url == "https://a.example/s?fixed=1&q=a%26admin%3D1&a%26b=1&n=3"
    assert request_of_call(
        http_call({"x": "", "n": 0}, url="https://a.example", query={"q": "{{ args.x }}"})
    ).url.endswith("?q=")


def test_too_long_url_is_refused() -> None:
    assert "8,192" in refusal_of_call(
        http_call({"x": "x" * 9000}, url="https://a.example/", query={"q": "{{ args.x }}"})
    )


@given(st.text(), st.text())
def test_any_argument_stays_in_its_part_of_the_url(path: str, value: str) -> None:
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
        return request_of_call(http_call(arguments, url=url)).url
    except AssertionError:
        refusal_of_call(http_call(arguments, url=url))
        return None


# --- headers ------------------------------------------------------------------------------------------------


def test_header_templates_are_filled_and_variables_kept() -> None:
    call = http_call({"x": "de"}, headers={"X-Lang": "{{ args.x }}", "X-Team": "${TEAM}", "Accept": "a/b"})
    assert request_of_call(call).headers == (("X-Lang", "de"), ("X-Team", "${TEAM}"), ("Accept", "a/b"))


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\0b", "é", "\x7f", "${OPENAI_API_KEY}", "a${B}c"])
def test_argument_that_breaks_a_header_or_names_a_variable_is_refused(value: str) -> None:
    """An argument must not end its line, and must not name a variable that the sender would fill in."""
    assert value not in refusal_of_call(http_call({"x": value}, headers={"X-Lang": "{{ args.x }}"}))


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
def test_reserved_headers_are_refused(name: str) -> None:
    assert name in refusal_of_call(http_call({"x": "1"}, headers={name: "{{ args.x }}"}))


def test_request_names_the_credential_without_its_value() -> None:
    assert request_of_call(http_call(auth=AUTH)).auth == HttpAuth("Authorization", "Bearer ", "SHOP_KEY")
    assert request_of_call(http_call(auth=AUTH | {"scheme": "", "header": "X-Key"})).auth == HttpAuth(
        "X-Key", "", "SHOP_KEY"
    )


def test_network_access_of_the_request_follows_the_tool() -> None:
    call = http_call({"x": "1"}, url="https://a.example/{{ args.x }}", hosts=["a.example"], private_network=False)
    assert request_of_call(call).reach == NetworkAccess(("a.example",), False, 1_000_000, "https://a.example/1")


@pytest.mark.parametrize(
    ("effect", "headers", "expected"),
    [
        ("read", {}, {}),
        ("idempotent", {}, {"Idempotency-Key": "key-of-the-call"}),
        ("at_most_once", {}, {"Idempotency-Key": "key-of-the-call"}),
        ("idempotent", {"idempotency-key": "{{ args.x }}"}, {"idempotency-key": "mine"}),
    ],
)
def test_idempotency_key_is_sent_unless_the_effect_is_read(
    effect: str, headers: dict[str, str], expected: dict[str, str]
) -> None:
    assert (
        dict(request_of_call(http_call({"x": "mine"}, effect=effect, method="POST", headers=headers)).headers)
        == expected
    )


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
def test_json_body_keeps_the_types_of_arguments(body: Any, expected: Any) -> None:
    call = request_of_call(http_call(ARGUMENTS, method="POST", body=body))
    assert msgspec.json.decode(call.body) == expected
    assert call.headers == (("Content-Type", "application/json"),)


def test_text_body_is_sent_as_plain_text_by_default() -> None:
    call = request_of_call(http_call(ARGUMENTS, method="POST", body="n={{ args.n }}\nü"))
    assert call.body == "n=3\nü".encode()
    assert call.headers == (("Content-Type", "text/plain; charset=utf-8"),)
    typed = http_call(ARGUMENTS, method="POST", body="<n>{{ args.n }}</n>", headers={"content-type": "text/xml"})
    assert request_of_call(typed).headers == (("content-type", "text/xml"),)


def test_body_that_cannot_be_encoded_is_refused() -> None:
    refusal_of_call(http_call({"x": "\ud800"}, method="POST", body={"x": "{{ args.x }}"}))
    refusal_of_call(http_call({"x": "\ud800"}, method="POST", body="x={{ args.x }}"))
    refusal_of_call(http_call({}, method="POST", body={"x": "{{ args.x }}"}))
