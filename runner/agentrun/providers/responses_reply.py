"""What OpenAI Responses answers: a reply, or a fault.

Rule 1  Only the fields that are named here are looked at, and only the items that are: all others may be anything.
Rule 2  A field of the wrong type is not guessed at: the whole answer is `provider.decode`, with the place.
Rule 3  What the model thought is kept when it can be sent back: under an id, encrypted or in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from agentrun.canon import compact
from agentrun.core.effects import ModelRequest, route_name
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Assistant, Finish, Reasoning, Refusal, Reply, Text, ToolCall, Usage
from agentrun.providers.codec import Decoded
from agentrun.providers.faults import UNREADABLE, decode_fault, empty_fault, unreadable
from agentrun.providers.names import tool_names
from agentrun.providers.openai_faults import Error, broke_off, read_error, refused
from agentrun.providers.openai_reply import Count
from agentrun.wire import HttpReply

Said: TypeAlias = Text | Refusal | Reasoning | ToolCall


class _InputDetails(Struct):
    cached_tokens: Count | None = None


class _OutputDetails(Struct):
    reasoning_tokens: Count | None = None


class _Usage(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None

    def neutral(self) -> Usage:
        read, written = self.input_tokens_details, self.output_tokens_details
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            cached=read.cached_tokens if read else None,
            reasoning=written.reasoning_tokens if written else None,
        )


class _Incomplete(Struct):
    reason: str | None = None


class Response(Struct):
    """A whole response."""

    output: list[Raw]
    id: str | None = None
    model: str | None = None
    status: str | None = None
    error: Error | None = None
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None


class _Kind(Struct):
    type: str


class _Content(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Message(Struct):
    content: list[_Content]


class _Call(Struct):
    name: str
    arguments: str | None = None
    call_id: str | None = None


class _Thought(Struct):
    id: str | None = None
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None


_response = msgspec.json.Decoder(Response)
_kind = msgspec.json.Decoder(_Kind)
_message = msgspec.json.Decoder(_Message)
_call = msgspec.json.Decoder(_Call)
_thought = msgspec.json.Decoder(_Thought)

_INCOMPLETE: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}


def read_reply(reply: HttpReply, request: ModelRequest) -> Decoded:
    """Any reply at all."""
    if reply.status != 200:
        return refused(reply)
    response = read_response(reply.body)
    if isinstance(response, Fault):
        error = read_error(reply.body)
        return broke_off(error) if error else response
    return assembled(response, response.output, request)


def read_response(data: bytes | Raw) -> Response | Fault:
    try:
        return _response.decode(data)
    except UNREADABLE as problem:
        return unreadable(problem, len(bytes(data)))


def assembled(response: Response, items: Sequence[Raw], request: ModelRequest) -> Decoded:
    """A reply out of a response and its items."""
    if response.error is not None or response.status in ("failed", "cancelled"):
        return broke_off(response.error or Error(f"the response is {response.status}"))
    if response.status in ("queued", "in_progress"):
        return decode_fault("the response is not finished", {"pointer": "/status"})
    parts: list[Said] = []
    names, calls = tool_names(request), 0
    for index, item in enumerate(items):
        try:
            new = _parts(item, names, calls, route_name(request.route))
            calls += sum(isinstance(part, ToolCall) for part in new)
            parts += new
        except UNREADABLE as problem:
            return _inside(unreadable(problem, len(bytes(item))), f"/output/{index}")
    if all(isinstance(part, Reasoning) for part in parts):
        return empty_fault(response.status)
    return Reply(
        message=Assistant(tuple(parts)),
        finish=_finish(response, calls > 0),
        usage=response.usage.neutral() if response.usage else None,
        model=response.model,
        wire_id=response.id,
    )


def _parts(item: Raw, names: Mapping[str, str], calls: int, route: str) -> list[Said]:
    """What one item says; `calls` is how many calls came before it."""
    match _kind.decode(item).type:
        case "message":
            return [part for content in _message.decode(item).content for part in _words(content)]
        case "function_call":
            call = _call.decode(item)
            return [ToolCall(str(calls), names.get(call.name, call.name), call.arguments or "", call.call_id)]
        case "reasoning":
            thought = _thought.decode(item)
            kept = thought.id and (thought.encrypted_content or thought.content)
            return [Reasoning(_opaque(thought), route)] if kept else []
        case _:
            return []


def _words(content: _Content) -> list[Text | Refusal]:
    if content.type == "output_text" and content.text:
        return [Text(content.text)]
    return [Refusal(content.refusal)] if content.type == "refusal" and content.refusal else []


def _opaque(thought: _Thought) -> str:
    """The item as it goes back."""
    item: dict[str, Any] = {"type": "reasoning", "id": thought.id, "summary": thought.summary or []}
    if thought.content:
        item["content"] = thought.content
    if thought.encrypted_content:
        item["encrypted_content"] = thought.encrypted_content
    return compact(item).decode()


def _finish(response: Response, calls: bool) -> Finish:
    if response.status == "completed":
        return "tool_calls" if calls else "stop"
    reason = response.incomplete_details.reason if response.incomplete_details else None
    return _INCOMPLETE.get(reason or "", "unknown") if response.status == "incomplete" else "unknown"


def _inside(fault: Fault, place: str) -> Fault:
    """The fault of an item, with its place in the whole."""
    return Fault(fault.code, fault.message, {"pointer": place + fault.fields.get("pointer", "")})
