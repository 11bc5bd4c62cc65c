"""Gemini's errors.

Rule 1  The status decides; known words say more where it says too little.
Rule 2  How long to wait stands in the error's details. The header counts when both are there.
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
    """An error, before a reply or inside one."""

    code: int = 500
    message: str | None = None
    details: Any = None


class _Body(Struct):
    error: GeminiError


_body: msgspec.json.Decoder[_Body | list[_Body]] = msgspec.json.Decoder(_Body | list[_Body])

_DELAY = re.compile(r"(\d{1,9})(\.\d+)?s")


def gemini_status_fault(reply: HttpReply) -> Fault:
    """A reply whose status is not 200."""
    error = _read_error(reply.body)
    if error is None:
        words = reply.body[:2000].decode("utf-8", "replace")
        return status_fault(reply, words or "no words")
    return _with_delay(status_fault(reply, error.message or "no words", _code(reply.status, error)), error)


def gemini_inner_fault(error: GeminiError) -> Fault:
    """An error inside a reply with status 200."""
    code = _code(error.code, error) or code_of_status(error.code)
    return _with_delay(inner_fault(error.message or "no words", code, error.code), error)


def _read_error(body: bytes) -> GeminiError | None:
    """The error that a body is, alone or in a list; None when it is none."""
    try:
        found = _body.decode(body)
    except DECODE_ERRORS:
        return None
    first = found if isinstance(found, _Body) else next(iter(found), None)
    return first.error if first else None


def _code(status: int, error: GeminiError) -> str | None:
    """When the provider says more than the status."""
    words = error.message or ""
    too_long = "token count" in words and "exceeds the maximum number of tokens" in words
    return "provider.context_overflow" if status == 400 and too_long else None


def _with_delay(fault: Fault, error: GeminiError) -> Fault:
    if fault.code != "provider.rate_limited" or fault.fields.get("retry_after") is not None:
        return fault
    return replace(fault, fields={**fault.fields, "retry_after": _delay(error.details)})


def _delay(details: Any) -> int | None:
    """The seconds of a `google.rpc.RetryInfo`, in full: 38.2 s are 39."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith("/google.rpc.RetryInfo"):
            found = _DELAY.fullmatch(str(detail.get("retryDelay")))
            part = 1 if found and (found[2] or "").strip(".0") else 0
            return min(int(found[1]) + part, MAX_RETRY_AFTER) if found else None
    return None
