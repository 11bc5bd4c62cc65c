"""HTTP statuses and unreadable bodies as faults, the same for every provider.

Rule 1  Who is at fault decides the code: a bad request or key is fatal and never sent again; a limit, an
        overload or a broken server may be tried again.
Rule 2  A provider's own words are shown cut and masked: some echo the key they refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from agentrun.core.facts_base import Fault
from agentrun.secret import mask
from agentrun.wire import HttpReply

MAX_WORDS = 300

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
    code = code or _CODES.get(status) or ("provider.transient" if status >= 500 else "provider.fatal")
    fields: dict[str, Any] = {"status": status}
    if code == "provider.rate_limited":
        fields["retry_after"] = retry_after(reply)
    return Fault(code, f"the provider answered {status}: {shown(words)}", fields)


def decode_fault(why: str, fields: dict[str, Any]) -> Fault:
    return Fault("provider.decode", f"the provider's answer cannot be read: {shown(why)}", fields)


def shown(words: str) -> str:
    """A provider's words, fit to be read by people."""
    line = mask(" ".join(words.split()))
    return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"


def retry_after(reply: HttpReply) -> int | None:
    """How many seconds the provider asks to wait: a number, or a date read against the reply's own."""
    value = header(reply.headers, "retry-after")
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return int(value[:9])
    sent = _date(header(reply.headers, "date"))
    until = _date(value)
    if sent is None or until is None:
        return None
    return max(0, round(until - sent))


def header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
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
