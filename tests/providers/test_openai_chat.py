"""OpenAI Chat Completions: neutral requests in, bytes out; bytes in, neutral replies or faults out."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.core.messages import (
    Assistant,
    Message,
    Refusal,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    Transcript,
    Usage,
    User,
)
from agentrun.errors import CODES, PackageError
from agentrun.providers.openai_chat import OWN, OpenAIChat
from agentrun.wire import HttpReply

from ..packages import ROUTE, TRIAGE, package
from ..worlds import completion, failure

CODEC = OpenAIChat()


def request(
    *messages: Message, output: dict[str, Any] | None = None, route: dict[str, Any] | None = None, **settings: Any
) -> ModelRequest:
    agent = package(model={"routes": [ROUTE | (route or {})], **settings})
    said = messages or (User((Text("Hi"),)),)
    return ModelRequest(agent.model.routes[0], agent.model, "Be brief.", Transcript(said), output)


def body(asked: ModelRequest) -> dict[str, Any]:
    return dict(json.loads(CODEC.encode(asked).body))


# --- encode ------------------------------------------------------------------------------------------------


def test_call() -> None:
    call = CODEC.encode(request())
    assert (call.method, call.url) == ("POST", "https://api.openai.com/v1/chat/completions")
    assert call.headers == (("accept", "application/json"), ("content-type", "application/json"))
    assert call.body == (
        b'{"messages":[{"content":"Be brief.","role":"system"},{"content":"Hi","role":"user"}],'
        b'"model":"gpt-4.1-mini","temperature":0.0}'
    )


def test_endpoint_is_the_declared_one() -> None:
    call = CODEC.encode(
        request(route={"base_url": "${MODEL_URL}/v1/", "api_key": "${KEY}", "headers": {"x-b": "2", "x-a": "${A}"}})
    )
    assert call.url == "${MODEL_URL}/v1/chat/completions"
    assert call.headers[2:] == (("x-a", "${A}"), ("x-b", "2"))


def test_no_credential_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "a1" * 20)
    call = CODEC.encode(request(route={"api_key": "${OPENAI_API_KEY}"}))
    assert b"sk-" not in msgspec.json.encode(call)
    assert "authorization" not in dict(call.headers)


def test_settings() -> None:
    every = body(
        request(
            temperature=0.5,
            top_p=0.9,
            seed=7,
            stop=["END"],
            max_output_tokens=100,
            reasoning="low",
            route={"options": {"logit_bias": {"50256": -100}, "user": "u"}},
        )
    )
    del every["messages"]
    assert every == {
        "model": "gpt-4.1-mini",
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END"],
        "max_completion_tokens": 100,
        "reasoning_effort": "low",
        "logit_bias": {"50256": -100},
        "user": "u",
    }
    assert body(request(temperature=None)).keys() == {"model", "messages"}


@pytest.mark.parametrize("key", sorted(OWN))
def test_options_cannot_override(key: str) -> None:
    asked = request(route={"options": {key: "x", "user": "u"}})
    for use in (lambda: CODEC.check(asked.route), lambda: CODEC.encode(asked)):
        with pytest.raises(PackageError) as caught:
            use()
        assert caught.value.code == "package.invalid"
        assert caught.value.fields == {"pointer": f"/model/options/{key}"}


def test_every_field_that_is_set_is_owned() -> None:
    asked = request(top_p=1.0, seed=1, stop=["a"], max_output_tokens=1, reasoning="high", output=TRIAGE)
    assert body(asked).keys() <= OWN


def test_output() -> None:
    assert body(request(output=TRIAGE))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": TRIAGE},
    }


def test_messages() -> None:
    calls = (ToolCall("c1.0", "search", '{"q": 1}', "call_a"), ToolCall("c1.1", "read", "{", "call_b"))
    asked = request(
        User((Text("a"), Text("b"))),
        Assistant((Text("c"), *calls)),
        ToolResult("c1.0", (Text("d"),)),
        ToolResult("c1.1", (Text("e"),)),
        Assistant((Refusal("no"),)),
    )
    assert body(asked)["messages"][1:] == [
        {"role": "user", "content": "ab"},
        {
            "role": "assistant",
            "content": "c",
            "tool_calls": [
                {"id": "c1.0", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}},
                {"id": "c1.1", "type": "function", "function": {"name": "read", "arguments": "{"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1.0", "content": "d"},
        {"role": "tool", "tool_call_id": "c1.1", "content": "e"},
        {"role": "assistant", "content": None, "refusal": "no"},
    ]


@given(st.permutations(["user", "metadata", "store"]))
def test_bytes_do_not_depend_on_order(names: list[str]) -> None:
    options = {name: {"b": 1, "a": 2} for name in names}
    straight = request(route={"options": dict(sorted(options.items()))})
    assert CODEC.encode(request(route={"options": options})).body == CODEC.encode(straight).body


# --- decode ------------------------------------------------------------------------------------------------


def decoded(reply: HttpReply) -> Reply:
    found = CODEC.decode(reply)
    assert isinstance(found, Reply), found
    return found


def fault(reply: HttpReply) -> Fault:
    found = CODEC.decode(reply)
    assert isinstance(found, Fault), found
    assert found.code in CODES
    return found


def test_reply() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert decoded(completion("Hello", usage=usage)) == Reply(
        message=Assistant((Text("Hello"),)),
        finish="stop",
        usage=Usage(input=10, output=7, cached=4, reasoning=3),
        model="gpt-4.1-mini-2025-04-14",
        wire_id="chatcmpl-1",
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, Usage()),
        ({"prompt_tokens": 3}, Usage(input=3)),
        ({"prompt_tokens": 0, "prompt_tokens_details": {}}, Usage(input=0)),
        ({"completion_tokens_details": None}, Usage()),
    ],
)
def test_usage_that_is_missing_is_null(usage: Any, expected: Usage | None) -> None:
    assert decoded(completion("x", usage=usage)).usage == expected


def test_no_usage_at_all() -> None:
    body = json.loads(completion("x").body)
    del body["usage"], body["id"], body["model"]
    reply = decoded(HttpReply(200, (), json.dumps(body).encode()))
    assert (reply.usage, reply.wire_id, reply.model) == (None, None, None)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("function_call", "unknown"),
        ("brand_new", "unknown"),
        (None, "unknown"),
    ],
)
def test_finish(finish: str | None, expected: str) -> None:
    assert decoded(completion("x", finish)).finish == expected


def test_refusal() -> None:
    reply = decoded(completion(None, refusal="I cannot."))
    assert reply.message == Assistant((Refusal("I cannot."),))


def test_tool_calls() -> None:
    calls = [
        {"id": "call_a", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}},
        {"id": "call_b", "type": "function", "function": {"name": "read", "arguments": "not json"}},
    ]
    reply = decoded(completion("Let me see", "tool_calls", tool_calls=calls))
    assert reply.finish == "tool_calls"
    assert reply.message.parts == (
        Text("Let me see"),
        ToolCall("0", "search", '{"q":1}', "call_a"),
        ToolCall("1", "read", "not json", "call_b"),
    )


@pytest.mark.parametrize("content", ["", None])
def test_empty(content: str | None) -> None:
    found = fault(completion(content, "length"))
    assert (found.code, found.fields) == ("provider.empty", {"finish": "length"})


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"", {"offset": 0}),
        (b"<html>busy</html>", {"offset": 0}),
        (completion("x").body[:100], {"offset": 100}),
        (b'{"choices": x}', {"offset": 12}),
        (b"[]", {"pointer": ""}),
        (b"{}", {"pointer": ""}),
        (b'{"choices": []}', {"pointer": "/choices"}),
        (b'{"choices": [{}]}', {"pointer": "/choices/0"}),
        (b'{"choices": [{"message": {"content": 7}}]}', {"pointer": "/choices/0/message/content"}),
        (b'{"error": {"message": "in a 200"}}', {"pointer": ""}),
        (b'{"id": "\xff"}', {}),
        (b'{"other": ' + b"[" * 100_000, {}),
    ],
)
def test_not_the_protocol(data: bytes, fields: dict[str, Any]) -> None:
    found = fault(HttpReply(200, (), data))
    assert (found.code, found.fields) == ("provider.decode", fields)


@pytest.mark.parametrize("tokens", [-1, 2**53, "3", 1.5, True, 10**30])
def test_absurd_usage(tokens: Any) -> None:
    found = fault(completion("x", usage={"prompt_tokens": tokens}))
    assert (found.code, found.fields["pointer"]) == ("provider.decode", "/usage/prompt_tokens")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "provider.fatal"),
        (401, "provider.fatal"),
        (403, "provider.fatal"),
        (404, "provider.fatal"),
        (422, "provider.fatal"),
        (302, "provider.fatal"),
        (204, "provider.fatal"),
        (408, "provider.timeout"),
        (409, "provider.transient"),
        (429, "provider.rate_limited"),
        (500, "provider.transient"),
        (502, "provider.transient"),
        (503, "provider.overloaded"),
        (504, "provider.transient"),
        (529, "provider.overloaded"),
    ],
)
def test_status(status: int, code: str) -> None:
    found = fault(failure(status, "Sorry"))
    assert found.code == code
    assert found.fields["status"] == status
    assert found.message == f"the provider answered {status}: Sorry"


def test_errors_that_say_more() -> None:
    assert fault(failure(400, "too long", "context_length_exceeded")).code == "provider.context_overflow"
    assert fault(failure(429, "pay first", "insufficient_quota")).code == "provider.fatal"
    assert fault(failure(500, "too long", "context_length_exceeded")).code == "provider.transient"


@pytest.mark.parametrize(
    "data", [b"", b"<html>\n<b>Bad  gateway</b>", b"\xff\xfe", b'{"error": "text"}', b"[" * 10_000]
)
def test_status_with_another_body(data: bytes) -> None:
    found = fault(HttpReply(502, (), data))
    assert found.code == "provider.transient"
    assert "\n" not in found.message
    assert len(found.message) < 400


def test_words_are_masked() -> None:
    found = fault(failure(401, "Incorrect API key provided: sk-proj-abcdefghij0123456789ABCDEFGHIJ."))
    assert "abcdefghij0123456789" not in found.message
    assert "***" in found.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7),
        ({"retry_after": " 0 "}, 0),
        ({"retry_after": "9" * 40}, 999_999_999),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "1.5"}, None),
        ({"retry_after": "Sat, 31 Jan 2026 12:00:30 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, 30),
        ({"retry_after": "Sat, 31 Jan 2026 11:00:00 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, 0),
        ({"retry_after": "Sat, 31 Jan 2026 12:00:30 GMT"}, None),
        ({"retry_after": "Sat, 99 Jan 2026 12:00:30 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, None),
        ({"retry_after": "Sat, 31 Foo 2026 12:00:30 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, None),
        ({"retry_after": "Sat, 31 Jan 2026 12:00 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: int | None) -> None:
    assert fault(failure(429, **headers)).fields == {"status": 429, "retry_after": seconds}


@given(st.data())
def test_damaged_replies(data: st.DataObject) -> None:
    """Any reply, cut or with a byte changed, under any status: a reply or a fault with a known code, no exception."""
    whole = bytearray(completion("Hello", tool_calls=[{"function": {"name": "a", "arguments": "{}"}}]).body)
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    found = CODEC.decode(HttpReply(data.draw(st.sampled_from([200, 400, 429, 500])), (), bytes(whole[:cut])))
    assert isinstance(found, Reply) or found.code in CODES


@given(st.binary(max_size=60), st.integers(100, 599))
def test_any_bytes(data: bytes, status: int) -> None:
    found = CODEC.decode(HttpReply(status, (), data))
    assert isinstance(found, Fault)
    assert found.code in CODES
