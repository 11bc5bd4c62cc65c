"""Decode replies and streams of OpenAI Chat Completions.

Rule 1  Only the declared fields are read. Most are optional, because compatible servers omit many of them.
Rule 2  If a field has the wrong type, the whole reply is `provider.decode` with the JSON pointer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from agentrun.core.effects import ModelRequest
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import ReplyOrFault, TokenCount
from agentrun.providers.faults import (
    DECODE_ERRORS,
    can_decode,
    decode_fault,
    empty_fault,
    unended_fault,
    unreadable_fault,
)
from agentrun.providers.openai_faults import (
    OpenAIError,
    openai_inner_fault,
    openai_status_fault,
    read_openai_error,
    to_openai_error,
)
from agentrun.providers.sse import SseDecoder
from agentrun.providers.wire_names import tools_by_wire_name
from agentrun.wire import HttpReply


class CachedTokens(Struct):
    cached_tokens: TokenCount | None = None


class ReasoningTokens(Struct):
    reasoning_tokens: TokenCount | None = None


class ChatUsage(Struct):
    prompt_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None
    prompt_tokens_details: CachedTokens | None = None
    completion_tokens_details: ReasoningTokens | None = None

    def neutral(self) -> Usage:
        read, written = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            input=self.prompt_tokens,
            output=self.completion_tokens,
            cached=read.cached_tokens if read else None,
            reasoning=written.reasoning_tokens if written else None,
        )


class _Function(Struct):
    name: str
    arguments: str | None = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _ChatMessage(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    message: _ChatMessage
    finish_reason: str | None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1, max_length=1)]
    id: str | None = None
    model: str | None = None
    usage: ChatUsage | None = None


_completion = msgspec.json.Decoder(_Completion)

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def read_chat_reply(reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
    """Decode a reply that is not streamed, with any status."""
    if reply.status != 200:
        return openai_status_fault(reply)
    try:
        completion = _completion.decode(reply.body)
    except DECODE_ERRORS as problem:
        error = read_openai_error(reply.body)
        return openai_inner_fault(error) if error else unreadable_fault(problem, len(reply.body))
    choice = completion.choices[0]
    calls = [(call.function.name, call.function.arguments or "", call.id) for call in choice.message.tool_calls or ()]
    return make_chat_reply(
        request,
        content=choice.message.content,
        refusal=choice.message.refusal,
        calls=calls,
        finish=choice.finish_reason,
        usage=completion.usage,
        model=completion.model,
        wire_id=completion.id,
    )


def make_chat_reply(
    request: ModelRequest,
    *,
    content: str | None,
    refusal: str | None,
    calls: Iterable[tuple[str, str, str | None]],
    finish: str | None,
    usage: ChatUsage | None,
    model: str | None,
    wire_id: str | None,
) -> ReplyOrFault:
    """Make a neutral reply. A call is its name, arguments and id."""
    if finish == "error":  # OpenRouter: the model behind it failed
        return openai_inner_fault(OpenAIError("the model failed"))
    names = tools_by_wire_name(request)
    parts: list[Text | Refusal | ToolCall] = []
    if content:
        parts.append(Text(content))
    if refusal:
        parts.append(Refusal(refusal))
    for index, (name, arguments, id) in enumerate(calls):
        parts.append(ToolCall(str(index), names.get(name, name), arguments, id))
    if not parts:
        return empty_fault(finish)
    return Reply(
        message=Assistant(tuple(parts)),
        finish=_FINISH.get(finish or "", "unknown"),
        usage=usage.neutral() if usage else None,
        model=model,
        wire_id=wire_id,
    )


# --- streams --------------------------------------------------------------------------------------------------


class _FunctionDelta(Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionDelta | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _ChoiceDelta(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class _Chunk(Struct):
    choices: list[_ChoiceDelta] | None = None
    id: str | None = None
    model: str | None = None
    usage: ChatUsage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk)


class _OpenCall:
    """A call that is still arriving."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []

    def add(self, piece: _CallDelta) -> None:
        self.id = self.id or piece.id
        if piece.function is not None:
            name = piece.function.name or ""
            self.name += name if name != self.name else ""  # some servers repeat it in every delta
            self.arguments.append(piece.function.arguments or "")


class _OpenCalls:
    """All calls of one reply."""

    def __init__(self) -> None:
        self._all: list[_OpenCall] = []
        self._open: dict[int | None, _OpenCall] = {}

    def add(self, piece: _CallDelta) -> None:
        call = self._open.get(piece.index)
        if call is None and piece.index is None and not _is_named(piece) and self._all:
            call = self._all[-1]
        if call is None or _begins_another(piece, call):
            call = _OpenCall(len(self._all) if piece.index is None else piece.index)
            self._all.append(call)
            self._open[piece.index] = call
        call.add(piece)

    def whole(self) -> list[tuple[str, str, str | None]]:
        ordered = sorted(self._all, key=lambda call: call.index)
        return [(call.name, "".join(call.arguments), call.id) for call in ordered]


def _begins_another(piece: _CallDelta, call: _OpenCall) -> bool:
    if piece.id and call.id:
        return piece.id != call.id
    return piece.index is None and _is_named(piece) and bool(call.name)


def _is_named(piece: _CallDelta) -> bool:
    return piece.function is not None and bool(piece.function.name)


class ChatStream:
    """Decodes one streamed reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._sse = SseDecoder()
        self._fault: Fault | None = None
        self._done = False
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls = _OpenCalls()
        self._finish: str | None = None
        self._usage: ChatUsage | None = None
        self._model: str | None = None
        self._id: str | None = None

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) for text in self._read(event.data)]

    def end(self) -> ReplyOrFault:
        for event in self._sse.end():
            if event.data.strip() == "[DONE]" or can_decode(_chunk, event.data):
                self._read(event.data)
        if self._fault is not None:
            return self._fault
        if not self._done and self._finish is None:
            return unended_fault()
        calls = self._calls.whole()
        if not all(name for name, _, _ in calls):
            return decode_fault("a call has no name", {})
        return make_chat_reply(
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
        except DECODE_ERRORS as problem:
            self._fault = unreadable_fault(problem, len(data))
            return []
        if chunk.error is not None:
            self._fault = openai_inner_fault(to_openai_error(chunk.error))
            return []
        self._id, self._model = self._id or chunk.id, self._model or chunk.model
        self._usage = chunk.usage or self._usage
        return [text for choice in chunk.choices or () for text in self._add(choice)]

    def _add(self, choice: _ChoiceDelta) -> list[str]:
        if choice.index != 0:
            self._fault = decode_fault("there is more than one answer", {"pointer": "/choices"})
            return []
        self._finish = choice.finish_reason or self._finish
        delta = choice.delta or _Delta()
        for piece in delta.tool_calls or ():
            self._calls.add(piece)
        self._content.append(delta.content or "")
        self._refusal.append(delta.refusal or "")
        return [text for text in (delta.content, delta.refusal) if text]
