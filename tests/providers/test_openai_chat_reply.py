"""OpenAI Chat Completions: decoding of replies."""

import json
from typing import Any

import pytest

from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Refusal, Reply, Text, ToolCall, Usage
from agentrun.wire import HttpReply

from ..scripted_service import completion
from . import exchange
from .openai_codecs import CODECS, REQUESTS

CODEC, REQUEST = CODECS["openai"], REQUESTS["openai"]


def decode(reply: HttpReply) -> Reply:
    return exchange.reply(CODEC.decode(reply, REQUEST))


def fault(reply: HttpReply) -> Fault:
    return exchange.fault(CODEC.decode(reply, REQUEST))


def test_reply_is_decoded() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert decode(completion("Hello", usage=usage)) == Reply(
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
def test_missing_usage_is_none(usage: Any, expected: Usage | None) -> None:
    assert decode(completion("x", usage=usage)).usage == expected


def test_reply_without_usage_id_and_model_is_decoded() -> None:
    body = json.loads(completion("x").body)
    del body["usage"], body["id"], body["model"]
    reply = decode(HttpReply(200, (), json.dumps(body).encode()))
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
def test_finish_reason_becomes_finish(finish: str | None, expected: str) -> None:
    assert decode(completion("x", finish)).finish == expected


def test_refusal_is_decoded() -> None:
    reply = decode(completion(None, refusal="I cannot."))
    assert reply.message == Assistant((Refusal("I cannot."),))


def test_tool_calls_are_decoded() -> None:
    calls = [
        {"id": "call_a", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}},
        {"id": "call_b", "type": "function", "function": {"name": "read", "arguments": "not json"}},
    ]
    reply = decode(completion("Let me see", "tool_calls", tool_calls=calls))
    assert reply.finish == "tool_calls"
    assert reply.message.parts == (
        Text("Let me see"),
        ToolCall("0", "search", '{"q":1}', "call_a"),
        ToolCall("1", "read", "not json", "call_b"),
    )


@pytest.mark.parametrize("content", ["", None])
def test_reply_without_content_is_empty(content: str | None) -> None:
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
        (b'{"id": "\xff"}', {}),
        (b'{"other": ' + b"[" * 100_000, {}),
    ],
)
def test_malformed_reply_is_a_decode_fault(data: bytes, fields: dict[str, Any]) -> None:
    found = fault(HttpReply(200, (), data))
    assert (found.code, found.fields) == ("provider.decode", fields)


@pytest.mark.parametrize("tokens", [-1, 2**53, "3", 1.5, True, 10**30])
def test_invalid_usage_is_a_decode_fault(tokens: Any) -> None:
    found = fault(completion("x", usage={"prompt_tokens": tokens}))
    assert (found.code, found.fields["pointer"]) == ("provider.decode", "/usage/prompt_tokens")


def test_reply_with_missing_optional_fields_is_decoded() -> None:
    """No id, no index, no arguments, no usage."""
    body = {"choices": [{"message": {"tool_calls": [{"function": {"name": "now"}}]}}]}
    found = decode(HttpReply(200, (), json.dumps(body).encode()))
    assert found == Reply(Assistant((ToolCall("0", "now", ""),)), "unknown", None, None, None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "in a 200"}, "provider.transient"),
        ({"message": "busy", "code": 503}, "provider.overloaded"),
        ({"message": "slow", "code": 429}, "provider.rate_limited"),
        ({"message": "who?", "code": 401}, "provider.fatal"),
    ],
)
def test_error_with_status_200_is_a_fault(error: dict[str, Any], code: str) -> None:
    """So does OpenRouter."""
    found = fault(HttpReply(200, (), json.dumps({"error": error}).encode()))
    assert (found.code, found.fields["status"]) == (code, error.get("code"))


def test_finish_reason_error_is_transient() -> None:
    assert fault(completion("half", "error")).code == "provider.transient"
