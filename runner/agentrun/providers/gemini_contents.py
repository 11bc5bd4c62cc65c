"""A conversation as Gemini reads it.

Rule 1  The results of all calls of a reply are one message, right after it; what the user says is the next.
Rule 2  A signature goes back with the part it came with, to the route that gave it, and no part is changed.
Rule 3  From generation 3 on the API refuses a first call without a signature. A call that another model made has none,
        and says so in the word that the API has for it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest, route_name
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
from agentrun.providers.arguments import as_object
from agentrun.providers.body import given
from agentrun.providers.codec import Blob
from agentrun.providers.faults import UNREADABLE
from agentrun.providers.gemini_models import gemini
from agentrun.providers.names import call_ids, wire_name

UNSIGNED = "skip_thought_signature_validator"
SIGNATURE = "thoughtSignature"


def encode_segment(messages: Sequence[Message], request: ModelRequest, blob: Blob) -> list[bytes]:
    calls = _Calls(messages, request)
    said: list[Any] = []
    results: list[Any] = []
    asked: list[Any] = []
    for message in messages:
        if isinstance(message, Assistant):
            said += _said(message, calls)
        elif isinstance(message, User):
            asked += _content(message.parts, blob)
        else:
            result, beside = _result(message, calls, blob)
            results.append({"functionResponse": result})
            asked += beside
    items = (("model", said), ("user", results), ("user", asked))
    return [compact({"role": role, "parts": parts}) for role, parts in items if parts]


class _Calls:
    """The calls of a segment, as they stand on the wire."""

    def __init__(self, messages: Sequence[Message], request: ModelRequest) -> None:
        self.route = route_name(request.route)
        self.current = gemini(request.route.name).current
        self._ids = call_ids(messages, request.route)
        self._all = {call.id: call for message in messages if isinstance(message, Assistant) for call in message.calls}

    def name(self, call: str) -> str:
        """Of a call without a trace the id: the API wants a name."""
        found = self._all.get(call)
        return wire_name(found.tool if found else call)

    def id(self, call: str) -> str | None:
        """None when the call is this route's own, and it gave none."""
        found = self._all.get(call)
        if found is None or (found.route == self.route and found.wire_id is None):
            return None
        return self._ids[call]


def _said(message: Assistant, calls: _Calls) -> list[Any]:
    parts: list[Any] = []
    signature: str | None = None
    called = False
    for part in message.parts:
        match part:
            case Text() | Refusal():
                if part.text:
                    parts.append(given(text=part.text, thoughtSignature=signature))
                    signature = None
            case Reasoning():
                whole = _opaque(part.opaque) if part.route == calls.route else {}
                if whole.keys() == {SIGNATURE}:
                    signature = whole[SIGNATURE]
                elif whole:
                    parts.append(Raw(part.opaque.encode()))
            case ToolCall():
                if not called and part.route != calls.route and calls.current:
                    signature = UNSIGNED
                call = given(id=calls.id(part.id), name=wire_name(part.tool), args=as_object(part.arguments))
                parts.append(given(functionCall=call, thoughtSignature=signature))
                signature, called = None, True
            case _:
                assert_never(part)
    return parts


def _opaque(text: str) -> dict[str, Any]:
    """A part, or the signature of one, that was kept as it came. What is no object cannot be one of ours."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return {}


def _result(message: ToolResult, calls: _Calls, blob: Blob) -> tuple[dict[str, Any], list[Any]]:
    """A result, and the pictures and files that must stand beside it: older models take them only there."""
    media = [_inline(part, blob) for part in message.parts if not isinstance(part, Text)]
    result = given(
        id=calls.id(message.call),
        name=calls.name(message.call),
        response={"output": words(message.parts)},
        parts=media if media and calls.current else None,
    )
    return result, [] if calls.current else media


def _content(parts: tuple[Content, ...], blob: Blob) -> list[Any]:
    return [
        {"text": part.text} if isinstance(part, Text) else _inline(part, blob)
        for part in parts
        if not isinstance(part, Text) or part.text
    ]


def _inline(part: Image | File, blob: Blob) -> dict[str, Any]:
    text = part.media_type.startswith("text/") or part.media_type == "application/json"
    media_type = "text/plain" if text else part.media_type
    return {"inlineData": {"mimeType": media_type, "data": b64encode(blob(part.blob)).decode()}}
