"""Decode replies and streams of OpenAI Responses.

Unknown items are ignored. Reasoning is stored if it can be sent back: it has an id and is encrypted or has a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, ReplyPart, Text, ToolCall, Usage
from agentrun.providers import faults, openai_faults
from agentrun.providers.codec import ReplyOrFault, TokenCount
from agentrun.providers.openai_chat_reply import LAST_DATA, CachedTokens, ChatUsage, ReasoningTokens
from agentrun.providers.sse import SseReply
from agentrun.providers.wire_names import tools_by_wire_name
from agentrun.wire import HttpReply

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class _Usage(Struct):
    input_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    input_tokens_details: CachedTokens | None = None
    output_tokens_details: ReasoningTokens | None = None

    def neutral(self) -> Usage:
        return ChatUsage(*astuple(self)).neutral()


class _Incomplete(Struct):
    reason: str | None = None


class ResponseObject(Struct):
    output: list[Raw]
    id: str | None = None
    model: str | None = None
    status: str | None = None
    error: openai_faults.OpenAIError | None = None
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None


class _Kind(Struct):
    type: str


class _Content(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Message(Struct):
    content: list[_Content]


class _Call(Struct):
    name: str
    arguments: str | None = None
    call_id: str | None = None


class _Thought(Struct):
    id: str | None = None
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None


_response = msgspec.json.Decoder(ResponseObject)
_kind = msgspec.json.Decoder(_Kind)
_message = msgspec.json.Decoder(_Message)
_call = msgspec.json.Decoder(_Call)
_thought = msgspec.json.Decoder(_Thought)


def read_responses_reply(reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
    if reply.status != 200:
        return openai_faults.openai_status_fault(reply)
    response = parse_response(reply.body)
    if isinstance(response, Fault):
        error = openai_faults.read_openai_error(reply.body)
        return openai_faults.openai_inner_fault(error) if error else response
    return make_responses_reply(response, response.output, request)


def parse_response(data: bytes | Raw) -> ResponseObject | Fault:
    try:
        return _response.decode(data)
    except faults.DECODE_ERRORS as problem:
        return faults.unreadable_fault(problem, len(bytes(data)))


def make_responses_reply(response: ResponseObject, items: Sequence[Raw], request: ModelRequest) -> ReplyOrFault:
    if response.error is not None or response.status in ("failed", "cancelled"):
        error = response.error or openai_faults.OpenAIError(f"the response is {response.status}")
        return openai_faults.openai_inner_fault(error)
    if response.status in ("queued", "in_progress"):
        return faults.decode_fault("the response is not finished", {"pointer": "/status"})
    parts: list[ReplyPart] = []
    names, calls = tools_by_wire_name(request), 0
    for index, item in enumerate(items):
        try:
            new = _parts(item, names, calls, route_name(request.route))
            calls += sum(isinstance(part, ToolCall) for part in new)
            parts += new
        except faults.DECODE_ERRORS as problem:
            return faults.unreadable_part_fault(problem, f"/output/{index}")
    if all(isinstance(part, Reasoning) for part in parts):
        return faults.empty_fault(response.status)
    return Reply(
        message=Assistant(tuple(parts)),
        finish=_finish(response, calls > 0),
        usage=response.usage.neutral() if response.usage else None,
        model=response.model,
        wire_id=response.id,
    )


def _parts(item: Raw, names: Mapping[str, str], calls: int, route: str) -> list[ReplyPart]:
    """The parts of one item. `calls`: the number of calls before it."""
    match _kind.decode(item).type:
        case "message":
            return [part for content in _message.decode(item).content for part in _words(content)]
        case "function_call":
            call = _call.decode(item)
            return [ToolCall(str(calls), names.get(call.name, call.name), call.arguments or "", call.call_id)]
        case "reasoning":
            thought = _thought.decode(item)
            can_return = thought.id and (thought.encrypted_content or thought.content)
            return [Reasoning(_opaque(thought), route)] if can_return else []
        case _:
            return []


def _words(content: _Content) -> list[Text | Refusal]:
    if content.type == "output_text" and content.text:
        return [Text(content.text)]
    return [Refusal(content.refusal)] if content.type == "refusal" and content.refusal else []


def _opaque(thought: _Thought) -> str:
    item: dict[str, Any] = {"type": "reasoning", "id": thought.id, "summary": thought.summary or []}
    if thought.content:
        item["content"] = thought.content
    if thought.encrypted_content:
        item["encrypted_content"] = thought.encrypted_content
    return sorted_json(item).decode()


def _finish(response: ResponseObject, calls: bool) -> FinishReason:
    if response.status == "completed":
        return "tool_calls" if calls else "stop"
    reason = response.incomplete_details.reason if response.incomplete_details else None
    return _INCOMPLETE.get(reason or "", "unknown") if response.status == "incomplete" else "unknown"


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


class ResponsesStream(SseReply[_Event]):
    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request, _event)
        self._items: dict[int, Raw] = {}

    def _read(self, data: str) -> list[str]:
        return [] if data.strip() == LAST_DATA else super()._read(data)

    def _take(self, event: _Event) -> list[str]:
        if event.type in _TEXTS:
            if isinstance(event.delta, str):
                return [event.delta] if event.delta else []
            self._result = faults.decode_fault("a text delta is not a text", {"pointer": "/delta"})
        elif event.type == "response.output_item.done":
            index = len(self._items) if event.output_index is None else event.output_index
            self._items[index] = event.item.copy()
        elif event.type in _LAST:
            self._result = self._whole(event)
        elif event.type == "error" or event.error is not None:
            named = openai_faults.OpenAIError(event.message, event.code)
            error = openai_faults.to_openai_error(event.error) if event.error else named
            self._result = openai_faults.openai_inner_fault(error)
        return []

    def _whole(self, event: _Event) -> ReplyOrFault:
        response = parse_response(event.response)
        if isinstance(response, Fault):
            return response
        done = [self._items[index] for index in sorted(self._items)]
        items = done if len(done) >= len(response.output) else response.output
        return make_responses_reply(response, items, self._request)
