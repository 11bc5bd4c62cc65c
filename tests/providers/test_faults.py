"""Fault codes of HTTP statuses and provider error messages."""

import json
from typing import Any

import pytest

from agentrun.core.fault import Fault
from agentrun.errors import ERROR_CODES
from agentrun.providers.faults import code_of_status, inner_fault
from agentrun.providers.openai_chat import OpenAIError, openai_inner_fault, openai_status_fault, to_openai_error
from agentrun.wire import HttpReply

from ..scripted_service import failure


def json_reply(value: Any, status: int) -> HttpReply:
    return HttpReply(status, (), json.dumps(value).encode())


def fault(reply: HttpReply) -> Fault:
    found = openai_status_fault(reply)
    assert found.code in ERROR_CODES
    return found


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
def test_status_gives_its_code(status: int, code: str) -> None:
    found = fault(failure(status, "Sorry"))
    assert found.code == code
    assert found.fields["status"] == status
    assert found.message == f"the provider answered {status}: Sorry"


def test_error_code_in_the_body_refines_the_status() -> None:
    assert fault(failure(400, "too long", "context_length_exceeded")).code == "provider.context_overflow"
    assert fault(failure(429, "pay first", "insufficient_quota")).code == "provider.fatal"
    assert fault(failure(500, "too long", "context_length_exceeded")).code == "provider.transient"


@pytest.mark.parametrize(
    "data", [b"", b"<html>\n<b>Bad  gateway</b>", b"\xff\xfe", b'{"error": "text"}', b"[" * 10_000]
)
def test_error_status_with_another_body_is_transient(data: bytes) -> None:
    found = fault(HttpReply(502, (), data))
    assert found.code == "provider.transient"
    assert "\n" not in found.message
    assert len(found.message) < 400


def test_keys_in_error_messages_are_masked() -> None:
    found = fault(failure(401, "Incorrect API key provided: sk-proj-abcdefghij0123456789ABCDEFGHIJ."))
    assert "abcdefghij0123456789" not in found.message
    assert "[redacted:openai-key]" in found.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7),
        ({"retry_after": " 0 "}, 0),
        ({"retry_after": "3600"}, 3600),
        ({"retry_after": "3601"}, 3600),
        ({"retry_after": "9" * 40}, 3600),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "1.5"}, None),
        ({"retry_after": "Sat, 31 Jan 2026 12:00:30 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, 30),
        ({"retry_after": "Sat, 31 Jan 2026 11:00:00 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, 0),
        ({"retry_after": "Sun, 31 Jan 2027 12:00:00 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, 3600),
        ({"retry_after": "Sat, 31 Jan 2026 12:00:30 GMT"}, None),
        ({"retry_after": "Sat, 99 Jan 2026 12:00:30 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, None),
        ({"retry_after": "Sat, 31 Foo 2026 12:00:30 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, None),
        ({"retry_after": "Sat, 31 Jan 2026 12:00 GMT", "date": "Sat, 31 Jan 2026 12:00:00 GMT"}, None),
    ],
)
def test_retry_after_headers_are_read(headers: dict[str, str], seconds: int | None) -> None:
    assert fault(failure(429, **headers)).fields == {"status": 429, "retry_after": seconds}


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"type": "exceed_context_size_error"}, "provider.context_overflow"),
        (500, {"type": "exceed_context_size_error"}, "provider.context_overflow"),
        (400, {"message": "This model's maximum context length is 8 tokens."}, "provider.context_overflow"),
        (400, {"message": "However, the model's context length is only 8 tokens"}, "provider.context_overflow"),
        (400, {"message": "Your input exceeds the context window of this model."}, "provider.context_overflow"),
        (401, {"message": "maximum context length"}, "provider.fatal"),
        (400, {"message": "max_tokens is too large"}, "provider.fatal"),
    ],
)
def test_context_overflow_messages_of_other_servers(status: int, error: dict[str, str], code: str) -> None:
    assert fault(json_reply({"error": error}, status)).code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OpenAIError("x", "rate_limit_exceeded"), "provider.rate_limited"),
        (OpenAIError("x", None, "rate_limit_error"), "provider.rate_limited"),
        (OpenAIError("x", "server_error"), "provider.transient"),
        (OpenAIError("x", "brand_new"), "provider.transient"),
        (OpenAIError("x", "invalid_prompt"), "provider.fatal"),
        (OpenAIError("x", "image_too_large"), "provider.fatal"),
        (OpenAIError("x", None, "invalid_request_error"), "provider.fatal"),
        (OpenAIError("x", "insufficient_quota", "server_error"), "provider.fatal"),
        (OpenAIError("x", None, "overloaded_error"), "provider.overloaded"),
        (OpenAIError("x", "context_length_exceeded"), "provider.context_overflow"),
        (OpenAIError("the maximum context length is 8"), "provider.context_overflow"),
        (OpenAIError("x", 529), "provider.overloaded"),
        (OpenAIError("x", 7), "provider.transient"),
        (OpenAIError(), "provider.transient"),
    ],
)
def test_error_inside_a_reply_gives_its_code(error: OpenAIError, code: str) -> None:
    found = openai_inner_fault(error)
    assert found.code == code
    assert found.code in ERROR_CODES
    assert ("retry_after" in found.fields) == (code == "provider.rate_limited")


def test_error_inside_a_reply_with_a_status_has_its_code() -> None:
    for status in (400, 401, 408, 429, 500, 503, 529):
        assert openai_inner_fault(OpenAIError("x", status)) == inner_fault("x", code_of_status(status), status)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("words", OpenAIError("words")),
        ({"message": "m", "code": "c", "type": "t", "param": 1}, OpenAIError("m", "c", "t")),
        ({"message": 7}, OpenAIError()),
        ([], OpenAIError()),
        (7, OpenAIError()),
    ],
)
def test_error_value_of_any_type_is_read(value: Any, error: OpenAIError) -> None:
    assert to_openai_error(value) == error
