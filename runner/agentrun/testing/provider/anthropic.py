"""Anthropic Messages, server side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from agentrun.testing.provider import wire_format as wire

_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "unknown": "scripted",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Block(Struct):
    type: str
    text: str = ""
    id: str = ""
    tool_use_id: str = ""
    content: Any = None
    signature: str = ""


class _Message(Struct):
    role: str
    content: str | list[_Block]


class _Tool(Struct):
    name: str


class _Request(Struct):
    model: str
    max_tokens: int
    messages: list[_Message]
    system: Any = ""
    stream: bool = False
    tools: list[_Tool] = []


class MessagesFormat:
    name = "anthropic"
    accepts_reasoning = True

    def parse_request(self, path: str, body: bytes) -> wire.WireRequest:  # noqa: ARG002  # the body has everything
        request = wire.decode_request(body, _Request)
        return wire.WireRequest(
            model=request.model,
            stream=request.stream,
            instructions=wire.content_text(request.system),
            tools=tuple(tool.name for tool in request.tools),
            steps=wire.join_model_steps(step for message in request.messages for step in _steps(message)),
        )

    def reply_body(self, reply: wire.WireReply, request: wire.WireRequest) -> dict[str, Any]:  # noqa: ARG002  # the same for all requests
        return _message(reply, list(_blocks(reply)), _stop(reply))

    def reply_events(self, reply: wire.WireReply, request: wire.WireRequest) -> list[bytes]:  # noqa: ARG002  # the same for all requests
        started = _message(reply, [], None)
        if reply.usage is not None:
            started["usage"] = {**_usage(reply), "output_tokens": 1, "output_tokens_details": None}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": started}, {"type": "ping"}]
        for index, block in enumerate(_blocks(reply)):
            empty, deltas = _block_deltas(reply, block)
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        end = {"type": "message_delta", "delta": {"stop_reason": _stop(reply), "stop_sequence": None}}
        events.append({**end, **({"usage": _usage(reply)} if reply.usage else {})})
        events.append({"type": "message_stop"})
        return [wire.sse_event(event, event["type"]) for event in events]

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


def _steps(message: _Message) -> Iterator[wire.HistoryStep]:
    if isinstance(message.content, str):
        yield wire.ModelStep() if message.role == "assistant" else wire.UserStep(message.content)
        return
    if message.role == "assistant":
        calls = tuple(block.id for block in message.content if block.type == "tool_use")
        yield wire.ModelStep(calls, tuple(block.signature for block in message.content if block.signature))
        return
    for block in message.content:
        if block.type == "tool_result":
            yield wire.ToolResultStep(block.tool_use_id, wire.content_text(block.content))
        else:
            yield wire.UserStep(block.text)


def _message(reply: wire.WireReply, blocks: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    message = {"id": reply.id("msg"), "type": "message", "role": "assistant", "model": reply.model, "content": blocks}
    usage = {"usage": _usage(reply)} if reply.usage else {}
    return {**message, "stop_reason": stop, "stop_sequence": None, **usage}


def _stop(reply: wire.WireReply) -> str:
    return "refusal" if reply.refusal else _STOP[reply.finish]


def _usage(reply: wire.WireReply) -> dict[str, Any]:
    """In this format the input tokens do not include cached tokens."""
    usage = reply.usage
    assert usage is not None
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _blocks(reply: wire.WireReply) -> Iterator[dict[str, Any]]:
    if reply.reasoning:
        yield {"type": "thinking", "thinking": reply.reasoning, "signature": reply.signature}
    for text in (reply.text, reply.refusal):
        if text:
            yield {"type": "text", "text": text}
    for call in reply.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments_object}


def _block_deltas(reply: wire.WireReply, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in reply.pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in reply.pieces(block["text"])]
            return {**block, "text": ""}, deltas
        case _:
            written = next(call.arguments for call in reply.calls if call.id == block["id"])
            pieces = ["", *reply.pieces(written)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
