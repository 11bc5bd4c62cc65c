"""OpenAI Chat Completions, and the many servers that speak the same language.

Rule 1  Instructions are the first message, with the role `system`.
Rule 2  What a tool shows follows the results of its batch in a message of the user: results are text here.
Rule 3  What the model thought is not sent back: this protocol has no place for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.messages import (
    Assistant,
    Content,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    User,
    words,
)
from agentrun.core.names import schemas_of
from agentrun.core.package import Model, Route
from agentrun.core.package_tools import Tool
from agentrun.providers.arguments import as_object
from agentrun.providers.auth import auth_of
from agentrun.providers.body import data_url, file_text, given, refuse_taken, spliced, taken_options
from agentrun.providers.codec import Blob, Decoded
from agentrun.providers.headers import merged_headers
from agentrun.providers.names import call_ids, derived_id, name_clashes, wire_name
from agentrun.providers.openai_reply import read_reply
from agentrun.providers.openai_stream import ChatStream
from agentrun.providers.strictness import is_strict
from agentrun.wire import HttpAuth, HttpCall, HttpReply

BASE_URL = "https://api.openai.com/v1"
MAX_STOPS = 4

OWN = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "seed", "stop", "max_completion_tokens"),
        *("reasoning_effort", "response_format", "stream", "stream_options", "tools", "tool_choice", "n"),
    }
)
"""The fields that this codec decides about."""


class OpenAIChat:
    """The codec. It has no state."""

    def problems(self, model: Model, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # it takes any schema, as a promise or as guidance
        problems = [*taken_options(route, OWN), *name_clashes(schemas_of(tools))]
        if route.base_url is None and len(model.stop) > MAX_STOPS:
            problems.append(f"model.stop: OpenAI takes at most {MAX_STOPS} texts")
        return problems

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: Blob) -> list[bytes]:
        ids = call_ids(messages, request.route)
        items: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        for message in messages:
            if isinstance(message, ToolResult):
                id = ids.get(message.call) or derived_id(message.call)
                attached = _attached(message, id, blob)
                text = words(message.parts) or ("It is shown below." if attached else "")
                items.append({"role": "tool", "tool_call_id": id, "content": text})
                shown += attached
                continue
            if shown:
                items.append({"role": "user", "content": shown})
                shown = []
            items.append(_user(message, blob) if isinstance(message, User) else _assistant(message, ids))
        if shown:
            items.append({"role": "user", "content": shown})
        return [compact(item) for item in items]

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        refuse_taken(route, OWN)
        system = {"role": "system", "content": request.instructions}
        first = [compact(system)] if request.instructions else []
        return HttpCall(
            method="POST",
            url=(route.base_url or BASE_URL).rstrip("/") + "/chat/completions",
            headers=merged_headers(request, {}),
            body=spliced(route.options | _fields(request), "messages", [*first, *items]),
            auth=openai_auth(route),
        )

    def decode(self, reply: HttpReply, request: ModelRequest) -> Decoded:
        return read_reply(reply, request)

    def stream(self, request: ModelRequest) -> ChatStream:
        return ChatStream(request)


def openai_auth(route: Route) -> HttpAuth | None:
    return auth_of(route, "authorization", "Bearer ", "OPENAI_API_KEY")


def _fields(request: ModelRequest) -> dict[str, Any]:
    """All of the body but the conversation."""
    settings = request.settings
    fields = given(
        model=request.route.name,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
        stop=settings.stop or None,
        max_completion_tokens=settings.max_output_tokens,
        reasoning_effort=settings.reasoning,
    )
    if request.tools:
        fields["tools"] = [{"type": "function", "function": function(tool)} for tool in request.tools]
        fields |= given(tool_choice=_choice(request))
    if request.output is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": answer_schema(request.output)}
    if settings.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return fields


def function(tool: OfferedTool) -> dict[str, Any]:
    return {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.args}


def object_text(arguments: str) -> str:
    """Arguments as JSON of an object, whatever the model wrote: many servers read them again and fail otherwise."""
    return compact(as_object(arguments)).decode() if arguments.strip() else "{}"


def answer_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "schema": schema, "strict": is_strict(schema)}


def _choice(request: ModelRequest) -> Any:
    choice = request.settings.tool_choice
    if choice in ("required", "none"):
        return choice
    if any(tool.name == choice for tool in request.tools):
        return {"type": "function", "function": {"name": wire_name(choice)}}
    return None  # auto, or a tool that is not there now


def _user(message: User, blob: Blob) -> dict[str, Any]:
    if all(isinstance(part, Text) for part in message.parts):
        return {"role": "user", "content": words(message.parts)}
    return {"role": "user", "content": [_part(part, blob) for part in message.parts]}


def _attached(result: ToolResult, id: str, blob: Blob) -> list[dict[str, Any]]:
    """Pictures and files of a result, with a word of where they come from."""
    parts = [_part(part, blob) for part in result.parts if not isinstance(part, Text)]
    return [{"type": "text", "text": f"From the result of {id}:"}, *parts] if parts else []


def _part(part: Content, blob: Blob) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": data_url(part.media_type, blob(part.blob))}}
        case File():
            data = blob(part.blob)
            if (text := file_text(part, data)) is not None:
                return {"type": "text", "text": text}
            return {"type": "file", "file": {"filename": part.name, "file_data": data_url(part.media_type, data)}}
        case _:
            assert_never(part)


def _assistant(message: Assistant, ids: Mapping[str, str]) -> dict[str, Any]:
    text = "".join([part.text for part in message.parts if isinstance(part, Text)])
    fields: dict[str, Any] = {"role": "assistant", "content": text or None}
    for part in message.parts:
        match part:
            case Text() | Reasoning():
                pass
            case Refusal():
                fields["refusal"] = part.text
            case ToolCall():
                asked = {"name": wire_name(part.tool), "arguments": object_text(part.arguments)}
                call = {"id": ids[part.id], "type": "function", "function": asked}
                fields.setdefault("tool_calls", []).append(call)
            case _:
                assert_never(part)
    if fields.keys() == {"role", "content"}:
        fields["content"] = text  # a message of nothing at all is refused
    return fields
