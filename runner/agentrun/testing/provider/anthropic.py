"""Anthropic Messages, spoken by the server's side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from agentrun.testing.provider.wire_format import (
    HistoryStep,
    ModelStep,
    ToolResultStep,
    UserStep,
    WireReply,
    WireRequest,
    content_text,
    decode_request,
    join_model_steps,
    sse_event,
)

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
    """The format."""

    name = "anthropic"
    accepts_reasoning = True

    def parse_request(self, path: str, body: bytes) -> WireRequest:  # noqa: ARG002  # all is in the body
        request = decode_request(body, _Request)
        return WireRequest(
            model=request.model,
            stream=request.stream,
            instructions=content_text(request.system),
            tools=tuple(tool.name for tool in request.tools),
            steps=join_model_steps(step for message in request.messages for step in _steps(message)),
        )

    def reply_body(self, said: WireReply, asked: WireRequest) -> dict[str, Any]:  # noqa: ARG002  # one reply for all
        return _message(said, list(_blocks(said)), _stop(said))

    def reply_events(self, said: WireReply, asked: WireRequest) -> list[bytes]:  # noqa: ARG002  # one reply for all
        started = _message(said, [], None)
        if said.usage is not None:
            started["usage"] = {**_usage(said), "output_tokens": 1, "output_tokens_details": None}
        story: list[dict[str, Any]] = [{"type": "message_start", "message": started}, {"type": "ping"}]
        for index, block in enumerate(_blocks(said)):
            empty, deltas = _block_deltas(said, block)
            story.append({"type": "content_block_start", "index": index, "content_block": empty})
            story += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            story.append({"type": "content_block_stop", "index": index})
        end = {"type": "message_delta", "delta": {"stop_reason": _stop(said), "stop_sequence": None}}
        story.append({**end, **({"usage": _usage(said)} if said.usage else {})})
        story.append({"type": "message_stop"})
        return [sse_event(told, told["type"]) for told in story]

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


def _steps(message: _Message) -> Iterator[HistoryStep]:
    if isinstance(message.content, str):
        yield ModelStep() if message.role == "assistant" else UserStep(message.content)
        return
    if message.role == "assistant":
        calls = tuple(block.id for block in message.content if block.type == "tool_use")
        yield ModelStep(calls, tuple(block.signature for block in message.content if block.signature))
        return
    for block in message.content:
        if block.type == "tool_result":
            yield ToolResultStep(block.tool_use_id, content_text(block.content))
        else:
            yield UserStep(block.text)


def _message(said: WireReply, blocks: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    message = {"id": said.id("msg"), "type": "message", "role": "assistant", "model": said.model, "content": blocks}
    usage = {"usage": _usage(said)} if said.usage else {}
    return {**message, "stop_reason": stop, "stop_sequence": None, **usage}


def _stop(said: WireReply) -> str:
    return "refusal" if said.refusal else _STOP[said.finish]


def _usage(said: WireReply) -> dict[str, Any]:
    """Cached tokens are counted apart from the others here."""
    usage = said.usage
    assert usage is not None
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _blocks(said: WireReply) -> Iterator[dict[str, Any]]:
    if said.reasoning:
        yield {"type": "thinking", "thinking": said.reasoning, "signature": said.signature}
    for text in (said.text, said.refusal):
        if text:
            yield {"type": "text", "text": text}
    for call in said.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments_object}


def _block_deltas(said: WireReply, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as a stream begins it, and the pieces that follow."""
    match block["type"]:
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in said.pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in said.pieces(block["text"])
            ]
        case _:
            written = next(call.arguments for call in said.calls if call.id == block["id"])
            pieces = ["", *said.pieces(written)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
