"""OpenAI Chat Completions, server side.

Reasoning is sent as `reasoning_content`, like compatible servers do. OpenAI itself does not send it in this format.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agentrun.testing.provider import wire_format as wire


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


class ChatFormat:
    name = "openai"
    accepts_reasoning = False

    def parse_request(self, path: str, body: bytes) -> wire.WireRequest:  # noqa: ARG002  # the body has everything
        request = wire.decode_request(body, _Request)
        system = [message for message in request.messages if message.role in ("system", "developer")]
        options = request.stream_options
        return wire.WireRequest(
            model=request.model,
            stream=request.stream,
            instructions="\n".join(wire.content_text(message.content) for message in system),
            tools=tuple(tool.function.name for tool in request.tools),
            steps=wire.join_model_steps(_step(message) for message in request.messages if message not in system),
            reports_usage=not request.stream or bool(options and options.include_usage),
        )

    def reply_body(self, reply: wire.WireReply, request: wire.WireRequest) -> dict[str, Any]:  # noqa: ARG002  # the same for all requests
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [_call(call, call.arguments) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        return {**_head(reply, "chat.completion"), "choices": [choice], **_usage(reply)}

    def reply_events(self, reply: wire.WireReply, request: wire.WireRequest) -> list[bytes]:
        head = _head(reply, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in reply.pieces(reply.reasoning)]
        deltas += [{"content": piece} for piece in reply.pieces(reply.text)]
        deltas += [{"refusal": piece} for piece in reply.pieces(reply.refusal)]
        for index, call in enumerate(reply.calls):
            deltas.append({"tool_calls": [{"index": index, **_call(call, "")}]})
            for piece in reply.pieces(call.arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        chunks = [{**head, "choices": [_choice(delta, None)]} for delta in deltas]
        chunks.append({**head, "choices": [_choice({}, _finish(reply))]})
        if request.reports_usage and reply.usage is not None:
            chunks.append({**head, "choices": [], **_usage(reply)})
        return [*map(wire.sse_event, chunks), wire.sse_event("[DONE]")]

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _step(message: _Message) -> wire.HistoryStep:
    match message.role:
        case "assistant":
            return wire.ModelStep(tuple(call.id for call in message.tool_calls or ()))
        case "tool":
            return wire.ToolResultStep(message.tool_call_id, wire.content_text(message.content))
        case _:
            return wire.UserStep(wire.content_text(message.content))


def _head(reply: wire.WireReply, kind: str) -> dict[str, Any]:
    return {"id": reply.id("chatcmpl"), "object": kind, "created": wire.CREATED_AT, "model": reply.model}


def _call(call: wire.WireToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments}}


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _finish(reply: wire.WireReply) -> str:
    return "scripted" if reply.finish == "unknown" else reply.finish


def _usage(reply: wire.WireReply) -> dict[str, Any]:
    usage = reply.usage
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
