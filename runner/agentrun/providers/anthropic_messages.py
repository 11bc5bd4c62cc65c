"""A conversation as Anthropic Messages reads it.

Rule 1  A segment is at most two messages: what the model said, and one of the user. The results of all calls come first
        in it, as the API demands, then what the user says.
Rule 2  The API refuses blank texts and empty messages, so they are left out.
Rule 3  What the model thought goes back unchanged and in its place, to the route it came from.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.messages import Assistant, Content, File, Image, Message, Reasoning, Refusal, Text, ToolCall, User
from agentrun.errors import LimitError
from agentrun.providers.arguments import as_object
from agentrun.providers.codec import Blob
from agentrun.providers.faults import UNREADABLE
from agentrun.providers.names import call_ids, derived_id, wire_name

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_TEXTS = ("application/json", "application/yaml", "application/xml")


def encode_segment(messages: Sequence[Message], request: ModelRequest, blob: Blob) -> list[bytes]:
    ids = call_ids(messages, request.route)
    said: list[Any] = []
    results: list[Any] = []
    asked: list[Any] = []
    for message in messages:
        if isinstance(message, Assistant):
            said += _said(message, ids, route_name(request.route))
        elif isinstance(message, User):
            asked += _content(message.parts, blob)
        else:
            results.append(_result(ids.get(message.call) or derived_id(message.call), message.parts, blob))
    user = [*results, *asked]
    items = [{"role": "assistant", "content": said}] if said else []
    return [compact(item) for item in (*items, *([{"role": "user", "content": user}] if user else ()))]


def _said(message: Assistant, ids: Mapping[str, str], route: str) -> list[Any]:
    blocks: list[Any] = []
    for part in message.parts:
        match part:
            case Text() | Refusal():
                if part.text.strip():
                    blocks.append({"type": "text", "text": part.text})
            case Reasoning():
                if part.route == route and (block := _opaque(part.opaque)) is not None:
                    blocks.append(block)
            case ToolCall():
                call = {"id": ids[part.id], "name": wire_name(part.tool), "input": as_object(part.arguments)}
                blocks.append({"type": "tool_use", **call})
            case _:
                assert_never(part)
    return blocks


def _opaque(text: str) -> Raw | None:
    """A block that was kept as it came. What is no JSON cannot be one of ours."""
    try:
        msgspec.json.decode(text)
    except UNREADABLE:
        return None
    return Raw(text.encode())


def _result(call: str, parts: tuple[Content, ...], blob: Blob) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call}
    content = _content(parts, blob)
    return {**block, "content": content} if content else block


def _content(parts: tuple[Content, ...], blob: Blob) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text():
                if part.text.strip():
                    blocks.append({"type": "text", "text": part.text})
            case Image():
                if part.media_type not in _IMAGES:
                    raise _unsupported(part.media_type)
                blocks.append({"type": "image", "source": _base64(part, blob)})
            case File():
                blocks.append({"type": "document", "title": part.name, "source": _document(part, blob)})
            case _:
                assert_never(part)
    return blocks


def _document(part: File, blob: Blob) -> dict[str, Any]:
    if part.media_type == "application/pdf":
        return _base64(part, blob)
    if part.media_type.startswith("text/") or part.media_type in _TEXTS:
        return {"type": "text", "media_type": "text/plain", "data": blob(part.blob).decode("utf-8", "replace")}
    raise _unsupported(part.media_type)


def _base64(part: Image | File, blob: Blob) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.media_type, "data": b64encode(blob(part.blob)).decode()}


def _unsupported(media_type: str) -> LimitError:
    fields = {"part": media_type, "reason": "unsupported"}
    return LimitError("context.failed", f"anthropic takes no {media_type}", fields=fields)
