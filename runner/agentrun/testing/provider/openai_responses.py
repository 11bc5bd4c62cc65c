"""OpenAI Responses, server side.

Rule 1  A reply is a list of items: reasoning, message, calls. A stream sends them one after another.
Rule 2  Encrypted reasoning is sent only if the request includes it (`include`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from agentrun.testing.provider import wire_format as wire

ENCRYPTED_REASONING = "reasoning.encrypted_content"
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter", "unknown": "scripted"}


_EMPTY_ITEMS: dict[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}
"""The fields that are still empty when an item begins."""


class _Item(Struct):
    type: str = "message"
    role: str = ""
    content: Any = None
    call_id: str = ""
    output: Any = None
    encrypted_content: str | None = None


class _Tool(Struct):
    name: str = ""


class _Request(Struct):
    model: str
    input: str | list[_Item]
    instructions: str | None = None
    stream: bool = False
    include: list[str] | None = None
    tools: list[_Tool] = []


class ResponsesFormat:
    name = "openai-responses"
    accepts_reasoning = True

    def parse_request(self, path: str, body: bytes) -> wire.WireRequest:  # noqa: ARG002  # the body has everything
        request = wire.decode_request(body, _Request)
        items = [_Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
        system = [item for item in items if item.role in ("system", "developer")]
        return wire.WireRequest(
            model=request.model,
            stream=request.stream,
            instructions="\n".join([request.instructions or "", *(wire.content_text(item.content) for item in system)]),
            tools=tuple(tool.name for tool in request.tools),
            steps=wire.join_model_steps(_step(item) for item in items if item not in system),
            shows_thoughts=ENCRYPTED_REASONING in (request.include or ()),
        )

    def reply_body(self, reply: wire.WireReply, request: wire.WireRequest) -> dict[str, Any]:
        return _response(reply, _items(reply, request))

    def reply_events(self, reply: wire.WireReply, request: wire.WireRequest) -> list[bytes]:
        items = _items(reply, request)
        begun = {**_response(reply, []), "status": "in_progress", "incomplete_details": None, "usage": None}
        ended = _response(reply, items)
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
            *(event for index, item in enumerate(items) for event in _item_events(reply, index, item)),
            {"type": f"response.{ended['status']}", "response": ended},
        ]
        return [
            wire.sse_event({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)
        ]

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _step(item: _Item) -> wire.HistoryStep:
    match item.type:
        case "function_call":
            return wire.ModelStep((item.call_id,))
        case "reasoning":
            return wire.ModelStep(thoughts=(item.encrypted_content,) if item.encrypted_content else ())
        case "function_call_output":
            return wire.ToolResultStep(item.call_id, wire.content_text(item.output))
        case _ if item.role == "assistant":
            return wire.ModelStep()
        case _:
            return wire.UserStep(wire.content_text(item.content))


def _response(reply: wire.WireReply, items: list[dict[str, Any]]) -> dict[str, Any]:
    reason = _REASONS.get(reply.finish)
    return {
        "id": reply.id("resp"),
        "object": "response",
        "created_at": wire.CREATED_AT,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": _usage(reply),
    }


def _usage(reply: wire.WireReply) -> dict[str, Any] | None:
    usage = reply.usage
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _items(reply: wire.WireReply, request: wire.WireRequest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        thought = {"id": reply.id("rs"), "type": "reasoning", "summary": summary}
        items.append({**thought, "encrypted_content": reply.signature} if request.shows_thoughts else thought)
    content = [_part(kind, text) for kind, text in (("text", reply.text), ("refusal", reply.refusal)) if text]
    if content:
        message = {"id": reply.id("msg"), "type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    return [*items, *(_call(call) for call in reply.calls)]


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: wire.WireToolCall) -> dict[str, Any]:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.tool,
        "arguments": call.arguments,
    }


def _item_events(reply: wire.WireReply, index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    started = {**item, **_EMPTY_ITEMS[item["type"]], **({"status": "in_progress"} if "status" in item else {})}
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    match item["type"]:
        case "reasoning":
            yield from _thought_events(reply, at, item["summary"][0])
        case "function_call":
            for piece in reply.pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            yield {"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]}
        case _:
            for number, part in enumerate(item["content"]):
                yield from _part_events(reply, {**at, "content_index": number}, part)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _thought_events(reply: wire.WireReply, at: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {**at, "summary_index": 0}
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
    for piece in reply.pieces(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


def _part_events(reply: wire.WireReply, at: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    key = "refusal" if part["type"] == "refusal" else "text"
    kind = "refusal" if key == "refusal" else "output_text"
    more: dict[str, Any] = {} if key == "refusal" else {"logprobs": []}
    yield {"type": "response.content_part.added", **at, "part": {**part, key: ""}}
    for piece in reply.pieces(part[key]):
        yield {"type": f"response.{kind}.delta", **at, "delta": piece, **more}
    yield {"type": f"response.{kind}.done", **at, key: part[key], **more}
    yield {"type": "response.content_part.done", **at, "part": part}
