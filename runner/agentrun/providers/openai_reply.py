"""What OpenAI Chat Completions answers: a reply, or a fault.

Rule 1  Only the fields that are named here are looked at; all others may be anything.
Rule 2  A field of the wrong type is not guessed at: the whole answer is `provider.decode`, with the place.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from agentrun.core.facts_base import Fault
from agentrun.core.messages import Assistant, Finish, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import decode_fault, status_fault
from agentrun.wire import HttpReply

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


_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def read_reply(reply: HttpReply) -> Decoded:
    """Any reply at all."""
    if reply.status != 200:
        return _refused(reply)
    try:
        completion = _completion.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _unreadable(error, len(reply.body))
    return _reply(completion)


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
