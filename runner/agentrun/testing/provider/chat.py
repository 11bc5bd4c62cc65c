"""OpenAI Chat Completions, spoken by the server's side.

What was thought is given as `reasoning_content`, as compatible servers do. OpenAI itself does not show it here.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.testing.provider.asked import Asked, Model, Others, Result, Step, decoded, joined, text_of
from agentrun.testing.provider.said import MADE_AT, Said, SaidCall, event

_FINISH = {"unknown": "scripted"}


class _Call(Struct):
    id: str


class _Message(Struct):
    role: str
    content: Any = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str = ""


class _Function(Struct):
    name: str


class _Tool(Struct):
    function: _Function


class _StreamOptions(Struct):
    include_usage: bool = False


class _Request(Struct):
    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] = []


class Chat:
    """The format."""

    name = "openai"
    takes_thoughts = False

    def read(self, path: str, body: bytes) -> Asked:  # noqa: ARG002  # all is in the body
        request = decoded(body, _Request)
        system = [message for message in request.messages if message.role in ("system", "developer")]
        options = request.stream_options
        return Asked(
            model=request.model,
            stream=request.stream,
            instructions="\n".join(text_of(message.content) for message in system),
            tools=tuple(tool.function.name for tool in request.tools),
            steps=joined(_step(message) for message in request.messages if message not in system),
            reports_usage=not request.stream or bool(options and options.include_usage),
        )

    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:  # noqa: ARG002  # one reply for all
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": said.refusal or None}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [_call(call, call.arguments) for call in said.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(said)}
        return {**_head(said, "chat.completion"), "choices": [choice], **_usage(said)}

    def events(self, said: Said, asked: Asked) -> list[bytes]:
        head = _head(said, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in said.pieces(said.reasoning)]
        deltas += [{"content": piece} for piece in said.pieces(said.text)]
        deltas += [{"refusal": piece} for piece in said.pieces(said.refusal)]
        for index, call in enumerate(said.calls):
            deltas.append({"tool_calls": [{"index": index, **_call(call, "")}]})
            for piece in said.pieces(call.arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        chunks = [{**head, "choices": [_choice(delta, None)]} for delta in deltas]
        chunks.append({**head, "choices": [_choice({}, _finish(said))]})
        if asked.reports_usage and said.usage is not None:
            chunks.append({**head, "choices": [], **_usage(said)})
        return [*map(event, chunks), event("[DONE]")]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _step(message: _Message) -> Step:
    match message.role:
        case "assistant":
            return Model(tuple(call.id for call in message.tool_calls or ()))
        case "tool":
            return Result(message.tool_call_id, text_of(message.content))
        case _:
            return Others(text_of(message.content))


def _head(said: Said, kind: str) -> dict[str, Any]:
    return {"id": said.id("chatcmpl"), "object": kind, "created": MADE_AT, "model": said.model}


def _call(call: SaidCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments}}


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _finish(said: Said) -> str:
    return _FINISH.get(said.finish, said.finish)


def _usage(said: Said) -> dict[str, Any]:
    usage = said.usage
    if usage is None:
        return {}
    return {
        "usage": {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }
    }
