"""The codec for OpenAI Responses.

Rule 1  The provider stores nothing: every request contains the whole conversation and no id of an earlier response.
Rule 2  Encrypted reasoning is sent back to its own route. It is requested only with `model.reasoning`, because models
        without reasoning refuse it.
Rule 3  The parts of an answer are separate items in the order of the model.
Rule 4  Unknown items of a reply are ignored. Reasoning is stored if it can be sent back: it has an id and is encrypted
        or has a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from agentrun.canonical_json import sorted_json
from agentrun.core import messages as neutral
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, ReplyPart, Text, ToolCall, Usage
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.providers import faults
from agentrun.providers import openai_chat as chat
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob, ReplyOrFault, TokenCount, provider_url
from agentrun.providers.openai_chat import LAST_DATA, CachedTokens, ChatUsage, ReasoningTokens
from agentrun.providers.request_encoding import call_ids, derived_id, tools_by_wire_name, wire_name
from agentrun.providers.sse import SseReply
from agentrun.wire import HttpCall, HttpReply

RESPONSES_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "temperature", "top_p", "max_output_tokens", "reasoning", "text"),
        *("tools", "tool_choice", "stream", "store", "include"),
        *("previous_response_id", "conversation", "background", "prompt"),
    }
)
"""The fields that this codec sets, and those that would store something at the provider."""
_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses:
    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # every schema is supported, strict or not
        problems = encoding.shared_problems(encoding.reserved_options(route, RESPONSES_FIELDS), tools)
        if model.seed is not None:
            problems.append("model.seed: OpenAI Responses does not support a seed")
        if model.stop:
            problems.append("model.stop: OpenAI Responses does not support stop texts")
        return problems

    def segment(self, messages: Sequence[neutral.Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        ids = call_ids(messages, request.route)
        items: list[bytes] = []
        for message in messages:
            match message:
                case neutral.User():
                    content = _content(message.parts, blob)
                    items.append(sorted_json({"type": "message", "role": "user", "content": content}))
                case neutral.Assistant():
                    items += _assistant_items(message, ids, route_name(request.route))
                case neutral.ToolResult():
                    id = ids.get(message.call) or derived_id(message.call)
                    output = _content(message.parts, blob)
                    items.append(sorted_json({"type": "function_call_output", "call_id": id, "output": output}))
                case _:
                    assert_never(message)
        return items

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        encoding.refuse_reserved_options(encoding.reserved_options(route, RESPONSES_FIELDS))
        url = provider_url(route) + "/responses"
        return encoding.post_items(request, url, _fields(request), "input", items, chat.openai_auth(route))

    def decode(self, reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
        if reply.status != 200:
            return chat.openai_status_fault(reply)
        response = parse_response(reply.body)
        if isinstance(response, Fault):
            error = chat.read_openai_error(reply.body)
            return chat.openai_inner_fault(error) if error else response
        return make_responses_reply(response, response.output, request)

    def stream(self, request: ModelRequest) -> ResponsesStream:
        return ResponsesStream(request)


def _fields(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    fields = encoding.drop_none(
        model=request.route.name,
        instructions=request.instructions or None,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_output_tokens=settings.max_output_tokens,
        store=False,
        stream=settings.stream or None,
    )
    if settings.reasoning is not None:
        fields["reasoning"] = {"effort": settings.reasoning}
        if settings.reasoning != "none":
            fields["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        # Without this field the provider changes every schema to a strict one.
        function = {"type": "function", "strict": False}
        fields["tools"] = [function | chat.function_schema(tool) for tool in request.tools]
        fields |= encoding.drop_none(tool_choice=chat.openai_tool_choice(request, lambda name: {"name": name}))
    if request.output is not None:
        fields["text"] = {"format": {"type": "json_schema", **chat.answer_schema(request.output)}}
    return fields


def _content(parts: tuple[neutral.Content, ...], blob: ReadBlob) -> str | list[dict[str, Any]]:
    if all(isinstance(part, neutral.Text) for part in parts):
        return neutral.text_of(parts)
    return [_part(part, blob) for part in parts]


def _part(part: neutral.Content, blob: ReadBlob) -> dict[str, Any]:
    match part:
        case neutral.Text():
            return {"type": "input_text", "text": part.text}
        case neutral.Image():
            url = encoding.data_url(part.media_type, blob(part.blob))
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case neutral.File():
            data = blob(part.blob)
            if (text := encoding.file_text(part, data)) is not None:
                return {"type": "input_text", "text": text}
            return {"type": "input_file", "filename": part.name, "file_data": encoding.data_url(part.media_type, data)}
        case _:
            assert_never(part)


def _assistant_items(message: neutral.Assistant, ids: Mapping[str, str], route: str) -> Iterator[bytes]:
    for part in message.parts:
        match part:
            case neutral.Text() | neutral.Refusal():
                yield sorted_json({"type": "message", "role": "assistant", "content": part.text})
            case neutral.Reasoning():
                if part.route == route:
                    yield part.opaque.encode()
            case neutral.ToolCall():
                function = {"name": wire_name(part.tool), "arguments": chat.arguments_text(part.arguments)}
                yield sorted_json({"type": "function_call", "call_id": ids[part.id], **function})
            case _:
                assert_never(part)


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
    error: chat.OpenAIError | None = None
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


def parse_response(data: bytes | Raw) -> ResponseObject | Fault:
    try:
        return _response.decode(data)
    except faults.DECODE_ERRORS as problem:
        return faults.unreadable_fault(problem, len(bytes(data)))


def make_responses_reply(response: ResponseObject, items: Sequence[Raw], request: ModelRequest) -> ReplyOrFault:
    if response.error is not None or response.status in ("failed", "cancelled"):
        error = response.error or chat.OpenAIError(f"the response is {response.status}")
        return chat.openai_inner_fault(error)
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
            named = chat.OpenAIError(event.message, event.code)
            error = chat.to_openai_error(event.error) if event.error else named
            self._result = chat.openai_inner_fault(error)
        return []

    def _whole(self, event: _Event) -> ReplyOrFault:
        response = parse_response(event.response)
        if isinstance(response, Fault):
            return response
        done = [self._items[index] for index in sorted(self._items)]
        items = done if len(done) >= len(response.output) else response.output
        return make_responses_reply(response, items, self._request)
