"""The codec for Anthropic Messages.

Rule 1  `max_tokens` is always sent, because the API requires it: that of the spec, or `DEFAULT_MAX_TOKENS`. Thinking
        counts towards it, so a thinking budget must be smaller.
Rule 2  The API version is 2023-06-01, the last one with a temperature and the one that compatible servers implement. A
        header `anthropic-version` of the route replaces it.
Rule 3  `base_url` is the same as in Anthropic's SDKs: without `/v1`, which is added if it is missing.
Rule 4  Thinking blocks and blocks of unknown types are stored unchanged and sent back unchanged.
Rule 5  If the stop reason is a refusal, texts and calls before it are dropped.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict, replace

from agentrun.canonical_json import sorted_json
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import (
    Assistant,
    Content,
    File,
    FinishReason,
    Image,
    Message,
    Reasoning,
    Refusal,
    Reply,
    ReplyPart,
    Text,
    ToolCall,
    Usage,
    User,
)
from agentrun.core.model_texts import MODEL_DECLINED
from agentrun.core.package import ModelSettings, Route, argument_schemas
from agentrun.core.package_tools import Tool
from agentrun.errors import LimitError
from agentrun.providers import faults
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob, ReplyOrFault, TokenCount, provider_url
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.providers.request_encoding import call_ids, derived_id, tools_by_wire_name, wire_name
from agentrun.providers.sse import SseReply
from agentrun.wire import HttpCall, HttpReply

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
_FINISH: dict[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of each error type, for errors inside a reply."""
_TOO_LONG = ("prompt is too long", "exceed context limit", "exceeds the available context size")  # the last: llama.cpp


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

    def decode(self, reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
        if reply.status != 200:
            return _status_fault(reply)
        try:
            message = _message.decode(reply.body)
        except faults.DECODE_ERRORS as error:
            return faults.unreadable_fault(error, len(reply.body))
        blocks = []
        for index, raw in enumerate(message.content):
            try:
                block = _block.decode(raw)
                blocks.append(WholeBlock(block, bytes(block.input).decode(), bytes(raw).decode()))
            except faults.DECODE_ERRORS as error:
                return faults.unreadable_part_fault(error, f"/content/{index}")
        return make_anthropic_reply(message, blocks, request)

    def stream(self, request: ModelRequest) -> AnthropicStream:
        return AnthropicStream(request)


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


class OutputDetails(Struct):
    thinking_tokens: TokenCount | None = None


class ClaudeUsage(Struct):
    """The usage. A stream reports it several times, each time with the sums so far."""

    input_tokens: TokenCount | None = None
    cache_creation_input_tokens: TokenCount | None = None
    cache_read_input_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(Struct):
    explanation: str | None = None


class ContentBlock(Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str | None = None
    name: str = ""
    input: Raw = Raw(b"{}")


class MessageHead(Struct):
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: ClaudeUsage | None = None


class _Message(MessageHead, kw_only=True):
    content: list[Raw]


class AnthropicError(Struct):
    type: str = ""
    message: str | None = None
    details: Any = None


class AnthropicErrorBody(Struct):
    error: AnthropicError


class WholeBlock(Struct):
    block: ContentBlock
    arguments: str
    opaque: str


_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(ContentBlock)
_error = msgspec.json.Decoder(AnthropicErrorBody)


def make_anthropic_reply(head: MessageHead, blocks: list[WholeBlock], request: ModelRequest) -> ReplyOrFault:
    finish = _FINISH.get(head.stop_reason, "unknown")
    if head.stop_reason == "refusal":
        details = head.stop_details
        parts: list[ReplyPart] = [Refusal((details and details.explanation) or MODEL_DECLINED)]
    else:
        parts = _parts(blocks, tools_by_wire_name(request), route_name(request.route))
    if all(isinstance(part, Reasoning) for part in parts):
        if head.stop_reason == "model_context_window_exceeded":
            return faults.inner_fault("the conversation fills the context window", "provider.context_overflow", 200)
        return faults.empty_fault(head.stop_reason)
    return Reply(Assistant(tuple(parts)), finish, _usage(head.usage), head.model, head.id)


def _parts(blocks: list[WholeBlock], names: Mapping[str, str], route: str) -> list[ReplyPart]:
    parts: list[ReplyPart] = []
    calls = 0
    for each in blocks:
        block = each.block
        if block.type == "tool_use":
            parts.append(ToolCall(str(calls), names.get(block.name, block.name), each.arguments, block.id))
            calls += 1
        elif block.type != "text":
            parts.append(Reasoning(each.opaque, route))
        elif block.text:
            parts.append(Text(block.text))
    return parts


def _usage(tokens: ClaudeUsage | None) -> Usage | None:
    if tokens is None:
        return None
    read, written = tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens
    details = tokens.output_tokens_details
    return Usage(
        input=None if tokens.input_tokens is None else tokens.input_tokens + (read or 0) + (written or 0),
        output=tokens.output_tokens,
        cached=read,
        reasoning=details.thinking_tokens if details else None,
    )


def _status_fault(reply: HttpReply) -> Fault:
    try:
        error = _error.decode(reply.body).error
    except faults.DECODE_ERRORS:
        return faults.status_fault(reply)
    return faults.status_fault(reply, error.message or "", _code(reply.status, error))


def _code(status: int, error: AnthropicError) -> str | None:
    text = (error.message or "").lower()
    if status == 413 or (status == 400 and any(phrase in text for phrase in _TOO_LONG)):
        return "provider.context_overflow"
    if isinstance(error.details, dict) and error.details.get("error_code") == "enforced_spend_limit_reached":
        return "provider.fatal"  # waiting does not help: the account needs credit
    return None


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class _Event(Struct):
    type: str
    index: int = 0
    message: MessageHead | None = None
    content_block: Raw = Raw(b"")
    delta: _Delta | None = None
    usage: ClaudeUsage | None = None
    error: AnthropicError | None = None


_event = msgspec.json.Decoder(_Event)


class _OpenBlock:
    def __init__(self, raw: Raw) -> None:
        self.block = _block.decode(raw)
        self._whole: dict[str, Any] = msgspec.json.decode(raw)
        self._texts = [self.block.text]
        self._thoughts = [self.block.thinking]
        self._json: list[str] = []
        self._signature: str | UnsetType = UNSET

    def add(self, delta: _Delta) -> str:
        match delta.type:
            case "text_delta":
                self._texts.append(delta.text)
                return delta.text
            case "thinking_delta":
                self._thoughts.append(delta.thinking)
            case "signature_delta":
                self._signature = delta.signature
            case "input_json_delta":
                self._json.append(delta.partial_json)
        return ""

    def whole_block(self) -> WholeBlock:
        block = replace(self.block, text="".join(self._texts))
        if block.type == "thinking":
            self._whole["thinking"] = "".join(self._thoughts)
        if self._signature is not UNSET:
            self._whole["signature"] = self._signature
        arguments = "".join(self._json)
        arguments = arguments if arguments.strip() else bytes(block.input).decode()
        return WholeBlock(block, arguments, sorted_json(self._whole).decode())


class AnthropicStream(SseReply[_Event]):
    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request, _event)
        self._head = MessageHead()
        self._blocks: dict[int, _OpenBlock] = {}

    def _take(self, event: _Event) -> list[str]:
        text = ""
        match event.type:
            case "message_start":
                self._head = event.message or MessageHead()
            case "content_block_start" if event.index in self._blocks:
                self._result = faults.decode_fault("a block starts twice", {"pointer": "/index"})
            case "content_block_start":
                block = self._blocks[event.index] = _OpenBlock(event.content_block)
                text = block.block.text
            case "content_block_delta" if event.index not in self._blocks:
                why = "a delta belongs to a block that was not started"
                self._result = faults.decode_fault(why, {"pointer": "/index"})
            case "content_block_delta":
                text = self._blocks[event.index].add(event.delta or _Delta())
            case "message_delta":
                self._finish(event)
            case "message_stop":
                blocks = [self._blocks[index].whole_block() for index in sorted(self._blocks)]
                self._result = make_anthropic_reply(self._head, blocks, self._request)
            case "error":
                error = event.error or AnthropicError()
                status = _STATUS.get(error.type, 500)
                code = _code(status, error) or faults.code_of_status(status)
                self._result = faults.inner_fault(error.message, code, status)
        return [text] if text else []

    def _finish(self, event: _Event) -> None:
        delta = event.delta or _Delta()
        usage = self._head.usage
        if event.usage is not None:
            reported = {name: value for name, value in asdict(event.usage).items() if value is not None}
            usage = replace(usage or ClaudeUsage(), **reported)
        self._head = replace(
            self._head,
            stop_reason=delta.stop_reason or self._head.stop_reason,
            stop_details=delta.stop_details or self._head.stop_details,
            usage=usage,
        )
