"""The codec for OpenAI Responses.

Rule 1  The provider stores nothing: every request contains the whole conversation and no id of an earlier response.
Rule 2  Encrypted reasoning is sent back to its own route. It is requested only with `model.reasoning`, because models
        without reasoning refuse it.
Rule 3  The parts of an answer are separate items in the order of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from agentrun.canonical_json import sorted_json
from agentrun.core import messages as neutral
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.providers import openai_chat as chat
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob
from agentrun.providers.openai_responses_reply import ResponsesStream, read_responses_reply
from agentrun.providers.registry import provider_url
from agentrun.providers.wire_names import call_ids, derived_id, wire_name
from agentrun.wire import HttpCall

RESPONSES_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "temperature", "top_p", "max_output_tokens", "reasoning", "text"),
        *("tools", "tool_choice", "stream", "store", "include"),
        *("previous_response_id", "conversation", "background", "prompt"),
    }
)
"""The fields that this codec sets, and those that would store something at the provider."""


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

    decode = staticmethod(read_responses_reply)
    stream = staticmethod(ResponsesStream)


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
