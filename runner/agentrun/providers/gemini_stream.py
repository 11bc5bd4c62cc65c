"""A streamed answer of Gemini.

Rule 1  Every event is a piece of the answer. The stream is whole when the latest piece with content says why it ended,
        or when the prompt was blocked. Without that there is no reply.
Rule 2  The first error is the result; what follows it is not looked at.
"""

from __future__ import annotations

import msgspec

from agentrun.core.effects import ModelRequest
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, unended_fault, unreadable
from agentrun.providers.gemini_reply import Answer, Response
from agentrun.providers.sse import SseDecoder

_response = msgspec.json.Decoder(Response)


class GeminiStream:
    """Reads one reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._sse = SseDecoder()
        self._answer = Answer(request)

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) for text in self._read(event.data)]

    def end(self) -> Decoded:
        for event in self._sse.end():
            if _is_whole(event.data):
                self._read(event.data)
        return self._answer.result() if self._answer.is_whole else unended_fault()

    def _read(self, data: str) -> list[str]:
        if self._answer.fault is not None:
            return []
        try:
            response = _response.decode(data)
        except UNREADABLE as problem:
            self._answer.fault = unreadable(problem, len(data))
            return []
        return self._answer.add(response)


def _is_whole(data: str) -> bool:
    """Whether what came last is an event, or only the beginning of one."""
    try:
        msgspec.json.decode(data)
    except UNREADABLE:
        return False
    return True
