"""Decode replies and streams of Anthropic Messages.

Rule 1  Thinking blocks and blocks of unknown types are stored unchanged and sent back unchanged.
Rule 2  If the stop reason is a refusal, texts and calls before it are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict, replace

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, ReplyPart, Text, ToolCall, Usage
from agentrun.core.model_texts import MODEL_DECLINED
from agentrun.providers import faults
from agentrun.providers.codec import ReplyOrFault, TokenCount
from agentrun.providers.sse import SseReply
from agentrun.providers.wire_names import tools_by_wire_name
from agentrun.wire import HttpReply

_FINISH: dict[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
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
"""The status of each error type, for errors inside a reply."""
_TOO_LONG = ("prompt is too long", "exceed context limit", "exceeds the available context size")  # the last: llama.cpp


class OutputDetails(Struct):
    thinking_tokens: TokenCount | None = None


class ClaudeUsage(Struct):
    """The usage. A stream reports it several times, each time with the sums so far."""

    input_tokens: TokenCount | None = None
    cache_creation_input_tokens: TokenCount | None = None
    cache_read_input_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(Struct):
    explanation: str | None = None


class ContentBlock(Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str | None = None
    name: str = ""
    input: Raw = Raw(b"{}")


class MessageHead(Struct):
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: ClaudeUsage | None = None


class _Message(MessageHead, kw_only=True):
    content: list[Raw]


class AnthropicError(Struct):
    type: str = ""
    message: str | None = None
    details: Any = None


class AnthropicErrorBody(Struct):
    error: AnthropicError


class WholeBlock(Struct):
    block: ContentBlock
    arguments: str
    opaque: str


_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(ContentBlock)
_error = msgspec.json.Decoder(AnthropicErrorBody)


def read_anthropic_reply(reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
    if reply.status != 200:
        return _status_fault(reply)
    try:
        message = _message.decode(reply.body)
    except faults.DECODE_ERRORS as error:
        return faults.unreadable_fault(error, len(reply.body))
    blocks = []
    for index, raw in enumerate(message.content):
        try:
            block = _block.decode(raw)
            blocks.append(WholeBlock(block, bytes(block.input).decode(), bytes(raw).decode()))
        except faults.DECODE_ERRORS as error:
            return faults.unreadable_part_fault(error, f"/content/{index}")
    return make_anthropic_reply(message, blocks, request)


def make_anthropic_reply(head: MessageHead, blocks: list[WholeBlock], request: ModelRequest) -> ReplyOrFault:
    finish = _FINISH.get(head.stop_reason, "unknown")
    if head.stop_reason == "refusal":
        details = head.stop_details
        parts: list[ReplyPart] = [Refusal((details and details.explanation) or MODEL_DECLINED)]
    else:
        parts = _parts(blocks, tools_by_wire_name(request), route_name(request.route))
    if all(isinstance(part, Reasoning) for part in parts):
        if head.stop_reason == "model_context_window_exceeded":
            return faults.inner_fault("the conversation fills the context window", "provider.context_overflow", 200)
        return faults.empty_fault(head.stop_reason)
    return Reply(Assistant(tuple(parts)), finish, _usage(head.usage), head.model, head.id)


def _parts(blocks: list[WholeBlock], names: Mapping[str, str], route: str) -> list[ReplyPart]:
    parts: list[ReplyPart] = []
    calls = 0
    for each in blocks:
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


def _status_fault(reply: HttpReply) -> Fault:
    try:
        error = _error.decode(reply.body).error
    except faults.DECODE_ERRORS:
        return faults.status_fault(reply)
    return faults.status_fault(reply, error.message or "", _code(reply.status, error))


def _code(status: int, error: AnthropicError) -> str | None:
    text = (error.message or "").lower()
    if status == 413 or (status == 400 and any(phrase in text for phrase in _TOO_LONG)):
        return "provider.context_overflow"
    if isinstance(error.details, dict) and error.details.get("error_code") == "enforced_spend_limit_reached":
        return "provider.fatal"  # waiting does not help: the account needs credit
    return None


class _Delta(Struct):
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


class _OpenBlock:
    def __init__(self, raw: Raw) -> None:
        self.block = _block.decode(raw)
        self._whole: dict[str, Any] = msgspec.json.decode(raw)
        self._texts = [self.block.text]
        self._thoughts = [self.block.thinking]
        self._json: list[str] = []
        self._signature: str | UnsetType = UNSET

    def add(self, delta: _Delta) -> str:
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
        arguments = arguments if arguments.strip() else bytes(block.input).decode()
        return WholeBlock(block, arguments, sorted_json(self._whole).decode())


class AnthropicStream(SseReply[_Event]):
    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request, _event)
        self._head = MessageHead()
        self._blocks: dict[int, _OpenBlock] = {}

    def _take(self, event: _Event) -> list[str]:
        text = ""
        match event.type:
            case "message_start":
                self._head = event.message or MessageHead()
            case "content_block_start" if event.index in self._blocks:
                self._result = faults.decode_fault("a block starts twice", {"pointer": "/index"})
            case "content_block_start":
                block = self._blocks[event.index] = _OpenBlock(event.content_block)
                text = block.block.text
            case "content_block_delta" if event.index not in self._blocks:
                why = "a delta belongs to a block that was not started"
                self._result = faults.decode_fault(why, {"pointer": "/index"})
            case "content_block_delta":
                text = self._blocks[event.index].add(event.delta or _Delta())
            case "message_delta":
                self._finish(event)
            case "message_stop":
                blocks = [self._blocks[index].whole_block() for index in sorted(self._blocks)]
                self._result = make_anthropic_reply(self._head, blocks, self._request)
            case "error":
                error = event.error or AnthropicError()
                status = _STATUS.get(error.type, 500)
                code = _code(status, error) or faults.code_of_status(status)
                self._result = faults.inner_fault(error.message, code, status)
        return [text] if text else []

    def _finish(self, event: _Event) -> None:
        delta = event.delta or _Delta()
        usage = self._head.usage
        if event.usage is not None:
            reported = {name: value for name, value in asdict(event.usage).items() if value is not None}
            usage = replace(usage or ClaudeUsage(), **reported)
        self._head = replace(
            self._head,
            stop_reason=delta.stop_reason or self._head.stop_reason,
            stop_details=delta.stop_details or self._head.stop_details,
            usage=usage,
        )
