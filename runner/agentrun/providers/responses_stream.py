"""A streamed answer of OpenAI Responses.

Rule 1  `response.completed`, `.incomplete`, `.failed` and `error` end it. The first one counts.
Rule 2  An item is taken when it is done. The last event repeats them all; it is used when it has more of them.
Rule 3  What is not whole at the end is no event.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, decode_fault, unended_fault, unreadable
from agentrun.providers.openai_faults import Error, as_error, broke_off
from agentrun.providers.responses_reply import assembled, read_response
from agentrun.providers.sse import SseDecoder


class _Event(Struct):
    type: str | None = None
    delta: Any = None
    item: Raw = Raw(b"")
    output_index: int | None = None
    response: Raw = Raw(b"")
    error: Any = None
    message: str | None = None
    code: str | int | None = None


_event = msgspec.json.Decoder(_Event)

_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class ResponsesStream:
    """Reads one reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._sse = SseDecoder()
        self._items: dict[int, Raw] = {}
        self._result: Decoded | None = None

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) for text in self._read(event.data)]

    def end(self) -> Decoded:
        for event in self._sse.end():
            self._read(event.data, last=True)
        return self._result or unended_fault()

    def _read(self, data: str, *, last: bool = False) -> list[str]:
        if self._result is not None or data.strip() == "[DONE]":
            return []
        try:
            event = _event.decode(data)
        except UNREADABLE as problem:
            self._result = None if last else unreadable(problem, len(data))
            return []
        if event.type in _TEXTS:
            return self._text(event)
        if event.type == "response.output_item.done":
            index = len(self._items) if event.output_index is None else event.output_index
            self._items[index] = event.item.copy()
        elif event.type in _LAST:
            self._result = self._whole(event)
        elif event.type == "error" or event.error is not None:
            self._result = broke_off(as_error(event.error) if event.error else Error(event.message, event.code))
        return []

    def _text(self, event: _Event) -> list[str]:
        if isinstance(event.delta, str):
            return [event.delta] if event.delta else []
        self._result = decode_fault("a piece of text is no text", {"pointer": "/delta"})
        return []

    def _whole(self, event: _Event) -> Decoded:
        response = read_response(event.response)
        if isinstance(response, Fault):
            return response
        done = [self._items[index] for index in sorted(self._items)]
        items = done if len(done) >= len(response.output) else response.output
        return assembled(response, items, self._request)
