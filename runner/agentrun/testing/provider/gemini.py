"""Gemini generateContent and streamGenerateContent, server side.

Rule 1  Reasoning is a part of its own. Its signature comes with the first call, or with the end of the text.
Rule 2  Calls are never split. Zero counts are left out of the usage. There is no finish reason for refusals and calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from agentrun.canonical_json import sorted_json
from agentrun.testing.provider import wire_format as wire

_FINISH = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "unknown": "SCRIPTED",
}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class _Call(Struct):
    name: str
    id: str | None = None


class _Response(Struct):
    name: str
    response: dict[str, Any]
    id: str | None = None


class _Part(Struct, rename="camel"):
    text: str = ""
    function_call: _Call | None = None
    function_response: _Response | None = None
    thought_signature: str = ""


class _Content(Struct):
    parts: list[_Part]
    role: str = "user"


class _Function(Struct):
    name: str


class _Tool(Struct, rename="camel"):
    function_declarations: list[_Function] = []


class _Request(Struct, rename="camel"):
    contents: list[_Content]
    system_instruction: dict[str, Any] | None = None
    tools: list[_Tool] = []


class GeminiFormat:
    name = "gemini"
    accepts_reasoning = True

    def parse_request(self, path: str, body: bytes) -> wire.WireRequest:
        address = urlsplit(path)
        model, _, method = address.path.rpartition("/models/")[2].rpartition(":")
        stream = method == "streamGenerateContent"
        if stream and parse_qs(address.query).get("alt") != ["sse"]:
            raise wire.BadProviderRequest("streaming needs ?alt=sse in the address")
        request = wire.decode_request(body, _Request)
        return wire.WireRequest(
            model=unquote(model),
            stream=stream,
            instructions=wire.content_text((request.system_instruction or {}).get("parts", [])),
            tools=tuple(function.name for tool in request.tools for function in tool.function_declarations),
            steps=wire.join_model_steps(step for content in request.contents for step in _steps(content)),
        )

    def reply_body(self, reply: wire.WireReply, request: wire.WireRequest) -> dict[str, Any]:  # noqa: ARG002  # the same for all requests
        return _response(reply, _parts(reply, streamed=False), last=True)

    def reply_events(self, reply: wire.WireReply, request: wire.WireRequest) -> list[bytes]:  # noqa: ARG002  # the same for all requests
        parts = _parts(reply, streamed=True) or [{"text": ""}]
        last = len(parts) - 1
        return [wire.sse_event(_response(reply, [part], last=index == last)) for index, part in enumerate(parts)]

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": _ERRORS.get(status, "UNKNOWN")}}


def _steps(content: _Content) -> Iterator[wire.HistoryStep]:
    if content.role == "model":
        calls = [part.function_call for part in content.parts if part.function_call]
        signatures = tuple(part.thought_signature for part in content.parts if part.thought_signature)
        yield wire.ModelStep(tuple(call.id or call.name for call in calls), signatures)
        return
    for part in content.parts:
        if part.function_response is not None:
            result = part.function_response
            yield wire.ToolResultStep(result.id or result.name, sorted_json(result.response).decode())
        else:
            yield wire.UserStep(part.text)


def _parts(reply: wire.WireReply, *, streamed: bool) -> list[dict[str, Any]]:
    signed = {"thoughtSignature": reply.signature} if reply.reasoning else {}
    cut = reply.pieces if streamed else lambda text: [text] if text else []
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in cut(reply.reasoning)]
    parts += [{"text": piece} for piece in cut(reply.text + reply.refusal)]
    if signed and not reply.calls:
        if streamed or not (reply.text or reply.refusal):
            parts.append({"text": "", **signed})
        else:
            parts[-1] |= signed
    for index, call in enumerate(reply.calls):
        called = {"functionCall": {"id": call.id, "name": call.tool, "args": call.arguments_object}}
        parts.append({**called, **(signed if index == 0 else {})})
    return parts


def _response(reply: wire.WireReply, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "SAFETY" if reply.refusal else _FINISH[reply.finish]
    usage = {"usageMetadata": _usage(reply)} if last and reply.usage else {}
    return {"candidates": [candidate], **usage, "modelVersion": reply.model, "responseId": reply.id("resp")}


def _usage(reply: wire.WireReply) -> dict[str, int]:
    usage = reply.usage
    assert usage is not None
    counts = {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cached,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }
    return {name: number for name, number in counts.items() if number}
