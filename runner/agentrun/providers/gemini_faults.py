"""Errors of Gemini.

Rule 1  The status decides the code, unless a known text is more precise.
Rule 2  The time to wait is in the details of the error. The header takes precedence.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.core.fault import Fault
from agentrun.providers.faults import DECODE_ERRORS, MAX_RETRY_AFTER, code_of_status, inner_fault, status_fault
from agentrun.wire import HttpReply


class GeminiError(Struct):
    """An error instead of a reply or inside one."""

    code: int = 500
    message: str | None = None
    details: Any = None


class _Body(Struct):
    error: GeminiError


_body: msgspec.json.Decoder[_Body | list[_Body]] = msgspec.json.Decoder(_Body | list[_Body])

_DELAY = re.compile(r"(\d{1,9})(\.\d+)?s")


def gemini_status_fault(reply: HttpReply) -> Fault:
    error = _read_error(reply.body)
    if error is None:
        return status_fault(reply)
    return _with_delay(status_fault(reply, error.message or "", _code(reply.status, error)), error)


def gemini_inner_fault(error: GeminiError) -> Fault:
    code = _code(error.code, error) or code_of_status(error.code)
    return _with_delay(inner_fault(error.message, code, error.code), error)


def _read_error(body: bytes) -> GeminiError | None:
    """The error in a body, alone or in a list, or None."""
    try:
        decoded = _body.decode(body)
    except DECODE_ERRORS:
        return None
    first = decoded if isinstance(decoded, _Body) else next(iter(decoded), None)
    return first.error if first else None


def _code(status: int, error: GeminiError) -> str | None:
    """The code if the text is more precise than the status."""
    text = error.message or ""
    too_long = "token count" in text and "exceeds the maximum number of tokens" in text
    return "provider.context_overflow" if status == 400 and too_long else None


def _with_delay(fault: Fault, error: GeminiError) -> Fault:
    if fault.code != "provider.rate_limited" or fault.fields.get("retry_after") is not None:
        return fault
    return replace(fault, fields={**fault.fields, "retry_after": _delay(error.details)})


def _delay(details: Any) -> int | None:
    """The seconds of a `google.rpc.RetryInfo`, rounded up: 38.2 s are 39."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith("/google.rpc.RetryInfo"):
            match = _DELAY.fullmatch(str(detail.get("retryDelay")))
            part = 1 if match and (match[2] or "").strip(".0") else 0
            return min(int(match[1]) + part, MAX_RETRY_AFTER) if match else None
    return None
