"""Decode server-sent events from bytes in pieces of any size.

Rule 1  Pieces may end anywhere: also inside a CRLF, a character or the byte order mark.
Rule 2  Lines end only with CR, LF or CRLF. Invalid UTF-8 is replaced, as the standard says.
Rule 3  An event without its blank line is returned at the end, even if its last line is incomplete. The caller checks
        whether it is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from agentrun.core.effects import ModelRequest
from agentrun.providers.codec import ReplyOrFault
from agentrun.providers.faults import DECODE_ERRORS, unended_fault, unreadable_fault

_Event = TypeVar("_Event")
_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    name: str
    """`message` if the server sent no name."""
    data: str


class SseDecoder:
    def __init__(self) -> None:
        self._head: bytes | None = b""
        """The first bytes while they may be a byte order mark. None afterwards."""
        self._after_cr = False
        self._line: list[bytes] = []
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        if self._head is not None:
            data = self._without_mark(data)
        if not data:
            return []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        events: list[SseEvent] = []
        for piece in data.splitlines(keepends=True):  # bytes are split only at CR, LF and CRLF
            self._line.append(piece)
            if piece[-1] in b"\r\n":
                self._read(b"".join(self._line).rstrip(b"\r\n"), events)
                self._line.clear()
        return events

    def end(self) -> list[SseEvent]:
        events: list[SseEvent] = []
        line = b"".join([self._head or b"", *self._line])
        self._head, self._line = None, []
        if line:
            self._read(line, events)
        self._read(b"", events)
        return events

    def _without_mark(self, data: bytes) -> bytes:
        """Remove a byte order mark; hold back bytes that may be the beginning of one."""
        data = (self._head or b"") + data
        undecided = len(data) < len(_BOM) and _BOM.startswith(data)
        self._head = data if undecided else None
        return b"" if undecided else data.removeprefix(_BOM)

    def _read(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                events.append(SseEvent(self._name or "message", "\n".join(self._data)))
            self._name, self._data = "", []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")


class SseReply(ABC, Generic[_Event]):
    """A streamed reply of JSON events. What comes after its result or its first fault is not read."""

    def __init__(self, request: ModelRequest, decoder: msgspec.json.Decoder[_Event]) -> None:
        self._request = request
        self._decoder = decoder
        self._sse = SseDecoder()
        self._result: ReplyOrFault | None = None

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) for text in self._read(event.data)]

    def end(self) -> ReplyOrFault:
        for event in self._sse.end():
            if self._is_complete(event.data):
                self._read(event.data)
        return self._result or self._without_last_event()

    @abstractmethod
    def _take(self, event: _Event) -> list[str]:
        """Add an event and return its texts."""

    def _without_last_event(self) -> ReplyOrFault:
        return unended_fault()

    def _is_complete(self, data: str) -> bool:
        """Whether the last data of a stream is a complete event, and not only its beginning."""
        return can_decode(self._decoder, data)

    def _read(self, data: str) -> list[str]:
        if self._result is not None:
            return []
        try:
            return self._take(self._decoder.decode(data))
        except DECODE_ERRORS as problem:
            self._result = unreadable_fault(problem, len(data))
            return []


def can_decode(decoder: msgspec.json.Decoder[Any], data: str) -> bool:
    try:
        decoder.decode(data)
    except DECODE_ERRORS:
        return False
    return True
