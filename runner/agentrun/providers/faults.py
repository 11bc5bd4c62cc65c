"""HTTP statuses and unreadable bodies as faults, the same for every provider.

Rule 1  Who is at fault decides the code: a bad request or key is fatal and never sent again; a limit, an
        overload or a broken server may be tried again.
Rule 2  A provider's own words are shown cut and masked: some echo the key they refuse.
Rule 3  An error inside a reply that began well means the same as its status. Without one it may be tried again.
Rule 4  No provider makes a run wait longer than an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from agentrun.core.fault import Fault
from agentrun.errors import code_of
from agentrun.secret import mask
from agentrun.wire import HttpReply

MAX_PROVIDER_TEXT = 300
MAX_RETRY_AFTER = 3600
"""Seconds."""

_CODES = {
    408: "provider.timeout",
    409: "provider.transient",
    425: "provider.transient",
    429: "provider.rate_limited",
    503: "provider.overloaded",
    529: "provider.overloaded",
}


def status_fault(reply: HttpReply, words: str, code: str | None = None) -> Fault:
    """The fault of a reply that is no success; `code` when the provider says more than the status."""
    status = reply.status
    code = code or code_of_status(status)
    fields: dict[str, Any] = {"status": status}
    asked = retry_after(reply)
    if code == "provider.rate_limited" or (asked is not None and code_of(code).retry == "retryable"):
        fields["retry_after"] = asked
    return Fault(code, f"the provider answered {status}: {clean_provider_text(words)}", fields)


def code_of_status(status: int) -> str:
    return _CODES.get(status) or ("provider.transient" if status >= 500 else "provider.fatal")


def inner_fault(words: str, code: str = "provider.transient", status: int | None = None) -> Fault:
    """The fault of a reply that began as a success and holds an error."""
    fields: dict[str, Any] = {"status": status}
    if code == "provider.rate_limited":
        fields["retry_after"] = None
    return Fault(code, f"the provider broke off: {clean_provider_text(words)}", fields)


def decode_fault(why: str, fields: dict[str, Any]) -> Fault:
    return Fault("provider.decode", f"the provider's answer cannot be read: {clean_provider_text(why)}", fields)


def empty_fault(finish: str | None) -> Fault:
    return Fault("provider.empty", "the model answered with nothing", {"finish": finish})


def unended_fault() -> Fault:
    """The fault of a stream that is over without its last event."""
    return Fault("provider.empty", "the reply ended without its last event")


def unreadable_fault(error: Exception, size: int) -> Fault:
    """What msgspec could not read. It names the place: a path for a wrong shape, a byte for wrong JSON."""
    message = str(error)
    if isinstance(error, msgspec.ValidationError):
        what, _, path = message.partition(" - at `$")
        pointer = path.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
        return decode_fault(what, {"pointer": pointer})
    if isinstance(error, msgspec.DecodeError):
        what, _, byte = message.partition(" (byte ")
        return decode_fault(what, {"offset": int(byte.rstrip(")")) if byte else size})
    return decode_fault(message, {})


DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON of strangers raises."""


def clean_provider_text(words: str) -> str:
    """A provider's words, fit to be read by people."""
    line = mask(" ".join(words.split()))
    return line if len(line) <= MAX_PROVIDER_TEXT else line[: MAX_PROVIDER_TEXT - 1] + "…"


def retry_after(reply: HttpReply) -> int | None:
    """How many seconds the provider asks to wait: a number, or a date read against the reply's own."""
    value = find_header(reply.headers, "retry-after")
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(int(value[:9]), MAX_RETRY_AFTER)
    sent = _date(find_header(reply.headers, "date"))
    until = _date(value)
    if sent is None or until is None:
        return None
    return min(max(0, round(until - sent)), MAX_RETRY_AFTER)


def find_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    return next((value.strip() for key, value in headers if key.lower() == name), None)


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _date(text: str | None) -> float | None:
    """`Sun, 06 Nov 1994 08:49:37 GMT`, the form that is still sent. `email.utils` would import sockets."""
    match (text or "").split():
        case [_, day, month, year, clock, "GMT"] if month in _MONTHS:
            try:
                hour, minute, second = (int(number) for number in clock.split(":"))
                date = datetime(int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC)
            except ValueError:
                return None
            return date.timestamp()
    return None


# --- where in an answer something is wrong --------------------------------------------------------------------


def unreadable_part_fault(error: Exception, pointer: str) -> Fault:
    """The fault of a part of an answer that was read by itself, with its place in the whole."""
    fault = unreadable_fault(error, 0)
    return replace(fault, fields={"pointer": pointer + fault.fields.get("pointer", "")})
