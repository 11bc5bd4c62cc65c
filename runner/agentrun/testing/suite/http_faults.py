"""Simulate HTTP faults: replies and errors like those of the real sender.

Rule 1  The codec of the model decodes them like any other reply, so their meaning is not decided here.
Rule 2  In a replay, a timeout takes its full time on the clock. In real time there is no wait; the clock of the run is
        moved forward instead, so that its time budget includes the timeout.
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
_ERROR_BODY = {"type": "error", "error": {"type": "injected", "message": "injected by the test case"}}
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
"""An empty reply in all wire formats at once. Each codec reads its own fields."""


async def simulate_failure(
    inject: InjectedFaultSpec, call: HttpCall, clock: Clock, *, gap: int, time: int, streamed: bool = False
) -> HttpReply:
    """The reply or error of an injected fault. Not for a cut reply, see `simulate_cut`."""
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
    """Move a real clock forward without waiting."""
    from agentrun.engine.event_loop import SystemClock  # late: replays need no event loop

    if isinstance(clock, SystemClock):
        clock.skip_forward(milliseconds)


def _error_fields(call: HttpCall, *, sent: bool, **more: int | str) -> dict[str, object]:
    """The fields of the error. For a tool they include whether the request may have been sent."""
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
    """The error of a reply that breaks off after some of its pieces, which are passed on first."""
    start = 0
    for size in pieces[:after]:
        if heard is not None:
            heard(body[start : start + size])
        start += size
    message = f"the reply was cut off after {start} bytes"
    return ProviderError("provider.zero_output", message, fields={"status": None, "received": start})
