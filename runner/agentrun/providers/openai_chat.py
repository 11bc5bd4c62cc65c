"""The codec for OpenAI Chat Completions and compatible servers.

Rule 1  The instructions are the first message, with the role `system`.
Rule 2  Tool results contain only text here. Images and files of results follow in a user message after their batch.
Rule 3  Reasoning is not sent back, because the protocol has no field for it.
Rule 4  Compatible servers omit many fields of a reply, so most are optional.
Rule 5  The status of an error decides its code, unless the error code, its type or a known text is more precise. For an
        error inside a reply with status 200, its own code decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, assert_never

import msgspec
from msgspec import Meta, Struct

from agentrun.canonical_json import sorted_json
from agentrun.core import messages as neutral
from agentrun.core import model_texts as texts
from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, FinishReason, Refusal, Reply, Text, ToolCall, Usage
from agentrun.core.package import ModelSettings, Route
from agentrun.core.package_tools import Tool
from agentrun.providers import request_encoding as encoding
from agentrun.providers.codec import ReadBlob, ReplyOrFault, TokenCount, provider_url
from agentrun.providers.faults import (
    DECODE_ERRORS,
    code_of_status,
    decode_fault,
    empty_fault,
    inner_fault,
    status_fault,
    unended_fault,
    unreadable_fault,
)
from agentrun.providers.request_encoding import call_ids, derived_id, tools_by_wire_name, wire_name
from agentrun.providers.sse import SseReply
from agentrun.wire import HttpAuth, HttpCall, HttpReply

MAX_OPENAI_STOPS = 4

CHAT_FIELDS = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "seed", "stop", "max_completion_tokens"),
        *("reasoning_effort", "response_format", "stream", "stream_options", "tools", "tool_choice", "n"),
    }
)
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
LAST_DATA = "[DONE]"
_PRECISE = {
    (400, "context_length_exceeded"): "provider.context_overflow",
    (429, "insufficient_quota"): "provider.fatal",  # waiting does not help: the account needs credit
}
_TOO_LONG = ("maximum context length", "context length is only", "exceeds the context window")
"""Texts of vLLM and others, which send no code."""
_INNER = {
    "rate_limit_exceeded": "provider.rate_limited",
    "rate_limit_error": "provider.rate_limited",
    "context_length_exceeded": "provider.context_overflow",
    "exceed_context_size_error": "provider.context_overflow",
    "server_error": "provider.transient",
    "vector_store_timeout": "provider.transient",
    "overloaded_error": "provider.overloaded",
    "server_is_overloaded": "provider.overloaded",
    "slow_down": "provider.overloaded",
    "unavailable_error": "provider.overloaded",
    "insufficient_quota": "provider.fatal",
    "authentication_error": "provider.fatal",
    "permission_error": "provider.fatal",
    "not_found_error": "provider.fatal",
    "bio_policy": "provider.fatal",
    "data_residency_mismatch": "provider.fatal",
}
_FATAL = ("invalid_", "image_", "unsupported_", "empty_image", "failed_to_download")


class OpenAIChat:
    def problems(self, model: ModelSettings, route: Route, tools: Mapping[str, Tool], output: bool) -> list[str]:  # noqa: ARG002  # every schema is supported, strict or not
        problems = encoding.shared_problems(encoding.reserved_options(route, CHAT_FIELDS), tools)
        if route.base_url is None and len(model.stop) > MAX_OPENAI_STOPS:
            problems.append(f"model.stop: OpenAI supports at most {MAX_OPENAI_STOPS} texts")
        return problems

    def segment(self, messages: Sequence[neutral.Message], request: ModelRequest, blob: ReadBlob) -> list[bytes]:
        ids = call_ids(messages, request.route)
        items: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        for message in messages:
            if isinstance(message, neutral.ToolResult):
                id = ids.get(message.call) or derived_id(message.call)
                attached = [_part(part, blob) for part in message.parts if not isinstance(part, neutral.Text)]
                text = neutral.text_of(message.parts) or (texts.ATTACHED_BELOW if attached else "")
                items.append({"role": "tool", "tool_call_id": id, "content": text})
                if attached:
                    shown += [{"type": "text", "text": texts.ATTACHED_FROM.format(id)}, *attached]
                continue
            if shown:
                items.append({"role": "user", "content": shown})
                shown = []
            if isinstance(message, neutral.Assistant):
                items.append(_assistant(message, ids))
            elif all(isinstance(part, neutral.Text) for part in message.parts):
                items.append({"role": "user", "content": neutral.text_of(message.parts)})
            else:
                items.append({"role": "user", "content": [_part(part, blob) for part in message.parts]})
        if shown:
            items.append({"role": "user", "content": shown})
        return [sorted_json(item) for item in items]

    def call(self, request: ModelRequest, items: Sequence[bytes]) -> HttpCall:
        route = request.route
        encoding.refuse_reserved_options(encoding.reserved_options(route, CHAT_FIELDS))
        system = {"role": "system", "content": request.instructions}
        first = [sorted_json(system)] if request.instructions else []
        url = provider_url(route) + "/chat/completions"
        return encoding.post_items(request, url, _fields(request), "messages", [*first, *items], openai_auth(route))

    def decode(self, reply: HttpReply, request: ModelRequest) -> ReplyOrFault:
        if reply.status != 200:
            return openai_status_fault(reply)
        try:
            completion = _completion.decode(reply.body)
        except DECODE_ERRORS as problem:
            error = read_openai_error(reply.body)
            return openai_inner_fault(error) if error else unreadable_fault(problem, len(reply.body))
        return make_chat_reply(request, completion)

    def stream(self, request: ModelRequest) -> ChatStream:
        return ChatStream(request)


def openai_auth(route: Route) -> HttpAuth | None:
    return encoding.route_auth(route, "authorization", "Bearer ", "OPENAI_API_KEY")


def _fields(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    fields = encoding.drop_none(
        model=request.route.name,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
        stop=settings.stop or None,
        max_completion_tokens=settings.max_output_tokens,
        reasoning_effort=settings.reasoning,
    )
    if request.tools:
        fields["tools"] = [{"type": "function", "function": function_schema(tool)} for tool in request.tools]
        fields |= encoding.drop_none(tool_choice=openai_tool_choice(request, lambda name: {"function": {"name": name}}))
    if request.output is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": answer_schema(request.output)}
    if settings.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return fields


def function_schema(tool: OfferedTool) -> dict[str, Any]:
    return {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.args}


def arguments_text(arguments: str) -> str:
    """The arguments as a JSON object, because many servers parse them again and fail on anything else."""
    return sorted_json(encoding.arguments_object(arguments)).decode() if arguments.strip() else "{}"


def answer_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "schema": schema, "strict": encoding.is_strict(schema)}


def openai_tool_choice(request: ModelRequest, name_function: Callable[[str], dict[str, Any]]) -> Any:
    """None: auto, or a tool that is not offered now. `name_function`: the fields that name a function."""
    choice = request.settings.tool_choice
    if choice in ("required", "none"):
        return choice
    if any(tool.name == choice for tool in request.tools):
        return {"type": "function", **name_function(wire_name(choice))}
    return None


def _part(part: neutral.Content, blob: ReadBlob) -> dict[str, Any]:
    match part:
        case neutral.Text():
            return {"type": "text", "text": part.text}
        case neutral.Image():
            return {"type": "image_url", "image_url": {"url": encoding.data_url(part.media_type, blob(part.blob))}}
        case neutral.File():
            data = blob(part.blob)
            if (text := encoding.file_text(part, data)) is not None:
                return {"type": "text", "text": text}
            file = {"filename": part.name, "file_data": encoding.data_url(part.media_type, data)}
            return {"type": "file", "file": file}
        case _:
            assert_never(part)


def _assistant(message: neutral.Assistant, ids: Mapping[str, str]) -> dict[str, Any]:
    text = "".join([part.text for part in message.parts if isinstance(part, neutral.Text)])
    fields: dict[str, Any] = {"role": "assistant", "content": text or None}
    for part in message.parts:
        match part:
            case neutral.Text() | neutral.Reasoning():
                pass
            case neutral.Refusal():
                fields["refusal"] = part.text
            case neutral.ToolCall():
                function = {"name": wire_name(part.tool), "arguments": arguments_text(part.arguments)}
                call = {"id": ids[part.id], "type": "function", "function": function}
                fields.setdefault("tool_calls", []).append(call)
            case _:
                assert_never(part)
    if fields.keys() == {"role", "content"}:
        fields["content"] = text  # the API refuses a message with neither content nor calls
    return fields


class CachedTokens(Struct):
    cached_tokens: TokenCount | None = None


class ReasoningTokens(Struct):
    reasoning_tokens: TokenCount | None = None


class ChatUsage(Struct):
    prompt_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None
    prompt_tokens_details: CachedTokens | None = None
    completion_tokens_details: ReasoningTokens | None = None

    def neutral(self) -> Usage:
        read, written = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            input=self.prompt_tokens,
            output=self.completion_tokens,
            cached=read.cached_tokens if read else None,
            reasoning=written.reasoning_tokens if written else None,
        )


class _Function(Struct):
    name: str
    arguments: str | None = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _ChatMessage(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    message: _ChatMessage
    finish_reason: str | None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1, max_length=1)]
    id: str | None = None
    model: str | None = None
    usage: ChatUsage | None = None


_completion = msgspec.json.Decoder(_Completion)


def make_chat_reply(request: ModelRequest, completion: _Completion) -> ReplyOrFault:
    message, finish = completion.choices[0].message, completion.choices[0].finish_reason
    if finish == "error":  # OpenRouter: the model behind it failed
        return openai_inner_fault(OpenAIError("the model failed"))
    names = tools_by_wire_name(request)
    parts: list[Text | Refusal | ToolCall] = []
    if message.content:
        parts.append(Text(message.content))
    if message.refusal:
        parts.append(Refusal(message.refusal))
    for index, call in enumerate(message.tool_calls or ()):
        name = call.function.name
        parts.append(ToolCall(str(index), names.get(name, name), call.function.arguments or "", call.id))
    if not parts:
        return empty_fault(finish)
    return Reply(
        message=Assistant(tuple(parts)),
        finish=_FINISH.get(finish or "", "unknown"),
        usage=completion.usage.neutral() if completion.usage else None,
        model=completion.model,
        wire_id=completion.id,
    )


class _FunctionDelta(Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionDelta | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _ChoiceDelta(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class _Chunk(Struct):
    choices: list[_ChoiceDelta] | None = None
    id: str | None = None
    model: str | None = None
    usage: ChatUsage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk)


class _OpenCall(Struct):
    index: int
    id: str | None = None
    name: str = ""
    arguments: list[str] = []


class _OpenCalls:
    def __init__(self) -> None:
        self._all: list[_OpenCall] = []
        self._open: dict[int | None, _OpenCall] = {}

    def add(self, piece: _CallDelta) -> None:
        call = self._open.get(piece.index)
        delta = piece.function or _FunctionDelta()
        is_named = bool(delta.name)
        if call is None and piece.index is None and not is_named and self._all:
            call = self._all[-1]
        if call is not None and piece.id and call.id:
            begins = piece.id != call.id
        else:
            begins = call is None or (piece.index is None and is_named and bool(call.name))
        if call is None or begins:
            call = _OpenCall(len(self._all) if piece.index is None else piece.index)
            self._all.append(call)
            self._open[piece.index] = call
        call.id = call.id or piece.id
        call.name += (delta.name or "") if delta.name != call.name else ""  # some servers repeat it in every delta
        call.arguments.append(delta.arguments or "")

    def whole(self) -> list[_Call]:
        ordered = sorted(self._all, key=lambda call: call.index)
        return [_Call(_Function(call.name, "".join(call.arguments)), call.id) for call in ordered]


class ChatStream(SseReply[_Chunk]):
    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request, _chunk)
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls = _OpenCalls()
        self._finish: str | None = None
        self._usage: ChatUsage | None = None
        self._model: str | None = None
        self._id: str | None = None

    def _without_last_event(self) -> ReplyOrFault:
        return unended_fault() if self._finish is None else self._reply()

    def _is_complete(self, data: str) -> bool:
        return data.strip() == LAST_DATA or super()._is_complete(data)

    def _read(self, data: str) -> list[str]:
        if data.strip() == LAST_DATA and self._result is None:
            self._result = self._reply()
        return super()._read(data)

    def _reply(self) -> ReplyOrFault:
        calls = self._calls.whole()
        if not all(call.function.name for call in calls):
            return decode_fault("a call has no name", {})
        message = _ChatMessage("".join(self._content), "".join(self._refusal), calls)
        whole = _Completion([_Choice(message, self._finish)], self._id, self._model, self._usage)
        return make_chat_reply(self._request, whole)

    def _take(self, event: _Chunk) -> list[str]:
        if event.error is not None:
            self._result = openai_inner_fault(to_openai_error(event.error))
            return []
        self._id, self._model = self._id or event.id, self._model or event.model
        self._usage = event.usage or self._usage
        return [text for choice in event.choices or () for text in self._add(choice)]

    def _add(self, choice: _ChoiceDelta) -> list[str]:
        if choice.index != 0:
            self._result = decode_fault("there is more than one answer", {"pointer": "/choices"})
            return []
        self._finish = choice.finish_reason or self._finish
        delta = choice.delta or _Delta()
        for piece in delta.tool_calls or ():
            self._calls.add(piece)
        self._content.append(delta.content or "")
        self._refusal.append(delta.refusal or "")
        return [text for text in (delta.content, delta.refusal) if text]


class OpenAIError(Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None


class _Body(Struct):
    error: OpenAIError


_body = msgspec.json.Decoder(_Body)


def openai_status_fault(reply: HttpReply) -> Fault:
    error = read_openai_error(reply.body)
    if error is None:
        return status_fault(reply)
    text = error.message or ""
    code = _PRECISE.get((reply.status, str(error.code)))
    if error.type == "exceed_context_size_error" or (reply.status == 400 and _is_too_long(text)):
        code = "provider.context_overflow"
    return status_fault(reply, text, code)


def read_openai_error(body: bytes) -> OpenAIError | None:
    try:
        return _body.decode(body).error
    except DECODE_ERRORS:
        return None


def to_openai_error(value: Any) -> OpenAIError:
    """An error object, a text or anything else as an error."""
    if isinstance(value, str):
        return OpenAIError(value)
    try:
        return msgspec.convert(value, OpenAIError)
    except msgspec.ValidationError:
        return OpenAIError()


def openai_inner_fault(error: OpenAIError) -> Fault:
    text = error.message or ""
    status = error.code if isinstance(error.code, int) and 400 <= error.code <= 599 else None
    code = _code_by_name(error) if status is None else code_of_status(status)
    return inner_fault(text, "provider.context_overflow" if _is_too_long(text) else code, status)


def _code_by_name(error: OpenAIError) -> str:
    for name in (str(error.code), str(error.type)):
        if name in _INNER:
            return _INNER[name]
        if name.startswith(_FATAL):
            return "provider.fatal"
    return "provider.transient"


def _is_too_long(text: str) -> bool:
    return any(phrase in text for phrase in _TOO_LONG)
