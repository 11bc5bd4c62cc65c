"""The codec for Anthropic Messages.

Rule 1  `max_tokens` is always sent, because the API requires it: that of the spec, or `DEFAULT_MAX_TOKENS`. Thinking
        counts towards it, so a thinking budget must be smaller.
Rule 2  The API version is 2023-06-01, the last one with a temperature and the one that compatible servers implement. A
        header `anthropic-version` of the route replaces it.
Rule 3  `base_url` is the same as in Anthropic's SDKs: without `/v1`, which is added if it is missing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, assert_never

import msgspec
from msgspec import Raw

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.messages import Assistant, Content, File, Image, Message, Reasoning, Refusal, Text, ToolCall, User
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_lookup import argument_schemas
from agentrun.core.package_tools import Tool
from agentrun.errors import LimitError
from agentrun.providers import request_encoding as encoding
from agentrun.providers.anthropic_reply import AnthropicStream, read_anthropic_reply
from agentrun.providers.codec import ReadBlob
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.providers.registry import provider_url
from agentrun.providers.wire_names import call_ids, derived_id, wire_name
from agentrun.wire import HttpCall

ANTHROPIC_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 16_000
CLAUDE_THINKING_BUDGETS = {"low": 1_024, "medium": 4_096, "high": 10_000}
"""Thinking tokens, for models with a thinking budget. The minimum of the API is 1,024."""
BINDING_BETA = "thinking-binding-controls-2026-08-01"

ANTHROPIC_FIELDS = frozenset(
    {
        *("model", "messages", "system", "max_tokens", "temperature", "top_p", "stop_sequences"),
        *("thinking", "output_config", "stream", "tools", "tool_choice"),
    }
)
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_NAME = re.compile(r"claude-(?:(?P<family>[a-z]+)-?)?(?:(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d))?")


class Anthropic:
    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # every schema is supported, at least as text
        problems = encoding.shared_problems(encoding.reserved_options(route, ANTHROPIC_FIELDS), tools)
        for name, schema in sorted(argument_schemas(tools).items()):
            for key in ("oneOf", "anyOf", "allOf"):
                if key in schema:
                    problems.append(f"tools.{name}.args: Anthropic does not support {key} at the top level of a schema")
        return [*problems, *_setting_problems(model, route, claude_features(route.name))]

    def segment(self, messages: Sequence[Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        ids = call_ids(messages, request.route)
        assistant: list[Any] = []
        results: list[Any] = []
        inputs: list[Any] = []
        for message in messages:
            if isinstance(message, Assistant):
                assistant += _assistant_blocks(message, ids, route_name(request.route))
            elif isinstance(message, User):
                inputs += _content_blocks(message.parts, blob)
            else:
                result = {"type": "tool_result", "tool_use_id": ids.get(message.call) or derived_id(message.call)}
                content = _content_blocks(message.parts, blob)
                results.append({**result, "content": content} if content else result)
        items = (("assistant", assistant), ("user", [*results, *inputs]))
        return [sorted_json({"role": role, "content": content}) for role, content in items if content]

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        encoding.refuse_reserved_options(encoding.reserved_options(route, ANTHROPIC_FIELDS))
        thinking = _thinking(request)
        headers = dict(encoding.merge_headers(request, {"anthropic-version": ANTHROPIC_VERSION}))
        if thinking and "block_binding" in thinking:
            headers["anthropic-beta"] = ",".join([*filter(None, [headers.get("anthropic-beta")]), BINDING_BETA])
        return HttpCall(
            method="POST",
            url=provider_url(route).removesuffix("/v1") + "/v1/messages",
            headers=tuple(sorted(headers.items())),
            body=encoding.splice_items(route.options | _fields(request, thinking), "messages", items),
            auth=encoding.route_auth(route, "x-api-key", "", "ANTHROPIC_API_KEY"),
        )

    decode = staticmethod(read_anthropic_reply)
    stream = staticmethod(AnthropicStream)


def _fields(request: ModelRequest, thinking: dict[str, Any] | None) -> dict[str, Any]:
    settings = request.settings
    features = claude_features(request.route.name)
    native = request.output is not None and features.structured and encoding.is_strict(request.output)
    output = encoding.drop_none(
        effort=settings.reasoning if features.effort and settings.reasoning != "none" else None,
        format={"type": "json_schema", "schema": request.output} if native else None,
    )
    tools = [
        encoding.drop_none(name=wire_name(tool.name), description=tool.description or None, input_schema=tool.args)
        for tool in request.tools
    ] or _former_tools(request.messages)
    return encoding.drop_none(
        model=request.route.name,
        max_tokens=settings.max_output_tokens or DEFAULT_MAX_TOKENS,
        system=(request.instructions if native else encoding.guided_instructions(request)) or None,
        temperature=settings.temperature,
        top_p=settings.top_p,
        stop_sequences=settings.stop or None,
        stream=settings.stream or None,
        thinking=thinking,
        output_config=output or None,
        tools=tools or None,
        tool_choice=_tool_choice(request) if tools else None,
    )


def _thinking(request: ModelRequest) -> dict[str, Any] | None:
    level = request.settings.reasoning
    features = claude_features(request.route.name)
    if level == "none":
        return {"type": features.off}
    if not features.effort:
        return {"type": "enabled", "budget_tokens": CLAUDE_THINKING_BUDGETS[level]} if level else None
    if features.bound:
        # Compaction, a hidden tool or a policy changes the messages before a thinking block. The API drops such a block
        # with this setting, and refuses the request without it.
        return {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    return {"type": "adaptive"} if level else None


def _former_tools(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Tools that were called before but are no longer offered. The API requires their declarations."""
    names = {part.tool for message in messages for part in message.parts if isinstance(part, ToolCall)}
    return [{"name": name, "input_schema": {"type": "object"}} for name in sorted(map(wire_name, names))]


def _tool_choice(request: ModelRequest) -> dict[str, Any] | None:
    choice = request.settings.tool_choice
    if not request.tools or choice == "none":
        return {"type": "none"}
    if choice == "required":
        return {"type": "any"}
    if any(tool.name == choice for tool in request.tools):
        return {"type": "tool", "name": wire_name(choice)}
    return None  # auto, or a tool that is hidden now


def _setting_problems(model: ModelSettings, route: Route, features: ClaudeFeatures) -> Iterable[str]:
    if model.seed is not None:
        yield "model.seed: Anthropic does not support a seed"
    if any(not text.strip() for text in model.stop):
        yield "model.stop: Anthropic does not support blank texts"
    if model.temperature is not None and model.temperature > 1:
        yield "model.temperature: the maximum for Anthropic is 1"
    for key, value, least in (("temperature", model.temperature, 1), ("top_p", model.top_p, 0.95)):
        if value is not None and not features.samples:
            yield f"model.{key}: {route.name} does not support it"
        elif value is not None and value < least and model.reasoning not in (None, "none"):
            yield f"model.{key}: the minimum for {route.name} with model.reasoning: {model.reasoning} is {least}"
    if None not in (model.temperature, model.top_p) and features.samples and not features.samples_both:
        yield f"model.top_p: {route.name} does not support it together with model.temperature"
    level = model.reasoning
    if level == "none" and features.off is None:
        yield f"model.reasoning: {route.name} always thinks; the minimum is low"
    budget = 0 if level in (None, "none") or features.effort else CLAUDE_THINKING_BUDGETS[level]
    if budget >= (model.max_output_tokens or DEFAULT_MAX_TOKENS):
        yield f"model.max_output_tokens: must be more than {budget}, the thinking budget of model.reasoning: {level}"
    thinks = level in ("low", "medium", "high") or (level is None and features.bound)
    if model.tool_choice not in ("auto", "none") and (thinks or not features.forced):
        yield f"model.tool_choice: {route.name} cannot be forced to call a tool while it thinks; use auto or none"


def _assistant_blocks(message: Assistant, ids: Mapping[str, str], route: str) -> list[Any]:
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
                call = {"type": "tool_use", "id": ids[part.id], "name": wire_name(part.tool)}
                blocks.append({**call, "input": encoding.arguments_object(part.arguments)})
            case _:
                assert_never(part)
    return blocks


def _opaque(text: str) -> Raw | None:
    """A block that was stored unchanged. None: it is not JSON, so it is not from this codec."""
    try:
        msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None
    return Raw(text.encode())


def _content_blocks(parts: tuple[Content, ...], blob: ReadBlob) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text():
                if part.text.strip():
                    blocks.append({"type": "text", "text": part.text})
            case Image():
                if part.media_type not in _IMAGES:
                    raise _unsupported_error(part.media_type)
                blocks.append({"type": "image", "source": _base64(part, blob)})
            case File():
                blocks.append({"type": "document", "title": part.name, "source": _document(part, blob)})
            case _:
                assert_never(part)
    return blocks


def _document(part: File, blob: ReadBlob) -> dict[str, Any]:
    if part.media_type == "application/pdf":
        return _base64(part, blob)
    if encoding.is_text_file(part.media_type):
        return {"type": "text", "media_type": "text/plain", "data": blob(part.blob).decode("utf-8", "replace")}
    raise _unsupported_error(part.media_type)


def _base64(part: Image | File, blob: ReadBlob) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.media_type, "data": b64encode(blob(part.blob)).decode()}


def _unsupported_error(media_type: str) -> LimitError:
    fields = {"part": media_type, "reason": "unsupported"}
    return LimitError("context.failed", f"Anthropic does not support files of the type {media_type}", fields=fields)


class ClaudeFeatures(NamedTuple):
    effort: bool
    """Whether thinking is controlled by effort; otherwise by a budget."""
    off: Literal["disabled", "between_tools"] | None
    """The setting that turns thinking off. None: it cannot be turned off."""
    samples: bool
    """Whether temperature and top_p can be set."""
    samples_both: bool
    forced: bool
    """Whether a tool call can be forced when the model does not think."""
    bound: bool
    """Whether thinking blocks are bound to the messages before them."""
    structured: bool


def claude_features(name: str) -> ClaudeFeatures:
    match = _NAME.search(name)
    family = match["family"] if match else None
    version = (int(match["major"]), int(match["minor"] or 0)) if match and match["major"] else (0, 0)
    special = family in ("fable", "mythos")  # in all their versions, thinking is controlled by effort
    bound = version >= ((5, 1) if special else (5, 5))
    off: Literal["disabled", "between_tools"] | None = "disabled"
    if special or (family == "opus" and version >= (5, 5)):
        off = None
    elif family == "sonnet" and version >= (5, 5):
        off = "between_tools"
    return ClaudeFeatures(
        effort=special or version >= (4, 6),
        off=off,
        samples=not special and version < (4, 7),
        samples_both=version < (4, 1),
        forced=not bound or family == "haiku",
        bound=bound,
        structured=special or version >= (4, 5),
    )
