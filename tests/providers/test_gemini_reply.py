"""Gemini: decoding of replies and errors."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Text, ToolCall, Usage
from agentrun.providers.codec import ReplyOrFault
from agentrun.providers.gemini import GeminiGenerate

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

CODEC = GeminiGenerate()
REQUEST = exchange.request("gemini", "gemini-2.5-flash", tools=(SEARCH, NOW))
THIS_ROUTE = "gemini/gemini-2.5-flash"


def decode(data: bytes, status: int = 200, **headers: str) -> ReplyOrFault:
    return exchange.decode(CODEC, REQUEST, data, status, **headers)


def response(*parts: Any, finish: str | None = "STOP", **more: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish}
    return json.dumps({"candidates": [candidate], **more}).encode()


HI = {"text": "Hi"}


@pytest.mark.parametrize("story", golden_names("gemini"))
def test_reply_decodes_to_the_golden_file(story: str) -> None:
    check_golden_file(GOLDEN / "gemini" / f"{story}.decoded.json", decoded_json(decode(reply_of("gemini", story))))


def test_minimal_reply_is_decoded() -> None:
    found = reply(decode(b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}'))
    assert found.message == Assistant((Text("Hi"),))
    assert (found.finish, found.usage, found.model, found.wire_id) == ("unknown", None, None, None)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("LANGUAGE", "unknown"),
        ("OTHER", "unknown"),
        ("MALFORMED_FUNCTION_CALL", "unknown"),
        ("BRAND_NEW", "unknown"),
        (None, "unknown"),
    ],
)
def test_finish_reason_becomes_finish(reason: str | None, finish: FinishReason) -> None:
    assert reply(decode(response(HI, finish=reason))).finish == finish


def test_stop_with_calls_becomes_tool_calls() -> None:
    call = {"functionCall": {"name": "now"}}
    assert reply(decode(response(HI, call))).finish == "tool_calls"
    assert reply(decode(response(HI, call, finish="MAX_TOKENS"))).finish == "length"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, Usage()),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2}, Usage(input=5, output=2)),
        ({"candidatesTokenCount": 2, "thoughtsTokenCount": 3}, Usage(output=5, reasoning=3)),
        ({"promptTokenCount": 5, "toolUsePromptTokenCount": 4}, Usage(input=9)),
        ({"promptTokenCount": 5, "cachedContentTokenCount": 4}, Usage(input=5, cached=4)),
        ({"promptTokenCount": 5, "totalTokenCount": 5}, Usage(input=5, output=0)),
        ({"promptTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 8}, Usage(input=5, output=3, reasoning=3)),
        ({"promptTokenCount": 5, "thoughtsTokenCount": 3}, Usage(input=5, reasoning=3)),
        ({"promptTokenCount": 5, "totalTokenCount": 4}, Usage(input=5, output=0)),
        ({"totalTokenCount": 4}, Usage()),
    ],
)
def test_usage_is_decoded(usage: dict[str, Any], expected: Usage) -> None:
    assert reply(decode(response(HI, usageMetadata=usage))).usage == expected


@pytest.mark.parametrize("tokens", [-1, 2**53, "3", 1.5, True, 10**30])
def test_invalid_usage_is_a_decode_fault(tokens: Any) -> None:
    found = fault(decode(response(HI, usageMetadata={"promptTokenCount": tokens})))
    assert (found.code, found.fields["pointer"]) == ("provider.decode", "/usageMetadata/promptTokenCount")


def test_tool_calls_are_decoded() -> None:
    found = reply(
        decode(
            response(
                {"functionCall": {"id": "a", "name": "docs__search", "args": {"q": 1}}},
                {"functionCall": {"name": "un__known", "args": None}},
                {"functionCall": {"name": "now"}},
            )
        )
    )
    assert found.message.parts == (
        ToolCall("0", "docs.search", '{"q": 1}', "a"),
        ToolCall("1", "un__known", "{}"),
        ToolCall("2", "now", "{}"),
    )


def test_signatures_become_reasoning_before_their_parts() -> None:
    found = reply(
        decode(
            response(
                {"text": "a"},
                {"text": "b"},
                {"text": "c", "thoughtSignature": "s1"},
                {"text": "d"},
                {"functionCall": {"name": "now"}, "thoughtSignature": "s2"},
                {"text": "", "thoughtSignature": "s3"},
            )
        )
    )
    assert found.message.parts == (
        Text("ab"),
        Reasoning('{"thoughtSignature":"s1"}', THIS_ROUTE),
        Text("c"),
        Text("d"),
        Reasoning('{"thoughtSignature":"s2"}', THIS_ROUTE),
        ToolCall("0", "now", "{}"),
        Reasoning('{"text": "", "thoughtSignature": "s3"}', THIS_ROUTE),
    )


def test_reply_is_sent_back_unchanged() -> None:
    """Sent back to the route it came from, a reply is what it was."""
    given = [
        {"thought": True, "text": "Hm", "thoughtSignature": "s0"},
        {"text": "a"},
        {"text": "c", "thoughtSignature": "s1"},
        {"functionCall": {"args": {"q": 1}, "id": "i", "name": "docs__search"}, "thoughtSignature": "s2"},
        {"functionCall": {"args": {}, "id": "j", "name": "now"}},
        {"executableCode": {"code": "1", "language": "PYTHON"}},
        {"text": "", "thoughtSignature": "s3"},
    ]
    found = reply(decode(response(*given))).with_call_ids(1, THIS_ROUTE)
    asked = exchange.request("gemini", "gemini-2.5-flash", found.message)
    assert exchange.body(CODEC, asked)["contents"] == [{"role": "model", "parts": given}]


@pytest.mark.parametrize("reason", ["SAFETY", "BRAND_NEW"])
def test_a_blocked_prompt_is_a_refusal(reason: str) -> None:
    found = reply(decode(json.dumps({"promptFeedback": {"blockReason": reason}}).encode()))
    assert found.finish == "content_filter"
    assert isinstance(part := found.message.parts[0], Refusal)
    assert reason in part.text


def test_filtered_answer_keeps_its_text() -> None:
    assert reply(decode(response(HI, finish="SAFETY"))).message == Assistant((Text("Hi"),))


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"candidates":[]}',
        b'{"candidates":[{"finishReason":"STOP"}]}',
        b'{"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL"}]}',
        b'{"promptFeedback":{}}',
        response({"text": ""}),
        response({"text": "Hm", "thought": True}),
    ],
)
def test_reply_without_content_is_empty(data: bytes) -> None:
    assert fault(decode(data)).code == "provider.empty"


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"", {"offset": 0}),
        (b"<html>busy</html>", {"offset": 0}),
        (b"[]", {"pointer": ""}),
        (b'{"candidates": {}}', {"pointer": "/candidates"}),
        (b'{"candidates": [{"content": {"parts": {}}}]}', {"pointer": "/candidates/0/content/parts"}),
        (b'{"candidates": [{"index": 1}]}', {"pointer": "/candidates"}),
        (b'{"candidates": [{}, {}]}', {"pointer": "/candidates"}),
        (b'{"other": ' + b"[" * 100_000, {}),
        (response({"text": 7}), {"pointer": "/candidates/0/content/parts/0/text"}),
        (response(HI, {"functionCall": {}}), {"pointer": "/candidates/0/content/parts/1/functionCall"}),
        (response(HI, []), {"pointer": "/candidates/0/content/parts/1"}),
    ],
)
def test_malformed_reply_is_a_decode_fault(data: bytes, fields: dict[str, Any]) -> None:
    found = fault(decode(data))
    assert (found.code, found.fields) == ("provider.decode", fields)


# --- errors ------------------------------------------------------------------------------------------------


def error(code: int, status: str = "X", words: str = "Sorry", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": words, "status": status, **more}}


ERRORS = [
    (400, "INVALID_ARGUMENT", "provider.fatal"),
    (400, "FAILED_PRECONDITION", "provider.fatal"),
    (403, "PERMISSION_DENIED", "provider.fatal"),
    (404, "NOT_FOUND", "provider.fatal"),
    (429, "RESOURCE_EXHAUSTED", "provider.rate_limited"),
    (500, "INTERNAL", "provider.transient"),
    (503, "UNAVAILABLE", "provider.overloaded"),
    (504, "DEADLINE_EXCEEDED", "provider.transient"),
]


@pytest.mark.parametrize(("code", "status", "expected"), ERRORS)
def test_error_status_becomes_a_code(code: int, status: str, expected: str) -> None:
    for data in (error(code, status), [error(code, status)]):
        found = fault(decode(json.dumps(data).encode(), code))
        assert (found.code, found.fields["status"]) == (expected, code)
        assert found.message == f"the provider answered {code}: Sorry"


def test_too_many_input_tokens_is_a_context_overflow() -> None:
    words = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
    assert fault(decode(json.dumps(error(400, words=words)).encode(), 400)).code == "provider.context_overflow"
    assert fault(decode(json.dumps(error(500, words=words)).encode(), 500)).code == "provider.transient"


RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        (None, None),
        ({}, None),
        (["x"], None),
        ([{"@type": RETRY_INFO}], None),
        ([{"@type": RETRY_INFO, "retryDelay": "38s"}], 38),
        ([{"@type": "type.googleapis.com/google.rpc.Help"}, {"@type": RETRY_INFO, "retryDelay": "38s"}], 38),
        ([{"@type": RETRY_INFO, "retryDelay": "38.000s"}], 38),
        ([{"@type": RETRY_INFO, "retryDelay": "38.001s"}], 39),
        ([{"@type": RETRY_INFO, "retryDelay": "3600s"}], 3600),
        ([{"@type": RETRY_INFO, "retryDelay": "3601s"}], 3600),
        ([{"@type": RETRY_INFO, "retryDelay": "999999999s"}], 3600),
        ([{"@type": RETRY_INFO, "retryDelay": "-1s"}], None),
        ([{"@type": RETRY_INFO, "retryDelay": 5}], None),
        ([{"@type": RETRY_INFO, "retryDelay": "soon"}], None),
    ],
)
def test_retry_info_is_read(details: Any, seconds: int | None) -> None:
    data = json.dumps(error(429, details=details)).encode()
    assert fault(decode(data, 429)).fields == {"status": 429, "retry_after": seconds}
    assert fault(decode(data, 429, retry_after="7")).fields["retry_after"] == 7


def test_error_in_a_reply_with_status_200_is_a_fault() -> None:
    assert fault(decode(json.dumps(error(503)).encode())).code == "provider.overloaded"


@pytest.mark.parametrize("data", [b"", b"<b>Bad</b>", b"\xff", b"[]", b'{"error": "text"}', b"[" * 10_000])
def test_error_status_with_another_body_is_transient(data: bytes) -> None:
    assert fault(decode(data, 502)).code == "provider.transient"


def test_keys_in_error_messages_are_masked() -> None:
    key = "AIza" + "Sy0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0u1"
    found = fault(decode(json.dumps(error(400, words=f"API key {key} not valid")).encode(), 400))
    assert key not in found.message


# --- any bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", golden_names("gemini"))
@given(st.data())
def test_damaged_reply_is_a_reply_or_a_known_fault(story: str, data: st.DataObject) -> None:
    status = data.draw(st.sampled_from([200, 400, 429, 500]))
    assert is_reply_or_known_fault(decode(data.draw(damaged(reply_of("gemini", story))), status))


@pytest.mark.parametrize("story", golden_names("gemini"))
def test_truncated_reply_is_a_decode_fault(story: str) -> None:
    whole = reply_of("gemini", story)
    for cut in range(len(whole)):
        assert fault(decode(whole[:cut])).code == "provider.decode"


@given(st.binary(max_size=60), st.integers(100, 599))
def test_any_bytes_are_a_fault(data: bytes, status: int) -> None:
    fault(decode(data, status))
