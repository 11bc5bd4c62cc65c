"""Errors of OpenAI and of compatible servers.

Rule 1  The status decides the code, unless the error code, its type or a known text is more precise.
Rule 2  For an error inside a reply with status 200, its own code decides.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core.fault import Fault
from agentrun.providers.faults import DECODE_ERRORS, code_of_status, inner_fault, status_fault
from agentrun.wire import HttpReply

_PRECISE = {
    (400, "context_length_exceeded"): "provider.context_overflow",
    (429, "insufficient_quota"): "provider.fatal",  # waiting does not help: the account needs credit
}
_TOO_LONG = ("maximum context length", "context length is only", "exceeds the context window")
"""Texts of vLLM and others, which send no code."""
_INNER = {
    "rate_limit_exceeded": "provider.rate_limited",
    "rate_limit_error": "provider.rate_limited",
    "context_length_exceeded": "provider.context_overflow",
    "exceed_context_size_error": "provider.context_overflow",
    "server_error": "provider.transient",
    "vector_store_timeout": "provider.transient",
    "overloaded_error": "provider.overloaded",
    "server_is_overloaded": "provider.overloaded",
    "slow_down": "provider.overloaded",
    "unavailable_error": "provider.overloaded",
    "insufficient_quota": "provider.fatal",
    "authentication_error": "provider.fatal",
    "permission_error": "provider.fatal",
    "not_found_error": "provider.fatal",
    "bio_policy": "provider.fatal",
    "data_residency_mismatch": "provider.fatal",
}
_FATAL = ("invalid_", "image_", "unsupported_", "empty_image", "failed_to_download")


class OpenAIError(Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None


class _Body(Struct):
    error: OpenAIError


_body = msgspec.json.Decoder(_Body)


def openai_status_fault(reply: HttpReply) -> Fault:
    error = read_openai_error(reply.body)
    if error is None:
        return status_fault(reply)
    text = error.message or ""
    code = _PRECISE.get((reply.status, str(error.code)))
    if error.type == "exceed_context_size_error" or (reply.status == 400 and _is_too_long(text)):
        code = "provider.context_overflow"
    return status_fault(reply, text, code)


def read_openai_error(body: bytes) -> OpenAIError | None:
    try:
        return _body.decode(body).error
    except DECODE_ERRORS:
        return None


def to_openai_error(value: Any) -> OpenAIError:
    """An error object, a text or anything else as an error."""
    if isinstance(value, str):
        return OpenAIError(value)
    try:
        return msgspec.convert(value, OpenAIError)
    except msgspec.ValidationError:
        return OpenAIError()


def openai_inner_fault(error: OpenAIError) -> Fault:
    text = error.message or ""
    status = error.code if isinstance(error.code, int) and 400 <= error.code <= 599 else None
    code = _code_by_name(error) if status is None else code_of_status(status)
    return inner_fault(text, "provider.context_overflow" if _is_too_long(text) else code, status)


def _code_by_name(error: OpenAIError) -> str:
    for name in (str(error.code), str(error.type)):
        if name in _INNER:
            return _INNER[name]
        if name.startswith(_FATAL):
            return "provider.fatal"
    return "provider.transient"


def _is_too_long(text: str) -> bool:
    return any(phrase in text for phrase in _TOO_LONG)
