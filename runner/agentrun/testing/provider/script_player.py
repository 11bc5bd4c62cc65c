"""Build the reply to a request from a script: find the turn, check its expectations and inject its faults.

Rule 1  A request with N turns of the model in its history gets turn N+1. So retries and concurrent runs need no state.
        With `order: arrival`, each request gets the next turn instead.
Rule 2  The faults of a turn come first, each `times` times, counted over all requests.
Rule 3  A request that does not meet the expectations, or comes after the last turn, is answered with 400 and the
        reason, because a retry would not help.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

from msgspec import UNSET, Struct

from agentrun.canonical_json import sorted_json
from agentrun.providers.request_encoding import wire_name
from agentrun.spec.safe_text import plural
from agentrun.spec.v1.field_types import milliseconds
from agentrun.spec.v1.provider import Expectation, ProviderFile, ScriptedFault, ScriptedTurn
from agentrun.testing.provider import wire_format as wire

NO_FAULT = ScriptedFault()
ENDLESS_GAP = 10
JSON_CONTENT_TYPE = "application/json"
SSE_CONTENT_TYPE = "text/event-stream"


class ServerReply(Struct, frozen=True, kw_only=True):
    status: int
    content_type: str
    pieces: tuple[bytes, ...]
    headers: dict[str, str] = {}
    framing: str = "length"
    delay: int = 0
    """Milliseconds before anything is sent."""
    gap: int = 0
    """Milliseconds before each further piece."""
    cut: int | None = None
    """Bytes of the body that are sent before the connection is closed."""
    filler: bytes = b""
    """Sent forever before the last piece."""
    turn: int | None = None
    """The number of the turn, from 1, that it answers or precedes."""
    is_turn: bool = False
    """Whether it is the complete reply of the turn, without a fault."""


class ScriptPlayer:
    def __init__(self, script: ProviderFile) -> None:
        self._script = script
        self._turns = [turn for turn in script.turns for _ in range(turn.times)]
        self._hits = [0] * len(self._turns)
        """How many requests for each turn got a fault."""
        self._arrived = 0
        self._lock = Lock()

    @property
    def length(self) -> int:
        return len(self._turns)

    def reply_to(self, format: wire.WireFormat, path: str, body: bytes) -> ServerReply:
        try:
            request = format.parse_request(path, body)
        except wire.BadProviderRequest as error:
            return error_reply(format, 400, str(error))
        with self._lock:
            number = self._arrived if self._script.order == "arrival" else request.model_turns
            if number >= len(self._turns):
                turns = plural(len(self._turns), "turn")
                return error_reply(format, 400, f"the script has {turns}, but this request needs turn {number + 1}")
            turn = self._turns[number]
            if problem := next(self._find_mismatches(turn.expect, number, request, format), None):
                return error_reply(format, 400, f"turn {number + 1} of the script expects {problem}", number + 1)
            fault = self._next_fault(turn, number)
            if fault is None or not _loses_reply(fault):
                self._arrived += 1
        try:
            return _build_reply(turn, number, fault, request, format)
        except wire.UnsupportedByFormat as error:
            return error_reply(format, 500, f"turn {number + 1}: {error}", number + 1)

    def _next_fault(self, turn: ScriptedTurn, number: int) -> ScriptedFault | None:
        before = 0
        for fault in turn.faults:
            before += fault.times
            if self._hits[number] < before:
                self._hits[number] += 1
                return fault
        return None

    def _find_mismatches(
        self, expect: Expectation, number: int, request: wire.WireRequest, format: wire.WireFormat
    ) -> Iterator[str]:
        """The expectations that are not met, each as the end of a sentence."""
        if expect.model is not UNSET and expect.model != request.model:
            yield f"the model {expect.model}, not {request.model}"
        if expect.instructions is not UNSET and expect.instructions not in request.instructions:
            yield f"instructions with {expect.instructions!r}"
        for text in expect.contains:
            if text not in request.latest_text:
                yield f"{text!r} in the messages since the last turn"
        yield from _find_result_mismatches(expect.results, request.latest_results)
        if expect.tools is not UNSET and {wire_name(tool) for tool in expect.tools} != set(request.tools):
            yield f"the tools {', '.join(expect.tools) or 'none'}, not {', '.join(request.tools) or 'none'}"
        if expect.reasoning and format.accepts_reasoning:
            for before, turn in enumerate(self._turns[:number]):
                if turn.reasoning and wire.reasoning_signature(before) not in request.thoughts:
                    yield f"the reasoning of turn {before + 1} in the history"


def _find_result_mismatches(expected: list[str], results: tuple[str, ...]) -> Iterator[str]:
    if expected and len(expected) != len(results):
        yield f"{plural(len(expected), 'tool result')}, not {len(results)}"
        return
    for index, (text, result) in enumerate(zip(expected, results, strict=False)):
        if text not in result:
            yield f"{text!r} in result {index + 1}"


def _loses_reply(fault: ScriptedFault) -> bool:
    """Whether the fault destroys the reply, so that the client will retry."""
    damaged = (fault.status, fault.body, fault.content_type, fault.cut, fault.damage)
    return fault.endless or any(value is not UNSET for value in damaged)


def error_reply(format: wire.WireFormat, status: int, message: str, turn: int | None = None) -> ServerReply:
    body = sorted_json(format.error_body(status, message))
    return ServerReply(status=status, content_type=JSON_CONTENT_TYPE, pieces=(body,), turn=turn)


def _build_reply(
    turn: ScriptedTurn,
    number: int,
    scripted_fault: ScriptedFault | None,
    request: wire.WireRequest,
    format: wire.WireFormat,
) -> ServerReply:
    status = 200
    content_type = SSE_CONTENT_TYPE if request.stream else JSON_CONTENT_TYPE
    fault = scripted_fault or NO_FAULT
    if fault.status is not UNSET or fault.body is not UNSET:
        status = 200 if fault.status is UNSET else fault.status
        content_type, pieces = JSON_CONTENT_TYPE, [_fault_body(fault, status, number, format)]
    elif request.stream:
        pieces = format.reply_events(wire.make_wire_reply(turn, number, request.model), request)
    else:
        pieces = [sorted_json(format.reply_body(wire.make_wire_reply(turn, number, request.model), request))]
    is_stream = content_type == SSE_CONTENT_TYPE
    framing = "chunked" if is_stream or fault.endless else "length"
    return ServerReply(
        status=status,
        content_type=content_type if fault.content_type is UNSET else fault.content_type,
        pieces=tuple(_apply_fault(pieces, fault)),
        headers=fault.headers,
        framing=framing if fault.framing is UNSET else fault.framing,
        delay=_time(fault.delay),
        gap=_time(fault.gap) or (ENDLESS_GAP if fault.endless else 0),
        cut=None if fault.cut is UNSET else fault.cut,
        filler=(b":\n\n" if is_stream else b" ") if fault.endless else b"",
        turn=number + 1,
        is_turn=not _loses_reply(fault),
    )


def _fault_body(fault: ScriptedFault, status: int, number: int, format: wire.WireFormat) -> bytes:
    body: Any = fault.body
    if body is UNSET:
        body = format.error_body(status, f"the script has this fault before turn {number + 1}") if status >= 400 else ""
    return body.encode() if isinstance(body, str) else sorted_json(body)


def _apply_fault(pieces: list[bytes], fault: ScriptedFault) -> Iterator[bytes]:
    """Damage or re-split the pieces. The total length stays the same."""
    whole = bytearray(b"".join(pieces))
    if fault.damage is not UNSET and fault.damage < len(whole):
        whole[fault.damage] = 0
    sizes = [len(piece) for piece in pieces]
    if fault.drip is not UNSET:
        sizes = [fault.drip] * -(-len(whole) // fault.drip)
    start = 0
    for size in sizes:
        yield bytes(whole[start : start + size])
        start += size


def _time(duration: Any) -> int:
    return 0 if duration is UNSET else milliseconds(duration)
