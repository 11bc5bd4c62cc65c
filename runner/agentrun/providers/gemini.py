"""The codec for Gemini generateContent.

Rule 1  Options under `generationConfig` are merged with the fields of the codec. Options that set a field of the codec
        are refused in both spellings of the API, `topP` and `top_p`.
Rule 2  The answer schema is sent as structured output. Models before generation 3 do not support it together with
        tools, so there it is part of the instructions.
Rule 3  `base_url` is the same as in Google's SDKs: without `/v1beta`, which is added if there is no version.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, assert_never
from urllib.parse import quote

import msgspec
from msgspec import Raw

from agentrun.canonical_json import sorted_json
from agentrun.core import messages as neutral
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.providers.gemini_reply import GeminiStream, read_gemini_reply
from agentrun.providers.registry import provider_url
from agentrun.providers.wire_names import call_ids, wire_name
from agentrun.wire import HttpCall

GEMINI_THINKING_BUDGETS = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
GEMINI_THINKING_LEVELS = {"none": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
MAX_GEMINI_STOPS = 5
_VERSIONED = re.compile(r"/v\d+\w*(/|$)")

GEMINI_FIELDS = frozenset({"contents", "systemInstruction", "tools", "toolConfig"})
GEMINI_CONFIG_FIELDS = frozenset(
    {
        *("temperature", "topP", "seed", "stopSequences", "maxOutputTokens", "candidateCount", "thinkingConfig"),
        *("responseMimeType", "responseSchema", "responseJsonSchema", "responseFormat"),
    }
)
UNSIGNED_CALL = "skip_thought_signature_validator"
SIGNATURE = "thoughtSignature"
_NAME = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?")


class GeminiGenerate:
    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # every schema is supported, at least as text
        problems, features = encoding.shared_problems(_reserved_options(route), tools), gemini_features(route.name)
        if len(model.stop) > MAX_GEMINI_STOPS:
            problems.append(f"model.stop: Gemini supports at most {MAX_GEMINI_STOPS} texts")
        if model.reasoning == "none" and not features.off:
            problems.append(f"model.reasoning: {route.name} always thinks; the minimum is low")
        if model.reasoning not in (None, "none") and not features.thinks:
            problems.append(f"model.reasoning: {route.name} does not support thinking")
        return problems

    def segment(self, messages: Sequence[neutral.Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        calls = _SegmentCalls(messages, request)
        assistant: list[Any] = []
        results: list[Any] = []
        inputs: list[Any] = []
        for message in messages:
            if isinstance(message, neutral.Assistant):
                assistant += _assistant_parts(message, calls)
            elif isinstance(message, neutral.User):
                inputs += _content(message.parts, blob)
            else:
                result, attachments = _result(message, calls, blob)
                results.append({"functionResponse": result})
                inputs += attachments
        items = (("model", assistant), ("user", results), ("user", inputs))
        return [sorted_json({"role": role, "parts": parts}) for role, parts in items if parts]

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        encoding.refuse_reserved_options(_reserved_options(route))
        url = _address(route, stream=request.settings.stream)
        auth = encoding.route_auth(route, "x-goog-api-key", "", "GEMINI_API_KEY")
        return encoding.post_items(request, url, _fields(request), "contents", items, auth)

    decode = staticmethod(read_gemini_reply)
    stream = staticmethod(GeminiStream)


def _address(route: Route, *, stream: bool) -> str:
    name = route.name if "/" in route.name else f"models/{route.name}"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    base = provider_url(route)
    version = "" if _VERSIONED.search(base) else "/v1beta"
    return f"{base}{version}/{quote(name, safe='/@')}:{method}"


def _fields(request: ModelRequest) -> dict[str, Any]:
    native = request.output is not None and (gemini_features(request.route.name).current or not request.tools)
    instructions = request.instructions if native else encoding.guided_instructions(request)
    tools = [
        encoding.drop_none(
            name=wire_name(tool.name), description=tool.description or None, parametersJsonSchema=tool.args
        )
        for tool in request.tools
    ]
    return encoding.drop_none(
        systemInstruction={"parts": [{"text": instructions}]} if instructions else None,
        tools=[{"functionDeclarations": tools}] if tools else None,
        toolConfig=_tool_config(request) if tools else None,
        generationConfig=_config(request, native) or None,
    )


def _config(request: ModelRequest, native: bool) -> dict[str, Any]:
    settings = request.settings
    own = encoding.drop_none(
        temperature=settings.temperature,
        topP=settings.top_p,
        seed=settings.seed,
        stopSequences=settings.stop or None,
        maxOutputTokens=settings.max_output_tokens,
        thinkingConfig=_thinking(settings.reasoning, request.route.name),
        responseMimeType="application/json" if native else None,
        responseJsonSchema=request.output if native else None,
    )
    return _config_options(request.route) | own


def _thinking(level: str | None, name: str) -> dict[str, Any] | None:
    features = gemini_features(name)
    if level is None or not features.thinks:
        return None
    if features.current:
        return {"thinkingLevel": GEMINI_THINKING_LEVELS[level]}
    return {"thinkingBudget": GEMINI_THINKING_BUDGETS[level]}


def _tool_config(request: ModelRequest) -> dict[str, Any] | None:
    choice = request.settings.tool_choice
    if choice in ("required", "none"):
        return {"functionCallingConfig": {"mode": "ANY" if choice == "required" else "NONE"}}
    if any(tool.name == choice for tool in request.tools):
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [wire_name(choice)]}}
    return None  # auto, or a tool that is hidden now


def _config_options(route: Route) -> dict[str, Any]:
    config = route.options.get("generationConfig")
    return config if isinstance(config, dict) else {}


def _reserved_options(route: Route) -> list[str]:
    outer = [key for key in route.options if _is_one_of(key, GEMINI_FIELDS) or _is_misspelt_config(route, key)]
    inner = [f"generationConfig.{key}" for key in _config_options(route) if _is_one_of(key, GEMINI_CONFIG_FIELDS)]
    return sorted(outer + inner)


def _is_misspelt_config(route: Route, key: str) -> bool:
    """Another spelling of `generationConfig`, or not a mapping: it would be sent in addition to that of the codec."""
    return _is_one_of(key, {"generationConfig"}) and not (key == "generationConfig" and _config_options(route))


def _is_one_of(key: str, names: Iterable[str]) -> bool:
    """The API accepts system_instruction for systemInstruction."""
    return key.replace("_", "").lower() in [name.lower() for name in names]


class _SegmentCalls:
    def __init__(self, messages: Sequence[neutral.Message], request: ModelRequest) -> None:
        self.route = route_name(request.route)
        self.current = gemini_features(request.route.name).current
        self._ids = call_ids(messages, request.route)
        assistants = [message for message in messages if isinstance(message, neutral.Assistant)]
        self._all = {call.id: call for message in assistants for call in message.calls}

    def name(self, call: str) -> str:
        """The API requires a name. If the call is not in the segment, its id is used."""
        known = self._all.get(call)
        return wire_name(known.tool if known else call)

    def id(self, call: str) -> str | None:
        """None if the call is from this route and has no id."""
        known = self._all.get(call)
        if known is None or (known.route == self.route and known.wire_id is None):
            return None
        return self._ids[call]


def _assistant_parts(message: neutral.Assistant, calls: _SegmentCalls) -> list[Any]:
    parts: list[Any] = []
    signature: str | None = None
    called = False
    for part in message.parts:
        match part:
            case neutral.Text() | neutral.Refusal():
                if part.text:
                    parts.append(encoding.drop_none(text=part.text, thoughtSignature=signature))
                    signature = None
            case neutral.Reasoning():
                whole = _opaque(part.opaque) if part.route == calls.route else {}
                if whole.keys() == {SIGNATURE}:
                    signature = whole[SIGNATURE]
                elif whole:
                    parts.append(Raw(part.opaque.encode()))
            case neutral.ToolCall():
                if not called and part.route != calls.route and calls.current:
                    signature = UNSIGNED_CALL
                call = encoding.drop_none(
                    id=calls.id(part.id), name=wire_name(part.tool), args=encoding.arguments_object(part.arguments)
                )
                parts.append(encoding.drop_none(functionCall=call, thoughtSignature=signature))
                signature, called = None, True
            case _:
                assert_never(part)
    return parts


def _opaque(text: str) -> dict[str, Any]:
    """A part or a signature that was stored unchanged. Empty: it is not a JSON object, so it is not from this codec."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except DECODE_ERRORS:
        return {}


def _result(message: neutral.ToolResult, calls: _SegmentCalls, blob: ReadBlob) -> tuple[dict[str, Any], list[Any]]:
    """A result, and its images and files for older models, which accept them only outside of results."""
    media = [_inline(part, blob) for part in message.parts if not isinstance(part, neutral.Text)]
    result = encoding.drop_none(
        id=calls.id(message.call),
        name=calls.name(message.call),
        response={"output": neutral.text_of(message.parts)},
        parts=media if media and calls.current else None,
    )
    return result, [] if calls.current else media


def _content(parts: tuple[neutral.Content, ...], blob: ReadBlob) -> list[Any]:
    return [
        {"text": part.text} if isinstance(part, neutral.Text) else _inline(part, blob)
        for part in parts
        if not isinstance(part, neutral.Text) or part.text
    ]


def _inline(part: neutral.Image | neutral.File, blob: ReadBlob) -> dict[str, Any]:
    text = part.media_type.startswith("text/") or part.media_type == "application/json"
    media_type = "text/plain" if text else part.media_type
    return {"inlineData": {"mimeType": media_type, "data": b64encode(blob(part.blob)).decode()}}


class GeminiFeatures(NamedTuple):
    current: bool
    """Generation 3 or later: thinking levels, signed calls, and structured output together with tools."""
    thinks: bool
    off: bool
    """Whether thinking can be turned off, at least nearly."""


def gemini_features(name: str) -> GeminiFeatures:
    match = _NAME.search(name)
    version = (int(match[1]), int(match[2] or 0)) if match else (99, 0)
    thinks = version >= (2, 5)
    return GeminiFeatures(current=version >= (3, 0), thinks=thinks, off=not thinks or "pro" not in name)
