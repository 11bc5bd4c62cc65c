"""What an MCP tool gave, as parts that a model reads.

Rule 1  Text is text. What is no text is named and described, never fetched and never opened: a link to a file or an
        address is words that a server wrote.
Rule 2  Structured content stands for the text only where there is none: it says the same twice.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agentrun.core.messages import Text


def parts_of(result: CallToolResult) -> tuple[Text, ...]:
    texts = [_text(block) for block in result.content]
    if not any(isinstance(block, TextContent) for block in result.content) and result.structured_content is not None:
        texts.append(_json(result.structured_content))
    return tuple(Text(text.encode("utf-8", "replace").decode()) for text in texts)


def _text(block: Any) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}, {_kind(block.mime_type)}, {_size(block.data):,} bytes: not shown]"
        case ResourceLink():
            about = " ".join(filter(None, (block.title or block.name, block.description)))
            return f"[link to {block.uri}: {about}]"
        case EmbeddedResource(resource=BlobResourceContents() as inside):
            return f"[resource {inside.uri}, {_kind(inside.mime_type)}, {_size(inside.blob):,} bytes: not shown]"
        case EmbeddedResource(resource=TextResourceContents() as inside):
            return f"[resource {inside.uri}]\n{inside.text}"
        case _:
            return "[content of a kind that is not known here]"


def _kind(media_type: str | None) -> str:
    return media_type or "of an unknown type"


def _size(data: str) -> int:
    """The bytes that base64 stands for."""
    return len(data) * 3 // 4 - data[-2:].count("=")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
