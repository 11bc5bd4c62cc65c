"""OpenAI's errors, and those of servers that speak its language.

Rule 1  The status decides; a code, a type or known words say more where the status says too little.
Rule 2  An error inside a reply with status 200 means what its own code says.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core.fault import Fault
from agentrun.providers.faults import DECODE_ERRORS, code_of_status, inner_fault, status_fault
from agentrun.wire import HttpReply


class OpenAIError(Struct):
    """An error as they write it."""

    message: str | None = None
    code: str | int | None = None
    type: str | None = None


class _Body(Struct):
    error: OpenAIError


_body = msgspec.json.Decoder(_Body)

_SAYS_MORE = {
    (400, "context_length_exceeded"): "provider.context_overflow",
    (429, "insufficient_quota"): "provider.fatal",  # no waiting helps: somebody has to pay
}
_TOO_LONG = ("maximum context length", "context length is only", "exceeds the context window")
"""What vLLM and others say instead of a code."""
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


def openai_status_fault(reply: HttpReply) -> Fault:
    """A reply whose status is not 200."""
    error = read_openai_error(reply.body)
    if error is None:
        words = reply.body[:2000].decode("utf-8", "replace")
        return status_fault(reply, words or "no words")
    words = error.message or "no words"
    code = _SAYS_MORE.get((reply.status, str(error.code)))
    if error.type == "exceed_context_size_error" or (reply.status == 400 and _is_too_long(words)):
        code = "provider.context_overflow"
    return status_fault(reply, words, code)


def read_openai_error(body: bytes) -> OpenAIError | None:
    """The error that a body is; None when it is none."""
    try:
        return _body.decode(body).error
    except DECODE_ERRORS:
        return None


def to_openai_error(value: Any) -> OpenAIError:
    """An error inside something else, whatever its form."""
    if isinstance(value, str):
        return OpenAIError(value)
    try:
        return msgspec.convert(value, OpenAIError)
    except msgspec.ValidationError:
        return OpenAIError()


def openai_inner_fault(error: OpenAIError) -> Fault:
    """An error inside a reply with status 200."""
    words = error.message or "no words"
    status = error.code if isinstance(error.code, int) and 400 <= error.code <= 599 else None
    if _is_too_long(words):
        code = "provider.context_overflow"
    elif status is not None:
        code = code_of_status(status)
    else:
        code = _code_by_name(error)
    return inner_fault(words, code, status)


def _code_by_name(error: OpenAIError) -> str:
    for name in (str(error.code), str(error.type)):
        if name in _INNER:
            return _INNER[name]
        if name.startswith(_FATAL):
            return "provider.fatal"
    return "provider.transient"


def _is_too_long(words: str) -> bool:
    return any(phrase in words for phrase in _TOO_LONG)
