"""A streamed answer of OpenAI Chat Completions.

Rule 1  The stream is whole with `[DONE]`, or with a finish reason: some servers leave one of them out. Without either
        there is no reply.
Rule 2  Pieces of a call belong together by their index. A new id under an old index is a new call, and so is an id
        without any index: servers differ here.
Rule 3  The first error is the result; what follows it is not looked at. Nor is anything after `[DONE]`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from agentrun.core.effects import ModelRequest
from agentrun.core.facts_base import Fault
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, decode_fault, unended_fault, unreadable
from agentrun.providers.openai_faults import as_error, broke_off
from agentrun.providers.openai_reply import ChatUsage, assembled
from agentrun.providers.sse import SseDecoder


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _Piece(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Piece] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    id: str | None = None
    model: str | None = None
    usage: ChatUsage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk)


class _Call:
    """A call that is being put together."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []

    def add(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        if piece.function is not None:
            name = piece.function.name or ""
            self.name += name if name != self.name else ""  # some servers say it with every piece
            self.arguments.append(piece.function.arguments or "")


class _Calls:
    """All calls of one reply."""

    def __init__(self) -> None:
        self._all: list[_Call] = []
        self._open: dict[int | None, _Call] = {}

    def add(self, piece: _Piece) -> None:
        call = self._open.get(piece.index)
        if call is None and piece.index is None and not _is_named(piece) and self._all:
            call = self._all[-1]
        if call is None or _begins_another(piece, call):
            call = _Call(len(self._all) if piece.index is None else piece.index)
            self._all.append(call)
            self._open[piece.index] = call
        call.add(piece)

    def whole(self) -> list[tuple[str, str, str | None]]:
        ordered = sorted(self._all, key=lambda call: call.index)
        return [(call.name, "".join(call.arguments), call.id) for call in ordered]


def _begins_another(piece: _Piece, call: _Call) -> bool:
    if piece.id and call.id:
        return piece.id != call.id
    return piece.index is None and _is_named(piece) and bool(call.name)


def _is_named(piece: _Piece) -> bool:
    return piece.function is not None and bool(piece.function.name)


class ChatStream:
    """Reads one reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._sse = SseDecoder()
        self._fault: Fault | None = None
        self._done = False
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls = _Calls()
        self._finish: str | None = None
        self._usage: ChatUsage | None = None
        self._model: str | None = None
        self._id: str | None = None

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) for text in self._read(event.data)]

    def end(self) -> Decoded:
        for event in self._sse.end():
            if _is_whole(event.data):
                self._read(event.data)
        if self._fault is not None:
            return self._fault
        if not self._done and self._finish is None:
            return unended_fault()
        calls = self._calls.whole()
        if not all(name for name, _, _ in calls):
            return decode_fault("a call has no name", {})
        return assembled(
            self._request,
            content="".join(self._content),
            refusal="".join(self._refusal),
            calls=calls,
            finish=self._finish,
            usage=self._usage,
            model=self._model,
            wire_id=self._id,
        )

    def _read(self, data: str) -> list[str]:
        if self._done or self._fault is not None:
            return []
        if data.strip() == "[DONE]":
            self._done = True
            return []
        try:
            chunk = _chunk.decode(data)
        except UNREADABLE as problem:
            self._fault = unreadable(problem, len(data))
            return []
        if chunk.error is not None:
            self._fault = broke_off(as_error(chunk.error))
            return []
        self._id, self._model = self._id or chunk.id, self._model or chunk.model
        self._usage = chunk.usage or self._usage
        return [text for choice in chunk.choices or () for text in self._add(choice)]

    def _add(self, choice: _Choice) -> list[str]:
        if choice.index != 0:
            self._fault = decode_fault("more than one answer", {"pointer": "/choices"})
            return []
        self._finish = choice.finish_reason or self._finish
        delta = choice.delta or _Delta()
        for piece in delta.tool_calls or ():
            self._calls.add(piece)
        self._content.append(delta.content or "")
        self._refusal.append(delta.refusal or "")
        return [text for text in (delta.content, delta.refusal) if text]


def _is_whole(data: str) -> bool:
    """Whether what came last is an event, or only the beginning of one."""
    if data.strip() == "[DONE]":
        return True
    try:
        _chunk.decode(data)
    except UNREADABLE:
        return False
    return True
