"""What comes over the wire when something goes wrong there: replies and errors as the real sender gives them.

Rule 1  A model's codec reads them as it reads any other: what they mean is not decided here.
Rule 2  Under a clock that is moved by hand a request that is not answered takes as long as it may. In real time it
        takes none: whoever records does not wait. The run's clock is put forward: its budget of time knows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from msgspec import UNSET

from agentrun.canonical_json import sorted_json
from agentrun.engine.clock import StepClock
from agentrun.engine.ports import Clock
from agentrun.errors import ProviderError
from agentrun.spec.v1.cases import InjectedFaultSpec
from agentrun.wire import HttpCall, HttpReply

_JSON = ("content-type", "application/json")
_ERROR_BODY = {"type": "error", "error": {"type": "injected", "message": "laid over the recording by its case"}}
_EMPTY_REPLY = {
    "id": "",
    "model": "",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}],
    "type": "message",
    "role": "assistant",
    "content": [],
    "stop_reason": "end_turn",
    "candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}],
    "status": "completed",
    "output": [],
}
"""A reply with nothing in it, in the words of every protocol at once: each codec reads its own."""


async def simulate_failure(
    inject: InjectedFaultSpec, call: HttpCall, clock: Clock, *, gap: int, time: int, streamed: bool = False
) -> HttpReply:
    """What a request gets for which something is injected. Not for a reply that is cut: that needs the reply."""
    if inject.status is not UNSET:
        return _status_reply(inject, call)
    if inject.empty is not UNSET:
        return HttpReply(200, (_JSON,), sorted_json(_EMPTY_REPLY))
    if inject.timeout is not UNSET:
        limit, what = (gap, "a pause in the reply") if streamed and gap < time else (time, "the reply")
        if isinstance(clock, StepClock):
            await clock.sleep_until(clock.now() + limit)
        else:
            advance_real_clock(clock, limit)
        message = f"{what} took longer than {limit} ms"
        raise ProviderError("provider.timeout", message, fields=_error_fields(call, sent=True, limit=limit))
    host = urlsplit(call.url).netloc.rpartition("@")[2] or call.url
    message = f"no reply came from {host}: the connection was refused"
    raise ProviderError("provider.transient", message, fields=_error_fields(call, sent=False, reason="refused"))


def advance_real_clock(clock: Clock, milliseconds: int) -> None:
    """Let so much time pass that nobody waits for."""
    from agentrun.engine.system_clock import SystemClock  # late: a replay needs no event loop

    if isinstance(clock, SystemClock):
        clock.skip_forward(milliseconds)


def _error_fields(call: HttpCall, *, sent: bool, **more: int | str) -> dict[str, object]:
    """The evidence. Of a tool's request it is told whether it may have been sent."""
    return {"status": None, **more} if call.reach is None else {"status": None, **more, "sent": sent}


def _status_reply(inject: InjectedFaultSpec, call: HttpCall) -> HttpReply:
    assert inject.status is not UNSET
    wait = () if inject.retry_after is UNSET else (("retry-after", str(inject.retry_after)),)
    if call.reach is not None:
        return HttpReply(inject.status, wait, b"")
    return HttpReply(inject.status, (_JSON, *wait), sorted_json(_ERROR_BODY))


def simulate_cut(
    body: bytes, pieces: tuple[int, ...], after: int, heard: Callable[[bytes], None] | None
) -> ProviderError:
    """The error of a reply that breaks off after so many of its pieces. They are heard first."""
    start = 0
    for size in pieces[:after]:
        if heard is not None:
            heard(body[start : start + size])
        start += size
    message = f"the reply was cut off after {start} bytes"
    return ProviderError("provider.zero_output", message, fields={"status": None, "received": start})
