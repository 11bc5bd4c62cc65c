"""What the script has to say to a request: which turn, whether it was to be expected, and which fault comes first.

Rule 1  A turn answers a request that holds as many turns of the model as the script has before it. So retries and
        several runs at once need nothing to be remembered. In the order of arrival it is the next turn instead.
Rule 2  Faults of a turn come first, each as many times as it says, counted over all requests.
Rule 3  A request that was not expected is answered with 400 and the reason, also one beyond the script: sending it
        again would not help.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

from msgspec import UNSET, Struct

from agentrun.canonical_json import sorted_json
from agentrun.providers.wire_names import wire_name
from agentrun.spec.v1.field_types import milliseconds
from agentrun.spec.v1.provider import Expectation, ProviderFile, ScriptedFault, ScriptedTurn
from agentrun.testing.provider.wire_format import (
    BadProviderRequest,
    UnsupportedByFormat,
    WireFormat,
    WireRequest,
    make_wire_reply,
    reasoning_signature,
)

NO_FAULT = ScriptedFault()
ENDLESS_GAP = 10
JSON_CONTENT_TYPE = "application/json"
SSE_CONTENT_TYPE = "text/event-stream"


class ServerReply(Struct, frozen=True, kw_only=True):
    """What is sent, and how."""

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
    """How many bytes of the body are sent before the connection ends."""
    filler: bytes = b""
    """Sent for ever before the last piece."""
    turn: int | None = None
    """The number of the turn, from 1, that this is or stands before."""
    is_turn: bool = False
    """Whether it is the turn itself and nothing is wrong with it."""


class ScriptPlayer:
    """Gives the answers of one script."""

    def __init__(self, script: ProviderFile) -> None:
        self._script = script
        self._turns = [turn for turn in script.turns for _ in range(turn.times)]
        self._hits = [0] * len(self._turns)
        """How many requests for each turn met a fault."""
        self._arrived = 0
        self._lock = Lock()

    @property
    def length(self) -> int:
        return len(self._turns)

    def reply_to(self, format: WireFormat, path: str, body: bytes) -> ServerReply:
        try:
            asked = format.parse_request(path, body)
        except BadProviderRequest as refused:
            return error_reply(format, 400, str(refused))
        with self._lock:
            number = self._arrived if self._script.order == "arrival" else asked.model_turns
            if number >= len(self._turns):
                turns = f"{len(self._turns)} turn{'' if len(self._turns) == 1 else 's'}"
                return error_reply(
                    format, 400, f"the script is over: it has {turns}, and this request asks for another"
                )
            turn = self._turns[number]
            if problem := next(self._find_mismatches(turn.expect, number, asked, format), None):
                return error_reply(format, 400, f"turn {number + 1} of the script expects {problem}", number + 1)
            fault = self._next_fault(turn, number)
            if fault is None or not _loses_reply(fault):
                self._arrived += 1
        try:
            return _build_reply(turn, number, fault, asked, format)
        except UnsupportedByFormat as unsaid:
            return error_reply(format, 500, f"turn {number + 1}: {unsaid}", number + 1)

    def _next_fault(self, turn: ScriptedTurn, number: int) -> ScriptedFault | None:
        before = 0
        for fault in turn.faults:
            before += fault.times
            if self._hits[number] < before:
                self._hits[number] += 1
                return fault
        return None

    def _find_mismatches(
        self, expect: Expectation, number: int, asked: WireRequest, format: WireFormat
    ) -> Iterator[str]:
        """What is not as it should be, each as the end of a sentence."""
        if expect.model is not UNSET and expect.model != asked.model:
            yield f"the model {expect.model}, not {asked.model}"
        if expect.instructions is not UNSET and expect.instructions not in asked.instructions:
            yield f"instructions with {expect.instructions!r}"
        for text in expect.contains:
            if text not in asked.latest_text:
                yield f"{text!r} in what was said last"
        yield from _find_result_mismatches(expect.results, asked.latest_results)
        if expect.tools is not UNSET and {wire_name(tool) for tool in expect.tools} != set(asked.tools):
            yield f"the tools {', '.join(expect.tools) or 'none'}, not {', '.join(asked.tools) or 'none'}"
        if expect.reasoning and format.accepts_reasoning:
            for before, turn in enumerate(self._turns[:number]):
                if turn.reasoning and reasoning_signature(before) not in asked.thoughts:
                    yield f"what was thought in turn {before + 1} to come back"


def _find_result_mismatches(expected: list[str], results: tuple[str, ...]) -> Iterator[str]:
    if expected and len(expected) != len(results):
        yield f"{len(expected)} results of tools, not {len(results)}"
        return
    for index, (text, result) in enumerate(zip(expected, results, strict=False)):
        if text not in result:
            yield f"{text!r} in result {index + 1}"


def _loses_reply(fault: ScriptedFault) -> bool:
    """Whether the reply is lost by it, so that it will be asked for again."""
    spoilt = (fault.status, fault.body, fault.content_type, fault.cut, fault.damage)
    return fault.endless or any(value is not UNSET for value in spoilt)


def error_reply(format: WireFormat, status: int, message: str, turn: int | None = None) -> ServerReply:
    """A reply that is none."""
    return ServerReply(
        status=status,
        content_type=JSON_CONTENT_TYPE,
        pieces=(sorted_json(format.error_body(status, message)),),
        turn=turn,
    )


def _build_reply(
    turn: ScriptedTurn, number: int, fault: ScriptedFault | None, asked: WireRequest, format: WireFormat
) -> ServerReply:
    status, content_type, pieces = 200, SSE_CONTENT_TYPE if asked.stream else JSON_CONTENT_TYPE, list[bytes]()
    given = fault or NO_FAULT
    if given.status is not UNSET or given.body is not UNSET:
        status = 200 if given.status is UNSET else given.status
        content_type, pieces = JSON_CONTENT_TYPE, [_fault_body(given, status, number, format)]
    elif asked.stream:
        pieces = format.reply_events(make_wire_reply(turn, number, asked.model), asked)
    else:
        pieces = [sorted_json(format.reply_body(make_wire_reply(turn, number, asked.model), asked))]
    return ServerReply(
        status=status,
        content_type=content_type if given.content_type is UNSET else given.content_type,
        pieces=tuple(_apply_fault(pieces, given)),
        headers=given.headers,
        framing=_framing(given, is_stream=content_type == SSE_CONTENT_TYPE),
        delay=_time(given.delay),
        gap=_time(given.gap) or (ENDLESS_GAP if given.endless else 0),
        cut=None if given.cut is UNSET else given.cut,
        filler=(b":\n\n" if content_type == SSE_CONTENT_TYPE else b" ") if given.endless else b"",
        turn=number + 1,
        is_turn=fault is None or not _loses_reply(fault),
    )


def _fault_body(fault: ScriptedFault, status: int, number: int, format: WireFormat) -> bytes:
    body: Any = fault.body
    if body is UNSET:
        body = format.error_body(status, f"the script has this fault before turn {number + 1}") if status >= 400 else ""
    return body.encode() if isinstance(body, str) else sorted_json(body)


def _apply_fault(pieces: list[bytes], fault: ScriptedFault) -> Iterator[bytes]:
    """The pieces with their fault in them; joined they are as long as before."""
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


def _framing(fault: ScriptedFault, *, is_stream: bool) -> str:
    if fault.framing is not UNSET:
        return fault.framing
    return "chunked" if is_stream or fault.endless else "length"


def _time(duration: Any) -> int:
    return 0 if duration is UNSET else milliseconds(duration)
