"""The codec for OpenAI Chat Completions and compatible servers.

Rule 1  The instructions are the first message, with the role `system`.
Rule 2  Tool results contain only text here. Images and files of results follow in a user message after their batch.
Rule 3  Reasoning is not sent back, because the protocol has no field for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from agentrun.canonical_json import sorted_json
from agentrun.core import messages as neutral
from agentrun.core import model_texts as texts
from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob
from agentrun.providers.openai_chat_reply import ChatStream, read_chat_reply
from agentrun.providers.registry import provider_url
from agentrun.providers.wire_names import call_ids, derived_id, wire_name
from agentrun.wire import HttpAuth, HttpCall

MAX_OPENAI_STOPS = 4

CHAT_FIELDS = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "seed", "stop", "max_completion_tokens"),
        *("reasoning_effort", "response_format", "stream", "stream_options", "tools", "tool_choice", "n"),
    }
)


class OpenAIChat:
    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # every schema is supported, strict or not
        problems = encoding.shared_problems(encoding.reserved_options(route, CHAT_FIELDS), tools)
        if route.base_url is None and len(model.stop) > MAX_OPENAI_STOPS:
            problems.append(f"model.stop: OpenAI supports at most {MAX_OPENAI_STOPS} texts")
        return problems

    def segment(self, messages: Sequence[neutral.Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        ids = call_ids(messages, request.route)
        items: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        for message in messages:
            if isinstance(message, neutral.ToolResult):
                id = ids.get(message.call) or derived_id(message.call)
                attached = [_part(part, blob) for part in message.parts if not isinstance(part, neutral.Text)]
                text = neutral.text_of(message.parts) or (texts.ATTACHED_BELOW if attached else "")
                items.append({"role": "tool", "tool_call_id": id, "content": text})
                if attached:
                    shown += [{"type": "text", "text": texts.ATTACHED_FROM.format(id)}, *attached]
                continue
            if shown:
                items.append({"role": "user", "content": shown})
                shown = []
            if isinstance(message, neutral.Assistant):
                items.append(_assistant(message, ids))
            elif all(isinstance(part, neutral.Text) for part in message.parts):
                items.append({"role": "user", "content": neutral.text_of(message.parts)})
            else:
                items.append({"role": "user", "content": [_part(part, blob) for part in message.parts]})
        if shown:
            items.append({"role": "user", "content": shown})
        return [sorted_json(item) for item in items]

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        encoding.refuse_reserved_options(encoding.reserved_options(route, CHAT_FIELDS))
        system = {"role": "system", "content": request.instructions}
        first = [sorted_json(system)] if request.instructions else []
        url = provider_url(route) + "/chat/completions"
        return encoding.post_items(request, url, _fields(request), "messages", [*first, *items], openai_auth(route))

    decode = staticmethod(read_chat_reply)
    stream = staticmethod(ChatStream)


def openai_auth(route: Route) -> HttpAuth | None:
    return encoding.route_auth(route, "authorization", "Bearer ", "OPENAI_API_KEY")


def _fields(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    fields = encoding.drop_none(
        model=request.route.name,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
        stop=settings.stop or None,
        max_completion_tokens=settings.max_output_tokens,
        reasoning_effort=settings.reasoning,
    )
    if request.tools:
        fields["tools"] = [{"type": "function", "function": function_schema(tool)} for tool in request.tools]
        fields |= encoding.drop_none(tool_choice=openai_tool_choice(request, lambda name: {"function": {"name": name}}))
    if request.output is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": answer_schema(request.output)}
    if settings.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return fields


def function_schema(tool: OfferedTool) -> dict[str, Any]:
    return {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.args}


def arguments_text(arguments: str) -> str:
    """The arguments as a JSON object, because many servers parse them again and fail on anything else."""
    return sorted_json(encoding.arguments_object(arguments)).decode() if arguments.strip() else "{}"


def answer_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "schema": schema, "strict": encoding.is_strict(schema)}


def openai_tool_choice(request: ModelRequest, name_function: Callable[[str], dict[str, Any]]) -> Any:
    """None: auto, or a tool that is not offered now. `name_function`: the fields that name a function."""
    choice = request.settings.tool_choice
    if choice in ("required", "none"):
        return choice
    if any(tool.name == choice for tool in request.tools):
        return {"type": "function", **name_function(wire_name(choice))}
    return None


def _part(part: neutral.Content, blob: ReadBlob) -> dict[str, Any]:
    match part:
        case neutral.Text():
            return {"type": "text", "text": part.text}
        case neutral.Image():
            return {"type": "image_url", "image_url": {"url": encoding.data_url(part.media_type, blob(part.blob))}}
        case neutral.File():
            data = blob(part.blob)
            if (text := encoding.file_text(part, data)) is not None:
                return {"type": "text", "text": text}
            file = {"filename": part.name, "file_data": encoding.data_url(part.media_type, data)}
            return {"type": "file", "file": file}
        case _:
            assert_never(part)


def _assistant(message: neutral.Assistant, ids: Mapping[str, str]) -> dict[str, Any]:
    text = "".join([part.text for part in message.parts if isinstance(part, neutral.Text)])
    fields: dict[str, Any] = {"role": "assistant", "content": text or None}
    for part in message.parts:
        match part:
            case neutral.Text() | neutral.Reasoning():
                pass
            case neutral.Refusal():
                fields["refusal"] = part.text
            case neutral.ToolCall():
                function = {"name": wire_name(part.tool), "arguments": arguments_text(part.arguments)}
                call = {"id": ids[part.id], "type": "function", "function": function}
                fields.setdefault("tool_calls", []).append(call)
            case _:
                assert_never(part)
    if fields.keys() == {"role", "content"}:
        fields["content"] = text  # the API refuses a message with neither content nor calls
    return fields
