"""OpenAI Chat Completions, not streamed.

Rule 1  The body is compact JSON with sorted keys.
Rule 2  `options` of a route are added to the body. Options that set what this codec sets are refused.
Rule 3  Calls and their results carry our own ids, which hold in every provider's history.
"""

from __future__ import annotations

from typing import Any, assert_never

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest
from agentrun.core.messages import (
    Assistant,
    Content,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    User,
    words,
)
from agentrun.core.package import Route
from agentrun.errors import LimitError, PackageError
from agentrun.providers.codec import Decoded
from agentrun.providers.openai_reply import read_reply
from agentrun.providers.openai_schema import is_strict
from agentrun.wire import HttpCall, HttpReply

BASE_URL = "https://api.openai.com/v1"

OWN = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "seed", "stop", "max_completion_tokens"),
        *("reasoning_effort", "response_format", "stream", "stream_options", "tools", "tool_choice", "n"),
    }
)
"""The fields that this codec decides about."""


class OpenAIChat:
    """The codec. It has no state."""

    def check(self, route: Route) -> None:
        if taken := sorted(OWN & route.options.keys()):
            raise PackageError(
                "package.invalid",
                f"model.options cannot set {', '.join(taken)}: the spec has keys of its own for it",
                fields={"pointer": f"/model/options/{taken[0]}"},
            )

    def encode(self, request: ModelRequest) -> HttpCall:
        route = request.route
        self.check(route)
        return HttpCall(
            method="POST",
            url=(route.base_url or BASE_URL).rstrip("/") + "/chat/completions",
            headers=(
                ("accept", "application/json"),
                ("content-type", "application/json"),
                *sorted(route.headers.items()),
            ),
            body=compact(route.options | _body(request)),
        )

    def decode(self, reply: HttpReply) -> Decoded:
        return read_reply(reply)


def _body(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    fields = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop": settings.stop or None,
        "max_completion_tokens": settings.max_output_tokens,
        "reasoning_effort": settings.reasoning,
    }
    body: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
    body["model"] = request.route.name
    body["messages"] = [
        {"role": "system", "content": request.instructions},
        *(_message(message) for message in request.messages),
    ]
    if request.output is not None:
        schema = {"name": "answer", "schema": request.output, "strict": is_strict(request.output)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _message(message: Message) -> dict[str, Any]:
    match message:
        case User():
            return {"role": "user", "content": _text(message.parts)}
        case Assistant():
            return _assistant(message)
        case ToolResult():
            return {"role": "tool", "tool_call_id": message.call, "content": _text(message.parts)}
        case _:
            assert_never(message)


def _text(parts: tuple[Content, ...]) -> str:
    for part in parts:
        if not isinstance(part, Text):
            fields = {"part": part.media_type, "reason": "unsupported"}
            raise LimitError("context.failed", "pictures and files cannot be sent to this provider yet", fields=fields)
    return words(parts)


def _assistant(message: Assistant) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", "content": None}
    for part in message.parts:
        match part:
            case Text():
                fields["content"] = (fields["content"] or "") + part.text
            case Refusal():
                fields["refusal"] = part.text
            case Reasoning():
                pass  # this protocol does not take it back
            case ToolCall():
                function = {"name": part.tool, "arguments": part.arguments}
                call = {"id": part.id, "type": "function", "function": function}
                fields.setdefault("tool_calls", []).append(call)
            case _:
                assert_never(part)
    return fields
