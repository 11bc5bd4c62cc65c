"""`find_leaks`: credentials in any place of a cassette are found and reported without their value."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette.interactions import Cassette, Failure, Interaction
from agentrun.cassette.leaks import MAX_LEAKS, find_leaks
from agentrun.cassette.redaction import RunRedaction, redact_cassette
from agentrun.credentials import find_credentials
from agentrun.errors import StorageError
from agentrun.redactor import Redactor
from agentrun.wire import HttpCall, HttpReply

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"
PHRASE = "correct horse battery"
"""Has no shape: only the environment knows that it is a secret."""
KNOWN_SECRETS = Redactor(find_credentials({"SHOP_TOKEN": PHRASE, "HOME": "/somewhere/far", "SHORT_TOKEN": "abc"}))
NO_SECRETS = Redactor([])
CHAT = "https://api.openai.com/v1/chat/completions"
QUESTION = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
END = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def data(value: Any) -> bytes:
    return json.dumps(value).encode()


def cassette_of(interaction: Interaction, **metadata: Any) -> Cassette:
    return Cassette((interaction,), metadata, 0)


def one(
    url: str = "tool://x",
    asked: bytes = b"{}",
    answered: bytes = b"ok",
    *,
    asked_headers: tuple[tuple[str, str], ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    failure: Failure | None = None,
) -> Interaction:
    method = "POST" if url == CHAT else "CALL"
    reply = HttpReply(200, headers, answered)
    return Interaction(HttpCall(method, url, asked_headers, asked), reply, line=7, failure=failure)


def streamed(value: str) -> Interaction:
    """The value in two halves, in two events."""
    half = len(value) // 2
    deltas = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in (value[:half], value[half:])]
    body = "".join(f"data: {json.dumps(delta)}\n\n" for delta in deltas) + END
    return one(CHAT, data(QUESTION), body.encode(), headers=(("content-type", "text/event-stream"),))


def call_with_password(value: str) -> Interaction:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": json.dumps({"password": value})}}
    first = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    end = END.replace('"stop"', '"tool_calls"')
    body = f"data: {json.dumps(first)}\n\n{end}"
    return one(CHAT, data(QUESTION), body.encode(), headers=(("content-type", "text/event-stream"),))


def cassettes_with(value: str) -> dict[str, Cassette]:
    return {
        "address": cassette_of(one(url=f"https://shop.example/?q={value}")),
        "request": cassette_of(one(asked=data({"deep": [[{"password": value}]]}))),
        "request that is no JSON": cassette_of(one(asked=f"say {value}".encode())),
        "key": cassette_of(one(asked=data({value: 1}))),
        "header of the request": cassette_of(one(asked_headers=(("x-api-key", value),))),
        "reply": cassette_of(one(answered=f"it is {value}.".encode())),
        "header of the reply": cassette_of(one(headers=(("x-note", value),))),
        "JSON in JSON": cassette_of(one(answered=data({"x": json.dumps({"api_key": value})}))),
        "pieces of a stream": cassette_of(streamed(value)),
        "arguments of a call": cassette_of(call_with_password(value)),
        "failure": cassette_of(one(failure=Failure("tool.execution", f"refused {value}"))),
        "evidence of a failure": cassette_of(one(failure=Failure("tool.execution", "refused", {"sent": [value]}))),
        "metadata": cassette_of(one(), params={"a": [value]}),
    }


@pytest.mark.parametrize("place", cassettes_with(""))
def test_key_with_a_known_format_is_found(place: str) -> None:
    found = find_leaks(cassettes_with(KEY)[place], NO_SECRETS)
    assert {leak.what for leak in found} == {"openai key"}
    assert KEY not in repr(found)


@pytest.mark.parametrize("place", cassettes_with(""))
def test_value_of_an_environment_variable_is_found(place: str) -> None:
    assert {leak.what for leak in find_leaks(cassettes_with(PHRASE)[place], KNOWN_SECRETS)} == {"SHOP_TOKEN"}
    assert find_leaks(cassettes_with(PHRASE)[place], NO_SECRETS) == []  # the twin: nobody knows it


@pytest.mark.parametrize("place", cassettes_with(""))
@pytest.mark.parametrize("value", ["[redacted:SHOP_TOKEN]", "${SHOP_TOKEN}", "sk-...", "order 1042", "/somewhere/far"])
def test_placeholders_and_ordinary_values_are_no_leaks(place: str, value: str) -> None:
    assert find_leaks(cassettes_with(value)[place], KNOWN_SECRETS) == []


def test_leak_names_interaction_line_and_place() -> None:
    assert [(leak.number, leak.line, leak.place) for leak in find_leaks(cassettes_with(KEY)["reply"], NO_SECRETS)] == [
        (1, 7, "reply body")
    ]
    assert [
        (leak.number, leak.line, leak.place) for leak in find_leaks(cassettes_with(KEY)["metadata"], NO_SECRETS)
    ] == [(0, 1, "metadata")]


def test_random_value_under_a_credential_key_is_found() -> None:
    random = "9f8a7b6c5d4e3f2a1b0c"
    assert [leak.what for leak in find_leaks(cassette_of(one(asked=data({"password": random}))), NO_SECRETS)] == [
        "credential"
    ]
    assert find_leaks(cassette_of(one(asked=data({"digest": random}))), NO_SECRETS) == []
    assert find_leaks(cassette_of(one(headers=(("set-cookie", f"s={random}; Path=/"),))), NO_SECRETS) != []


def test_credential_key_inside_json_text_is_found() -> None:
    inner = json.dumps({"api_key": "9f8a7b6c5d4e3f2a1b0c"})
    assert [leak.what for leak in find_leaks(cassette_of(one(answered=data({"x": inner}))), NO_SECRETS)] == [
        "credential"
    ]


def test_json_escapes_do_not_hide_a_key() -> None:
    escaped = "".join(f"\\u{ord(char):04x}" for char in KEY)
    for body in (f'{{"{escaped}": 1}}', f'["{escaped}"]'):
        assert [leak.what for leak in find_leaks(cassette_of(one(answered=body.encode())), NO_SECRETS)] == [
            "openai key"
        ]


def test_base64_of_a_known_value_is_found() -> None:
    body = b"\x89PNG" + b64encode(f"a{PHRASE}".encode())
    assert [leak.what for leak in find_leaks(cassette_of(one(answered=body)), KNOWN_SECRETS)] == ["SHOP_TOKEN"]


def test_number_of_reported_leaks_is_limited() -> None:
    many = Cassette(tuple([one(answered=KEY.encode())] * (MAX_LEAKS + 5)), {}, 0)
    assert len(find_leaks(many, NO_SECRETS)) == MAX_LEAKS


def test_deeply_nested_bodies_are_searched_without_error() -> None:
    deep = b"[" * 900 + b'"x"' + b"]" * 900
    assert find_leaks(cassette_of(one(asked=deep, answered=b"[" * 100_000)), NO_SECRETS) == []


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaf = st.none() | st.booleans() | st.integers() | texts
trees = st.recursive(leaf, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10)


@given(trees, st.lists(texts, max_size=5), st.booleans())
def test_key_anywhere_in_a_json_body_is_found(tree: Any, path: list[str], in_reply: bool) -> None:
    value: Any = f"it is {KEY} "
    for key in path:
        value = {key: value, "more": [tree]}
    body = data([tree, value])
    cassettes = cassette_of(one(answered=body) if in_reply else one(asked=body))
    assert "openai key" in [leak.what for leak in find_leaks(cassettes, NO_SECRETS)]


@pytest.mark.parametrize("place", cassettes_with(""))
def test_found_keys_are_redacted_before_writing(place: str) -> None:
    found = cassettes_with(KEY)[place]
    clean = redact_cassette(RunRedaction(), found.interactions, found.metadata)
    assert find_leaks(clean, NO_SECRETS) == []
    assert KEY not in repr(clean)
    assert "[redacted:openai-key]" in repr(clean)


def test_cassette_without_keys_is_not_changed() -> None:
    interaction = one(asked=data({"token": "Hello", "url": "http://host", "mail": "a@b"}))
    clean = redact_cassette(RunRedaction(), (interaction,), {"params": {"order": "1042"}})
    assert (clean.interactions, clean.metadata) == ((interaction,), {"params": {"order": "1042"}})


def test_key_that_is_left_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunRedaction, "learn", lambda redaction, values: None)
    with pytest.raises(StorageError, match=r"openai key.* interaction 1, reply body") as caught:
        redact_cassette(RunRedaction(), (one(answered=KEY.encode()),), {})
    assert KEY not in str(caught.value)


def test_addresses_next_to_mail_addresses_have_no_password() -> None:
    body = b'{"url":"http://host","email":"ada@shop.example","url":"https://a:9/b","m":"x@y"}'
    assert find_leaks(cassette_of(one(answered=body)), NO_SECRETS) == []


def test_key_in_the_stream_of_an_unknown_service_is_found() -> None:
    body = "".join(f"data: {json.dumps({'delta': text})}\n\n" for text in (KEY[:9], KEY[9:]))
    found = cassette_of(one("https://shop.example/stream", answered=body.encode()))
    assert {leak.what for leak in find_leaks(found, NO_SECRETS)} == {"openai key"}
    clean = redact_cassette(RunRedaction(), found.interactions, {}).interactions[0].reply.body
    assert KEY[9:].encode() not in clean
    assert b"[redacted:openai-key]" in clean
