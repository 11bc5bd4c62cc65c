"""OpenAI Chat Completions, not streamed.

Rule 1  The body is compact JSON with sorted keys.
Rule 2  `options` of a route are added to the body. Options that set what this codec sets are refused.
Rule 3  Calls and their results carry our own ids, which hold in every provider's history.
"""

from __future__ import annotations

from typing import Annotated, Any, assert_never

import msgspec
from msgspec import Meta, Struct

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest
from agentrun.core.facts import Fault
from agentrun.core.messages import (
    Assistant,
    Finish,
    Message,
    Refusal,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from agentrun.core.package import Route
from agentrun.errors import PackageError
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import decode_fault, status_fault
from agentrun.providers.openai_schema import is_strict
from agentrun.wire import HttpCall, HttpReply

BASE_URL = "https://api.openai.com/v1"

OWN = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "seed", "stop", "max_completion_tokens"),
        *("reasoning_effort", "response_format", "stream", "stream_options", "tools", "tool_choice", "n"),
    }
)
"""The fields that this codec decides about."""

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


class OpenAIChat:
    """The codec. It has no state."""

    def check(self, route: Route) -> None:
        if taken := sorted(OWN & route.options.keys()):
            raise PackageError(
                "package.invalid",
                f"model.options cannot set {', '.join(taken)}: the spec has keys of its own for it",
                fields={"pointer": f"/model/options/{taken[0]}"},
            )

    def encode(self, request: ModelRequest) -> HttpCall:
        route = request.route
        self.check(route)
        return HttpCall(
            method="POST",
            url=(route.base_url or BASE_URL).rstrip("/") + "/chat/completions",
            headers=(
                ("accept", "application/json"),
                ("content-type", "application/json"),
                *sorted(route.headers.items()),
            ),
            body=compact(route.options | _body(request)),
        )

    def decode(self, reply: HttpReply) -> Decoded:
        if reply.status != 200:
            return _refused(reply)
        try:
            completion = _completion.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _unreadable(error, len(reply.body))
        return _reply(completion)


def _body(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    fields = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop": settings.stop or None,
        "max_completion_tokens": settings.max_output_tokens,
        "reasoning_effort": settings.reasoning,
    }
    body: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
    body["model"] = request.route.name
    body["messages"] = [
        {"role": "system", "content": request.instructions},
        *(_message(message) for message in request.messages),
    ]
    if request.output is not None:
        schema = {"name": "answer", "schema": request.output, "strict": is_strict(request.output)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _message(message: Message) -> dict[str, Any]:
    match message:
        case User():
            return {"role": "user", "content": _text(message.parts)}
        case Assistant():
            return _assistant(message)
        case ToolResult():
            return {"role": "tool", "tool_call_id": message.call, "content": _text(message.parts)}
        case _:
            assert_never(message)


def _text(parts: tuple[Text, ...]) -> str:
    return "".join(part.text for part in parts)


def _assistant(message: Assistant) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", "content": None}
    for part in message.parts:
        match part:
            case Text():
                fields["content"] = (fields["content"] or "") + part.text
            case Refusal():
                fields["refusal"] = part.text
            case ToolCall():
                function = {"name": part.tool, "arguments": part.arguments}
                call = {"id": part.id, "type": "function", "function": function}
                fields.setdefault("tool_calls", []).append(call)
            case _:
                assert_never(part)
    return fields


# --- what the provider answers; fields that are not named here may be anything ---------------------------

_Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class _InputDetails(Struct):
    cached_tokens: _Count | None = None


class _OutputDetails(Struct):
    reasoning_tokens: _Count | None = None


class _Usage(Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Function(Struct):
    name: str
    arguments: str


class _Call(Struct):
    function: _Function
    id: str | None = None


class _Said(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    message: _Said
    finish_reason: str | None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1, max_length=1)]
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Error(Struct):
    message: str | None = None
    code: str | int | None = None


class _ErrorBody(Struct):
    error: _Error


_completion = msgspec.json.Decoder(_Completion)
_error = msgspec.json.Decoder(_ErrorBody)


def _reply(completion: _Completion) -> Decoded:
    choice = completion.choices[0]
    said = choice.message
    parts: list[Text | Refusal | ToolCall] = []
    if said.content:
        parts.append(Text(said.content))
    if said.refusal:
        parts.append(Refusal(said.refusal))
    for index, call in enumerate(said.tool_calls or ()):
        parts.append(ToolCall(str(index), call.function.name, call.function.arguments, call.id))
    if not parts:
        finish = choice.finish_reason
        return Fault("provider.empty", "the model answered with nothing", {"finish": finish})
    return Reply(
        message=Assistant(tuple(parts)),
        finish=_FINISH.get(choice.finish_reason or "", "unknown"),
        usage=_usage(completion.usage),
        model=completion.model,
        wire_id=completion.id,
    )


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    read, written = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
        cached=read.cached_tokens if read else None,
        reasoning=written.reasoning_tokens if written else None,
    )


_SAYS_MORE = {
    (400, "context_length_exceeded"): "provider.context_overflow",
    (429, "insufficient_quota"): "provider.fatal",  # no waiting helps: somebody has to pay
}


def _refused(reply: HttpReply) -> Fault:
    try:
        error = _error.decode(reply.body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        words = reply.body[:2000].decode("utf-8", "replace")
        return status_fault(reply, words or "no words")
    return status_fault(reply, error.message or "no words", _SAYS_MORE.get((reply.status, str(error.code))))


def _unreadable(error: Exception, size: int) -> Fault:
    """msgspec names the place at the end of its message: a path for a wrong shape, a byte for wrong JSON."""
    message = str(error)
    if isinstance(error, msgspec.ValidationError):
        what, _, path = message.partition(" - at `$")
        pointer = path.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
        return decode_fault(what, {"pointer": pointer})
    if isinstance(error, msgspec.DecodeError):
        what, _, byte = message.partition(" (byte ")
        return decode_fault(what, {"offset": int(byte.rstrip(")")) if byte else size})
    return decode_fault(message, {})
