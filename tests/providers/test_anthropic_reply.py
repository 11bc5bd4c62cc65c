"""Anthropic Messages: decoding of replies and errors."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Text, ToolCall, Usage
from agentrun.core.model_texts import MODEL_DECLINED
from agentrun.providers.anthropic import Anthropic
from agentrun.providers.codec import ReplyOrFault

from . import exchange
from .exchange import (
    GOLDEN,
    NOW,
    SEARCH,
    check_golden_file,
    damaged,
    decoded_json,
    fault,
    golden_names,
    is_reply_or_known_fault,
    reply,
    reply_of,
)

CODEC = Anthropic()
REQUEST = exchange.request("anthropic", "claude-haiku-4-5", tools=(SEARCH, NOW))
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def decode(data: bytes, status: int = 200, **headers: str) -> ReplyOrFault:
    return exchange.decode(CODEC, REQUEST, data, status, **headers)


def message(*content: Any, stop: str | None = "end_turn", **more: Any) -> bytes:
    fields: dict[str, Any] = {"id": "msg_1", "model": "claude", "content": content, "stop_reason": stop, "usage": {}}
    return json.dumps(fields | more).encode()


def text(words: str = "Hi") -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize("story", golden_names("anthropic"))
def test_reply_decodes_to_the_golden_file(story: str) -> None:
    check_golden_file(
        GOLDEN / "anthropic" / f"{story}.decoded.json", decoded_json(decode(reply_of("anthropic", story)))
    )


def test_minimal_reply_is_decoded() -> None:
    found = reply(decode(b'{"content":[{"type":"text","text":"Hi"}]}'))
    assert found.message == Assistant((Text("Hi"),))
    assert (found.finish, found.usage, found.model, found.wire_id) == ("unknown", None, None, None)


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "unknown"),
        ("brand_new", "unknown"),
        (None, "unknown"),
    ],
)
def test_stop_reason_becomes_finish(stop: str | None, finish: FinishReason) -> None:
    assert reply(decode(message(text(), stop=stop))).finish == finish


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, Usage()),
        ({"input_tokens": 1, "output_tokens": 2}, Usage(input=1, output=2)),
        ({"input_tokens": 1, "cache_read_input_tokens": 10}, Usage(input=11, cached=10)),
        ({"input_tokens": 1, "cache_creation_input_tokens": 100}, Usage(input=101)),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 100},
            Usage(input=111, cached=10),
        ),
        ({"cache_read_input_tokens": 10}, Usage(cached=10)),
        ({"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}, Usage(output=9, reasoning=4)),
        ({"input_tokens": 1, "cache_read_input_tokens": None, "output_tokens_details": None}, Usage(input=1)),
    ],
)
def test_usage_is_decoded(usage: dict[str, Any], expected: Usage) -> None:
    assert reply(decode(message(text(), usage=usage))).usage == expected


@pytest.mark.parametrize("tokens", [-1, 2**53, "3", 1.5, True, 10**30])
def test_invalid_usage_is_a_decode_fault(tokens: Any) -> None:
    found = fault(decode(message(text(), usage={"input_tokens": tokens})))
    assert (found.code, found.fields["pointer"]) == ("provider.decode", "/usage/input_tokens")


def test_tool_calls_are_decoded() -> None:
    content = (
        {"type": "tool_use", "id": "a", "name": "docs__search", "input": {"q": 1}},
        {"type": "tool_use", "id": "b", "name": "un__known", "input": {}},
        {"type": "tool_use", "name": "now"},
    )
    assert reply(decode(message(*content, stop="tool_use"))).message.parts == (
        ToolCall("0", "docs.search", '{"q": 1}', "a"),
        ToolCall("1", "un__known", "{}", "b"),
        ToolCall("2", "now", "{}", None),
    )


@pytest.mark.parametrize("given", ['{"a": 1, "a": 2}', '{"a":' + "9" * 5000 + "}", "[]", '"x"', "{ }"])
def test_arguments_keep_their_exact_text(given: str) -> None:
    """Whoever runs the call judges them: a second key of one name would be lost by reading them here."""
    data = message(text()).replace(b'{"type": "text", "text": "Hi"}', _call(given))
    assert reply(decode(data)).message.calls[0].arguments == given


def _call(given: str) -> bytes:
    return b'{"type":"tool_use","id":"a","name":"now","input":' + given.encode() + b"}"


def test_reasoning_blocks_are_kept_unchanged() -> None:
    blocks = [
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "brand_new", "text": "?", "x": [1]},
    ]
    found = reply(decode(message(*blocks, text())))
    assert [json.loads(part.opaque) for part in found.message.parts if isinstance(part, Reasoning)] == blocks
    assert {part.route for part in found.message.parts if isinstance(part, Reasoning)} == {"anthropic/claude-haiku-4-5"}
    assert found.message.text == "Hi"


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (None, MODEL_DECLINED),
        ({}, MODEL_DECLINED),
        ({"explanation": None}, MODEL_DECLINED),
        ({"explanation": "Harmful."}, "Harmful."),
    ],
)
def test_refusal_replaces_the_content(details: Any, words: str) -> None:
    call = {"type": "tool_use", "id": "a", "name": "now", "input": {}}
    for content in ((), (text("To do it,"), call)):
        found = reply(decode(message(*content, stop="refusal", stop_details=details)))
        assert found.message == Assistant((Refusal(words),))
        assert found.finish == "content_filter"


@pytest.mark.parametrize("content", [(), (text(""),), ({"type": "thinking", "thinking": "Hm"},)])
def test_reply_without_content_is_empty(content: tuple[Any, ...]) -> None:
    found = fault(decode(message(*content, stop="max_tokens")))
    assert (found.code, found.fields) == ("provider.empty", {"finish": "max_tokens"})
    full = fault(decode(message(*content, stop="model_context_window_exceeded")))
    assert full.code == "provider.context_overflow"


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"", {"offset": 0}),
        (b"<html>busy</html>", {"offset": 0}),
        (b"[]", {"pointer": ""}),
        (b"{}", {"pointer": ""}),
        (b'{"content": null}', {"pointer": "/content"}),
        (b'{"content": [null]}', {"pointer": "/content/0"}),
        (b'{"content": [{"type": "text", "text": "a"}, {}]}', {"pointer": "/content/1"}),
        (b'{"content": [{"type": "text", "text": 7}]}', {"pointer": "/content/0/text"}),
        (b'{"content": [{"type": "tool_use", "input": "\xff"}]}', {"pointer": "/content/0"}),
        (b'{"content": [], "other": ' + b"[" * 100_000, {}),
        (json.dumps(OVERLOADED).encode(), {"pointer": ""}),
    ],
)
def test_malformed_reply_is_a_decode_fault(data: bytes, fields: dict[str, Any]) -> None:
    found = fault(decode(data))
    assert (found.code, found.fields) == ("provider.decode", fields)


# --- errors ------------------------------------------------------------------------------------------------


def error(kind: str, words: str = "Sorry", **more: Any) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": words, **more}, "request_id": "r"}).encode()


ERRORS = [
    (400, "invalid_request_error", "provider.fatal"),
    (401, "authentication_error", "provider.fatal"),
    (402, "billing_error", "provider.fatal"),
    (403, "permission_error", "provider.fatal"),
    (404, "not_found_error", "provider.fatal"),
    (413, "request_too_large", "provider.context_overflow"),
    (429, "rate_limit_error", "provider.rate_limited"),
    (500, "api_error", "provider.transient"),
    (504, "timeout_error", "provider.transient"),
    (529, "overloaded_error", "provider.overloaded"),
]


@pytest.mark.parametrize(("status", "kind", "code"), ERRORS)
def test_error_type_and_status_become_a_code(status: int, kind: str, code: str) -> None:
    found = fault(decode(error(kind), status))
    assert (found.code, found.fields["status"]) == (code, status)
    assert found.message == f"the provider answered {status}: Sorry"


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length",
    ],
)
def test_prompt_too_long_is_a_context_overflow(words: str) -> None:
    assert fault(decode(error("invalid_request_error", words), 400)).code == "provider.context_overflow"
    assert fault(decode(error("api_error", words), 500)).code == "provider.transient"


def test_spend_limit_is_fatal() -> None:
    spent = {"error_code": "enforced_spend_limit_reached"}
    assert fault(decode(error("rate_limit_error", details=spent), 429)).code == "provider.fatal"
    for other in ({"error_code": "ramp_limit_exceeded"}, [spent], "enforced_spend_limit_reached", None):
        assert fault(decode(error("rate_limit_error", details=other), 429)).code == "provider.rate_limited"


def test_retry_after_header_is_read() -> None:
    assert fault(decode(error("rate_limit_error"), 429, retry_after="7")).fields["retry_after"] == 7
    assert fault(decode(error("rate_limit_error"), 429)).fields["retry_after"] is None


@pytest.mark.parametrize("data", [b"", b"<b>Bad  gateway</b>", b"\xff", b'{"error": "text"}', b"[" * 10_000])
def test_error_status_with_another_body_is_transient(data: bytes) -> None:
    assert fault(decode(data, 502)).code == "provider.transient"


def test_keys_in_error_messages_are_masked() -> None:
    found = fault(decode(error("authentication_error", "bad key sk-ant-api03-" + "Ab1" * 30), 401))
    assert "Ab1Ab1Ab1" not in found.message


# --- any bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", golden_names("anthropic"))
@given(st.data())
def test_damaged_reply_is_a_reply_or_a_known_fault(story: str, data: st.DataObject) -> None:
    status = data.draw(st.sampled_from([200, 400, 429, 500]))
    assert is_reply_or_known_fault(decode(data.draw(damaged(reply_of("anthropic", story))), status))


@pytest.mark.parametrize("story", golden_names("anthropic"))
def test_truncated_reply_is_a_decode_fault(story: str) -> None:
    whole = reply_of("anthropic", story)
    for cut in range(len(whole)):
        assert fault(decode(whole[:cut])).code == "provider.decode"


@given(st.binary(max_size=60), st.integers(100, 599))
def test_any_bytes_are_a_fault(data: bytes, status: int) -> None:
    fault(decode(data, status))
