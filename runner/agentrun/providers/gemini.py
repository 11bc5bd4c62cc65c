"""The codec for Gemini generateContent.

Rule 1  Options under `generationConfig` are merged with the fields of the codec. Options that set a field of the codec
        are refused in both spellings of the API, `topP` and `top_p`.
Rule 2  The answer schema is sent as structured output. Models before generation 3 do not support it together with
        tools, so there it is part of the instructions.
Rule 3  `base_url` is the same as in Google's SDKs: without `/v1beta`, which is added if there is no version.
Rule 4  The signature of a text or call is stored right before it. Thoughts and parts of unknown types are stored
        unchanged. Texts without signatures are joined.
Rule 5  A blocked prompt or answer is a refusal of the model, not a fault of the provider.
Rule 6  The time to wait is in the details of an error; the header takes precedence.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, assert_never
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core import messages as neutral
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Reasoning, Refusal, Reply, ReplyPart, Text, ToolCall, Usage
from agentrun.core.model_texts import PROVIDER_BLOCKED
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.providers import faults
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob, ReplyOrFault, TokenCount, provider_url
from agentrun.providers.faults import DECODE_ERRORS
from agentrun.providers.request_encoding import call_ids, tools_by_wire_name, wire_name
from agentrun.providers.sse import SseReply, can_decode
from agentrun.wire import HttpCall, HttpReply

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
_DELAY = re.compile(r"(\d{1,9})(\.\d+)?s")
_any = msgspec.json.Decoder()
_FILTERS = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
_FINISH: dict[str | None, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(_FILTERS, "content_filter"),
}


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

    def decode(self, reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
        if reply.status != 200:
            error = _read_error(reply.body)
            if error is None:
                return faults.status_fault(reply)
            return _with_delay(faults.status_fault(reply, error.message or "", _code(reply.status, error)), error)
        answer = GeminiReplyBuilder(request)
        try:
            response = _response.decode(reply.body)
        except faults.DECODE_ERRORS as problem:
            return faults.unreadable_fault(problem, len(reply.body))
        answer.add(response)
        return answer.result()

    def stream(self, request: ModelRequest) -> GeminiStream:
        return GeminiStream(request)


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


class GeminiError(Struct):
    code: int = 500
    message: str | None = None
    details: Any = None


class _Body(Struct):
    error: GeminiError


_body: msgspec.json.Decoder[_Body | list[_Body]] = msgspec.json.Decoder(_Body | list[_Body])


def _read_error(body: bytes) -> GeminiError | None:
    try:
        decoded = _body.decode(body)
    except faults.DECODE_ERRORS:
        return None
    first = decoded if isinstance(decoded, _Body) else next(iter(decoded), None)
    return first.error if first else None


def _code(status: int, error: GeminiError) -> str | None:
    text = error.message or ""
    too_long = "token count" in text and "exceeds the maximum number of tokens" in text
    return "provider.context_overflow" if status == 400 and too_long else None


def _with_delay(fault: Fault, error: GeminiError) -> Fault:
    if fault.code != "provider.rate_limited" or fault.fields.get("retry_after") is not None:
        return fault
    return replace(fault, fields={**fault.fields, "retry_after": _delay(error.details)})


def _delay(details: Any) -> int | None:
    """The seconds of a `google.rpc.RetryInfo`, rounded up: 38.2 s are 39."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith("/google.rpc.RetryInfo"):
            match = _DELAY.fullmatch(str(detail.get("retryDelay")))
            part = 1 if match and (match[2] or "").strip(".0") else 0
            return min(int(match[1]) + part, faults.MAX_RETRY_AFTER) if match else None
    return None


class _Call(Struct):
    name: str
    args: Raw = Raw(b"{}")
    id: str | None = None


class _Piece(Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(Struct):
    parts: list[Raw] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int = 0


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Tokens(Struct, rename="camel"):
    prompt_token_count: TokenCount | None = None
    cached_content_token_count: TokenCount | None = None
    candidates_token_count: TokenCount | None = None
    thoughts_token_count: TokenCount | None = None
    tool_use_prompt_token_count: TokenCount | None = None
    total_token_count: TokenCount | None = None


class GeminiResponse(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: GeminiError | None = None


_response = msgspec.json.Decoder(GeminiResponse)
_piece = msgspec.json.Decoder(_Piece)


class GeminiReplyBuilder:
    def __init__(self, request: ModelRequest) -> None:
        self._route = route_name(request.route)
        self._names: Mapping[str, str] = tools_by_wire_name(request)
        self.fault: Fault | None = None
        self._parts: list[ReplyPart] = []
        self._text: list[str] = []  # without signatures, since the last other part
        self._calls = 0
        self._finish: str | None = None
        self._blocked: str | None = None
        self._usage: _Tokens | None = None
        self._model: str | None = None
        self._id: str | None = None

    @property
    def is_whole(self) -> bool:
        return self._finish is not None or self._blocked is not None

    def add(self, response: GeminiResponse) -> list[str]:
        if response.error is not None:
            error = response.error
            code = _code(error.code, error) or faults.code_of_status(error.code)
            self.fault = _with_delay(faults.inner_fault(error.message, code, error.code), error)
            return []
        self._usage = response.usage_metadata or self._usage
        self._model = response.model_version or self._model
        self._id = response.response_id or self._id
        if response.prompt_feedback is not None:
            self._blocked = response.prompt_feedback.block_reason or self._blocked
        match response.candidates or []:
            case []:
                return []
            case [_Candidate(index=0) as candidate]:
                return self._add(candidate)
        self.fault = faults.decode_fault("there is more than one answer", {"pointer": "/candidates"})
        return []

    def _add(self, candidate: _Candidate) -> list[str]:
        pieces = (candidate.content and candidate.content.parts) or ()
        if pieces or candidate.finish_reason:
            self._finish = candidate.finish_reason
        texts = []
        for place, raw in enumerate(pieces):
            try:
                texts.append(self._take(raw))
            except faults.DECODE_ERRORS as error:
                self.fault = faults.unreadable_part_fault(error, f"/candidates/0/content/parts/{place}")
                return []
        return [text for text in texts if text]

    def result(self) -> ReplyOrFault:
        if self.fault is not None:
            return self.fault
        self._close_text()
        parts: list[ReplyPart] = list(self._parts)
        finish = _FINISH.get(self._finish, "unknown")
        if all(isinstance(part, Reasoning) for part in parts):
            reason = self._blocked or (self._finish if finish == "content_filter" else None)
            if reason is None:
                return faults.empty_fault(self._finish)
            parts, finish = [Refusal(PROVIDER_BLOCKED.format(reason))], "content_filter"
        if finish == "stop" and self._calls:
            finish = "tool_calls"
        return Reply(Assistant(tuple(parts)), finish, _usage(self._usage), self._model, self._id)

    def _take(self, raw: Raw) -> str:
        piece = _piece.decode(raw)
        signature = piece.thought_signature
        if piece.function_call is not None:
            self._sign(signature)
            self._call(piece.function_call)
        elif piece.text is None or piece.thought or (signature and not piece.text):
            self._close_text()
            self._parts.append(Reasoning(bytes(raw).decode(), self._route))
        elif signature:
            self._sign(signature)
            self._parts.append(Text(piece.text))
            return piece.text
        else:
            self._text.append(piece.text)
            return piece.text
        return ""

    def _sign(self, signature: str | None) -> None:
        self._close_text()
        if signature:
            self._parts.append(Reasoning(sorted_json({"thoughtSignature": signature}).decode(), self._route))

    def _call(self, call: _Call) -> None:
        arguments = bytes(call.args).decode()
        name = self._names.get(call.name, call.name)
        self._parts.append(ToolCall(str(self._calls), name, "{}" if arguments == "null" else arguments, call.id))
        self._calls += 1

    def _close_text(self) -> None:
        if text := "".join(self._text):
            self._parts.append(Text(text))
        self._text.clear()


def _usage(tokens: _Tokens | None) -> Usage | None:
    """Gemini counts thoughts separately from the answer, and omits counts of 0."""
    if tokens is None:
        return None
    prompt, answer, thoughts = tokens.prompt_token_count, tokens.candidates_token_count, tokens.thoughts_token_count
    if prompt is not None:
        prompt += tokens.tool_use_prompt_token_count or 0
    if answer is None and prompt is not None and tokens.total_token_count is not None:
        answer = max(tokens.total_token_count - prompt - (thoughts or 0), 0)
    return Usage(
        input=prompt,
        output=None if answer is None else answer + (thoughts or 0),
        cached=tokens.cached_content_token_count,
        reasoning=thoughts,
    )


class GeminiStream(SseReply[GeminiResponse]):
    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request, _response)
        self._answer = GeminiReplyBuilder(request)

    def _take(self, event: GeminiResponse) -> list[str]:
        texts = self._answer.add(event)
        self._result = self._answer.fault
        return texts

    def _without_last_event(self) -> ReplyOrFault:
        return self._answer.result() if self._answer.is_whole else faults.unended_fault()

    def _is_complete(self, data: str) -> bool:
        return can_decode(_any, data)
