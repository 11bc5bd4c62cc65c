"""What Anthropic Messages answers: a reply, or a fault.

Rule 1  Only the fields that are named here are looked at; all others may be anything.
Rule 2  A field of the wrong type is not guessed at: the whole answer is `provider.decode`, with the place.
Rule 3  Thoughts, and blocks of kinds that are not known here, are kept as they came and go back unchanged.
Rule 4  A refusal is one: what was said or called before the model broke off is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Assistant, Finish, Reasoning, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, code_of_status, empty_fault, inner_fault, status_fault, unreadable
from agentrun.providers.names import tool_names
from agentrun.providers.places import unreadable_at
from agentrun.wire import HttpReply

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]

DECLINED = "The model declined to answer."


class OutputDetails(Struct):
    thinking_tokens: Count | None = None


class Tokens(Struct):
    """Usage. A stream reports it in pieces, each with the sums so far."""

    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens: Count | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(Struct):
    explanation: str | None = None


class Block(Struct):
    """One block of content."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str | None = None
    name: str = ""
    input: Raw = Raw(b"{}")


class Head(Struct):
    """All of a message but its content."""

    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: Tokens | None = None


class _Message(Head, kw_only=True):
    content: list[Raw]


class Error(Struct):
    """An error, before a reply or inside one."""

    type: str = ""
    message: str | None = None
    details: Any = None


class ErrorBody(Struct):
    error: Error


class Said(Struct):
    """A block that is whole."""

    block: Block
    arguments: str
    """Of a call, as text."""
    opaque: str
    """The whole block as it came."""


_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(Block)
_error = msgspec.json.Decoder(ErrorBody)

_FINISH: dict[str | None, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def read_reply(reply: HttpReply, request: ModelRequest) -> Decoded:
    """Any reply at all that came in one piece."""
    if reply.status != 200:
        return _refused(reply)
    try:
        message = _message.decode(reply.body)
    except UNREADABLE as error:
        return unreadable(error, len(reply.body))
    said = []
    for index, raw in enumerate(message.content):
        try:
            block = _block.decode(raw)
            said.append(Said(block, bytes(block.input).decode(), bytes(raw).decode()))
        except UNREADABLE as error:
            return unreadable_at(error, f"/content/{index}")
    return make_reply(message, said, request)


def make_reply(head: Head, said: list[Said], request: ModelRequest) -> Decoded:
    """What whole blocks mean."""
    finish = _FINISH.get(head.stop_reason, "unknown")
    if head.stop_reason == "refusal":
        details = head.stop_details
        parts: list[Text | Refusal | Reasoning | ToolCall] = [Refusal((details and details.explanation) or DECLINED)]
    else:
        parts = _parts(said, tool_names(request), route_name(request.route))
    if all(isinstance(part, Reasoning) for part in parts):
        if head.stop_reason == "model_context_window_exceeded":
            return inner_fault("the conversation fills the model's window", "provider.context_overflow", 200)
        return empty_fault(head.stop_reason)
    return Reply(Assistant(tuple(parts)), finish, _usage(head.usage), head.model, head.id)


def _parts(said: list[Said], names: Mapping[str, str], route: str) -> list[Text | Refusal | Reasoning | ToolCall]:
    parts: list[Text | Refusal | Reasoning | ToolCall] = []
    calls = 0
    for each in said:
        block = each.block
        if block.type == "tool_use":
            parts.append(ToolCall(str(calls), names.get(block.name, block.name), each.arguments, block.id))
            calls += 1
        elif block.type != "text":
            parts.append(Reasoning(each.opaque, route))
        elif block.text:
            parts.append(Text(block.text))
    return parts


def _usage(tokens: Tokens | None) -> Usage | None:
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
"""The status that an error has when it comes before a reply, for those that come inside one."""


def _refused(reply: HttpReply) -> Fault:
    try:
        error = _error.decode(reply.body).error
    except UNREADABLE:
        words = reply.body[:2000].decode("utf-8", "replace")
        return status_fault(reply, words or "no words")
    return status_fault(reply, error.message or "no words", _code(reply.status, error))


def broken_off(error: Error) -> Fault:
    """An error inside a stream: what it means before one."""
    status = _STATUS.get(error.type, 500)
    return inner_fault(error.message or "no words", _code(status, error) or code_of_status(status), status)


_TOO_LONG = ("prompt is too long", "exceed context limit", "exceeds the available context size")
"""The last is said by llama.cpp."""


def _code(status: int, error: Error) -> str | None:
    """When the provider says more than the status."""
    words = (error.message or "").lower()
    if status == 413 or (status == 400 and any(sign in words for sign in _TOO_LONG)):
        return "provider.context_overflow"
    if isinstance(error.details, dict) and error.details.get("error_code") == "enforced_spend_limit_reached":
        return "provider.fatal"  # no waiting helps: somebody has to pay
    return None
