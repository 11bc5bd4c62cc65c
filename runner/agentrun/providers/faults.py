"""Faults for HTTP statuses and replies that cannot be decoded, for all providers.

Rule 1  A bad request or key is fatal and not retried. A rate limit, an overload or a server error can be retried.
Rule 2  The text of a provider is shortened and masked, because some providers repeat the key that they refuse.
Rule 3  An error inside a reply with status 200 has the code of its own status. Without one it can be retried.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from agentrun.core.fault import Fault
from agentrun.errors import code_of
from agentrun.secret import mask, redact_shapes
from agentrun.wire import HttpReply

MAX_PROVIDER_TEXT = 300
MAX_RETRY_AFTER = 3600  # seconds

_CODES = {
    408: "provider.timeout",
    409: "provider.transient",
    425: "provider.transient",
    429: "provider.rate_limited",
    503: "provider.overloaded",
    529: "provider.overloaded",
}
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def status_fault(reply: HttpReply, text: str | None = None, code: str | None = None) -> Fault:
    """`text`: the message of the provider; None: the body. `code`: if its error is more precise than the status."""
    text = reply.body[:2000].decode("utf-8", "replace") if text is None else text
    code = code or code_of_status(reply.status)
    fields: dict[str, Any] = {"status": reply.status}
    delay = retry_after(reply)
    if code == "provider.rate_limited" or (delay is not None and code_of(code).retry == "retryable"):
        fields["retry_after"] = delay
    return Fault(code, f"the provider answered {reply.status}: {clean_provider_text(text)}", fields)


def code_of_status(status: int) -> str:
    return _CODES.get(status) or ("provider.transient" if status >= 500 else "provider.fatal")


def inner_fault(text: str | None, code: str = "provider.transient", status: int | None = None) -> Fault:
    fields = {"status": status} | ({"retry_after": None} if code == "provider.rate_limited" else {})
    return Fault(code, f"the provider reported an error in its reply: {clean_provider_text(text)}", fields)


def decode_fault(why: str, fields: dict[str, Any]) -> Fault:
    return Fault("provider.decode", f"the provider's reply cannot be decoded: {clean_provider_text(why)}", fields)


def empty_fault(finish: str | None) -> Fault:
    return Fault("provider.empty", "the model answered with nothing", {"finish": finish})


def unended_fault() -> Fault:
    return Fault("provider.empty", "the reply ended without its last event")


def unreadable_fault(error: Exception, size: int) -> Fault:
    """With the pointer to a wrong type, or the offset of invalid JSON."""
    message = str(error)
    if isinstance(error, msgspec.ValidationError):
        what, _, path = message.partition(" - at `$")
        pointer = path.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
        return decode_fault(what, {"pointer": pointer})
    if isinstance(error, msgspec.DecodeError):
        what, _, byte = message.partition(" (byte ")
        return decode_fault(what, {"offset": int(byte.rstrip(")")) if byte else size})
    return decode_fault(message, {})


def unreadable_part_fault(error: Exception, pointer: str) -> Fault:
    fault = unreadable_fault(error, 0)
    return replace(fault, fields={"pointer": pointer + fault.fields.get("pointer", "")})


def clean_provider_text(text: str | None) -> str:
    # With placeholders, because in a replay the reply has them too.
    line = mask(redact_shapes(" ".join((text or "no message").split())))
    return line if len(line) <= MAX_PROVIDER_TEXT else line[: MAX_PROVIDER_TEXT - 1] + "…"


def retry_after(reply: HttpReply) -> int | None:
    """The seconds in the header `retry-after`: a number, or a date relative to the header `date`."""
    value = reply.header("retry-after")
    if value.isascii() and value.isdigit():
        return min(int(value[:9]), MAX_RETRY_AFTER)
    sent, until = _date(reply.header("date")), _date(value)
    if sent is None or until is None:
        return None
    return min(max(0, round(until - sent)), MAX_RETRY_AFTER)


def _date(text: str) -> float | None:
    """Parse `Sun, 06 Nov 1994 08:49:37 GMT`, the form that servers send. `email.utils` would import sockets."""
    match text.split():
        case [_, day, month, year, clock, "GMT"] if month in _MONTHS:
            try:
                hour, minute, second = map(int, clock.split(":"))
                date = datetime(int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC)
            except ValueError:
                return None
            return date.timestamp()
    return None
