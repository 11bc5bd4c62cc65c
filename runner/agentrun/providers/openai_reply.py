"""What OpenAI Chat Completions answers: a reply, or a fault.

Rule 1  Only the fields that are named here are looked at; all others may be anything. Servers that speak the same
        language leave many of them out.
Rule 2  A field of the wrong type is not guessed at: the whole answer is `provider.decode`, with the place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Assistant, Finish, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, empty_fault, unreadable
from agentrun.providers.names import tool_names
from agentrun.providers.openai_faults import Error, broke_off, read_error, refused
from agentrun.wire import HttpReply

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class _InputDetails(Struct):
    cached_tokens: Count | None = None


class _OutputDetails(Struct):
    reasoning_tokens: Count | None = None


class ChatUsage(Struct):
    """Tokens as this protocol counts them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None

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
    usage: ChatUsage | None = None


_completion = msgspec.json.Decoder(_Completion)

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def read_reply(reply: HttpReply, request: ModelRequest) -> Decoded:
    """Any reply at all."""
    if reply.status != 200:
        return refused(reply)
    try:
        completion = _completion.decode(reply.body)
    except UNREADABLE as problem:
        error = read_error(reply.body)
        return broke_off(error) if error else unreadable(problem, len(reply.body))
    choice = completion.choices[0]
    calls = [(call.function.name, call.function.arguments or "", call.id) for call in choice.message.tool_calls or ()]
    return assembled(
        request,
        content=choice.message.content,
        refusal=choice.message.refusal,
        calls=calls,
        finish=choice.finish_reason,
        usage=completion.usage,
        model=completion.model,
        wire_id=completion.id,
    )


def assembled(
    request: ModelRequest,
    *,
    content: str | None,
    refusal: str | None,
    calls: Iterable[tuple[str, str, str | None]],
    finish: str | None,
    usage: ChatUsage | None,
    model: str | None,
    wire_id: str | None,
) -> Decoded:
    """A reply out of what was read; a call is its name, arguments and id."""
    if finish == "error":  # OpenRouter's way to say that the model behind it failed
        return broke_off(Error("the model failed"))
    names = tool_names(request)
    parts: list[Text | Refusal | ToolCall] = []
    if content:
        parts.append(Text(content))
    if refusal:
        parts.append(Refusal(refusal))
    for index, (name, arguments, id) in enumerate(calls):
        parts.append(ToolCall(str(index), names.get(name, name), arguments, id))
    if not parts:
        return empty_fault(finish)
    return Reply(
        message=Assistant(tuple(parts)),
        finish=_FINISH.get(finish or "", "unknown"),
        usage=usage.neutral() if usage else None,
        model=model,
        wire_id=wire_id,
    )
