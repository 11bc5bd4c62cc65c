"""What Anthropic Messages answers: a reply, or a fault.

Rule 1  Only the fields that are named here are looked at; all others may be anything.
Rule 2  A field of the wrong type is not guessed at: the whole answer is `provider.decode`, with the place.
Rule 3  Thoughts, and blocks of kinds that are not known here, are kept as they came and go back unchanged.
Rule 4  A refusal is one: what was said or called before the model broke off is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import asdict, replace

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import ReplyOrFault
from agentrun.providers.faults import (
    DECODE_ERRORS,
    code_of_status,
    decode_fault,
    empty_fault,
    inner_fault,
    status_fault,
    unended_fault,
    unreadable_fault,
    unreadable_part_fault,
)
from agentrun.providers.sse import SseDecoder
from agentrun.providers.wire_names import tools_by_wire_name
from agentrun.wire import HttpReply

_Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]

DECLINED = "The model declined to answer."


class OutputDetails(Struct):
    thinking_tokens: _Count | None = None


class ClaudeUsage(Struct):
    """Usage. A stream reports it in pieces, each with the sums so far."""

    input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(Struct):
    explanation: str | None = None


class ContentBlock(Struct):
    """One block of content."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str | None = None
    name: str = ""
    input: Raw = Raw(b"{}")


class MessageHead(Struct):
    """All of a message but its content."""

    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: ClaudeUsage | None = None


class _Message(MessageHead, kw_only=True):
    content: list[Raw]


class AnthropicError(Struct):
    """An error, before a reply or inside one."""

    type: str = ""
    message: str | None = None
    details: Any = None


class AnthropicErrorBody(Struct):
    error: AnthropicError


class WholeBlock(Struct):
    """A block that is whole."""

    block: ContentBlock
    arguments: str
    """Of a call, as text."""
    opaque: str
    """The whole block as it came."""


_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(ContentBlock)
_error = msgspec.json.Decoder(AnthropicErrorBody)

_FINISH: dict[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def read_anthropic_reply(reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
    """Any reply at all that came in one piece."""
    if reply.status != 200:
        return _status_fault(reply)
    try:
        message = _message.decode(reply.body)
    except DECODE_ERRORS as error:
        return unreadable_fault(error, len(reply.body))
    said = []
    for index, raw in enumerate(message.content):
        try:
            block = _block.decode(raw)
            said.append(WholeBlock(block, bytes(block.input).decode(), bytes(raw).decode()))
        except DECODE_ERRORS as error:
            return unreadable_part_fault(error, f"/content/{index}")
    return make_anthropic_reply(message, said, request)


def make_anthropic_reply(head: MessageHead, said: list[WholeBlock], request: ModelRequest) -> ReplyOrFault:
    """What whole blocks mean."""
    finish = _FINISH.get(head.stop_reason, "unknown")
    if head.stop_reason == "refusal":
        details = head.stop_details
        parts: list[Text | Refusal | Reasoning | ToolCall] = [Refusal((details and details.explanation) or DECLINED)]
    else:
        parts = _parts(said, tools_by_wire_name(request), route_name(request.route))
    if all(isinstance(part, Reasoning) for part in parts):
        if head.stop_reason == "model_context_window_exceeded":
            return inner_fault("the conversation fills the model's window", "provider.context_overflow", 200)
        return empty_fault(head.stop_reason)
    return Reply(Assistant(tuple(parts)), finish, _usage(head.usage), head.model, head.id)


def _parts(said: list[WholeBlock], names: Mapping[str, str], route: str) -> list[Text | Refusal | Reasoning | ToolCall]:
    parts: list[Text | Refusal | Reasoning | ToolCall] = []
    calls = 0
    for each in said:
        block = each.block
        if block.type == "tool_use":
            parts.append(ToolCall(str(calls), names.get(block.name, block.name), each.arguments, block.id))
            calls += 1
        elif block.type != "text":
            parts.append(Reasoning(each.opaque, route))
        elif block.text:
            parts.append(Text(block.text))
    return parts


def _usage(tokens: ClaudeUsage | None) -> Usage | None:
    if tokens is None:
        return None
    read, written = tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens
    details = tokens.output_tokens_details
    return Usage(
        input=None if tokens.input_tokens is None else tokens.input_tokens + (read or 0) + (written or 0),
        output=tokens.output_tokens,
        cached=read,
        reasoning=details.thinking_tokens if details else None,
    )


_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error has when it comes before a reply, for those that come inside one."""


def _status_fault(reply: HttpReply) -> Fault:
    try:
        error = _error.decode(reply.body).error
    except DECODE_ERRORS:
        words = reply.body[:2000].decode("utf-8", "replace")
        return status_fault(reply, words or "no words")
    return status_fault(reply, error.message or "no words", _code(reply.status, error))


def anthropic_inner_fault(error: AnthropicError) -> Fault:
    """An error inside a stream: what it means before one."""
    status = _STATUS.get(error.type, 500)
    return inner_fault(error.message or "no words", _code(status, error) or code_of_status(status), status)


_TOO_LONG = ("prompt is too long", "exceed context limit", "exceeds the available context size")
"""The last is said by llama.cpp."""


def _code(status: int, error: AnthropicError) -> str | None:
    """When the provider says more than the status."""
    words = (error.message or "").lower()
    if status == 413 or (status == 400 and any(sign in words for sign in _TOO_LONG)):
        return "provider.context_overflow"
    if isinstance(error.details, dict) and error.details.get("error_code") == "enforced_spend_limit_reached":
        return "provider.fatal"  # no waiting helps: somebody has to pay
    return None


# --- a streamed answer of Anthropic Messages ------------------------------------------------------------------


class _Delta(Struct):
    """A piece of a block, or the end of the message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class _Event(Struct):
    type: str
    index: int = 0
    message: MessageHead | None = None
    content_block: Raw = Raw(b"")
    delta: _Delta | None = None
    usage: ClaudeUsage | None = None
    error: AnthropicError | None = None


_event = msgspec.json.Decoder(_Event)
_block_decoder = msgspec.json.Decoder(ContentBlock)


class _OpenBlock:
    """A block that is being put together."""

    def __init__(self, raw: Raw) -> None:
        self.block = _block_decoder.decode(raw)
        self._whole: dict[str, Any] = msgspec.json.decode(raw)
        self._texts = [self.block.text]
        self._thoughts = [self.block.thinking]
        self._json: list[str] = []
        self._signature: str | UnsetType = UNSET

    def add(self, delta: _Delta) -> str:
        """Takes a piece; gives the text in it that is for people."""
        match delta.type:
            case "text_delta":
                self._texts.append(delta.text)
                return delta.text
            case "thinking_delta":
                self._thoughts.append(delta.thinking)
            case "signature_delta":
                self._signature = delta.signature
            case "input_json_delta":
                self._json.append(delta.partial_json)
        return ""

    def whole_block(self) -> WholeBlock:
        block = replace(self.block, text="".join(self._texts))
        if block.type == "thinking":
            self._whole["thinking"] = "".join(self._thoughts)
        if self._signature is not UNSET:
            self._whole["signature"] = self._signature
        arguments = "".join(self._json)
        return WholeBlock(
            block,
            arguments if arguments.strip() else bytes(block.input).decode(),
            sorted_json(self._whole).decode(),
        )


class AnthropicStream:
    """Reads one reply."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._sse = SseDecoder()
        self._fault: Fault | None = None
        self._done = False
        self._head = MessageHead()
        self._blocks: dict[int, _OpenBlock] = {}

    def feed(self, data: bytes) -> list[str]:
        return [text for event in self._sse.feed(data) if (text := self._read(event.data))]

    def end(self) -> ReplyOrFault:
        for event in self._sse.end():
            if _is_whole(event.data):
                self._read(event.data)
        if self._fault is not None:
            return self._fault
        if not self._done:
            return unended_fault()
        return make_anthropic_reply(
            self._head, [block.whole_block() for _, block in sorted(self._blocks.items())], self._request
        )

    def _read(self, data: str) -> str:
        if self._done or self._fault is not None:
            return ""
        try:
            return self._take(_event.decode(data))
        except DECODE_ERRORS as problem:
            self._fault = unreadable_fault(problem, len(data))
        return ""

    def _take(self, event: _Event) -> str:
        match event.type:
            case "message_start":
                self._head = event.message or MessageHead()
            case "content_block_start":
                return self._begin(event)
            case "content_block_delta":
                return self._add(event)
            case "message_delta":
                self._finish(event)
            case "message_stop":
                self._done = True
            case "error":
                self._fault = anthropic_inner_fault(event.error or AnthropicError())
        return ""

    def _begin(self, event: _Event) -> str:
        if event.index in self._blocks:
            self._fault = decode_fault("a block begins twice", {"pointer": "/index"})
            return ""
        block = self._blocks[event.index] = _OpenBlock(event.content_block)
        return block.block.text

    def _add(self, event: _Event) -> str:
        block = self._blocks.get(event.index)
        if block is None:
            self._fault = decode_fault("a piece of a block that was never begun", {"pointer": "/index"})
            return ""
        return block.add(event.delta or _Delta())

    def _finish(self, event: _Event) -> None:
        """The end of the message, with the usage that is known by now."""
        delta = event.delta or _Delta()
        usage = self._head.usage
        if event.usage is not None:
            told = {name: value for name, value in asdict(event.usage).items() if value is not None}
            usage = replace(usage or ClaudeUsage(), **told)
        self._head = replace(
            self._head,
            stop_reason=delta.stop_reason or self._head.stop_reason,
            stop_details=delta.stop_details or self._head.stop_details,
            usage=usage,
        )


def _is_whole(data: str) -> bool:
    """Whether what came last is an event, or only the beginning of one."""
    try:
        _event.decode(data)
    except DECODE_ERRORS:
        return False
    return True
