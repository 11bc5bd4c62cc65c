"""Requests and replies of the scripted provider, independent of the wire format.

Rule 1  Consecutive pieces of the model are one turn, however many messages or items they come in.
Rule 2  As with real providers, every call must have its result before the next message, and every result its call.
Rule 3  Replies do not depend on time or randomness: the same script gives the same bytes.
Rule 4  Ids and signatures contain the number of the turn, so that a test can check whether they come back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import sorted_json
from agentrun.core.messages import FinishReason
from agentrun.providers.request_encoding import wire_name
from agentrun.spec.v1.provider import ScriptedTurn, ScriptedUsage

RequestBody = TypeVar("RequestBody")
CREATED_AT = 1_700_000_000
"""The creation time of every reply, in seconds."""


class BadProviderRequest(Exception):
    """A request that a real provider would reject."""


class UserStep(Struct, frozen=True):
    text: str


class ModelStep(Struct, frozen=True):
    """A turn of the model, or a piece of it."""

    calls: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()


class ToolResultStep(Struct, frozen=True):
    call: str
    text: str


HistoryStep = UserStep | ModelStep | ToolResultStep


class WireRequest(Struct, frozen=True, kw_only=True):
    model: str
    stream: bool
    instructions: str
    tools: tuple[str, ...]
    steps: tuple[HistoryStep, ...]
    reports_usage: bool = True
    """Whether the reply reports usage. A stream of OpenAI Chat does so only on request."""
    shows_thoughts: bool = True
    """Whether the reply contains its reasoning in a form that can be sent back."""

    @property
    def model_turns(self) -> int:
        return sum(isinstance(step, ModelStep) for step in self.steps)

    @property
    def thoughts(self) -> tuple[str, ...]:
        return tuple(one for step in self.steps if isinstance(step, ModelStep) for one in step.thoughts)

    @property
    def latest_text(self) -> str:
        """The messages and results since the last turn of the model."""
        return "\n".join(step.text for step in self._latest_steps() if not isinstance(step, ModelStep))

    @property
    def latest_results(self) -> tuple[str, ...]:
        """The results of the calls of the last turn, in the order of the calls."""
        latest = self._latest_steps()
        results = [step for step in latest if isinstance(step, ToolResultStep)]
        texts = []
        for call in latest[0].calls if latest and isinstance(latest[0], ModelStep) else ():
            own = next(result for result in results if result.call == call)
            results.remove(own)
            texts.append(own.text)
        return tuple(texts)

    def _latest_steps(self) -> tuple[HistoryStep, ...]:
        last = max((index for index, step in enumerate(self.steps) if isinstance(step, ModelStep)), default=0)
        return self.steps[last:]


def join_model_steps(steps: Iterable[HistoryStep]) -> tuple[HistoryStep, ...]:
    """Join the pieces of each turn. Raises `BadProviderRequest` if calls and results do not match."""
    joined: list[HistoryStep] = []
    for step in steps:
        last = joined[-1] if joined else None
        if isinstance(step, ModelStep) and isinstance(last, ModelStep):
            joined[-1] = replace(last, calls=last.calls + step.calls, thoughts=last.thoughts + step.thoughts)
        else:
            joined.append(step)
    _check_call_results(joined)
    return tuple(joined)


def _check_call_results(steps: list[HistoryStep]) -> None:
    open_calls: list[str] = []
    for step in [*steps, UserStep("")]:
        match step:
            case ToolResultStep(call) if call in open_calls:
                open_calls.remove(call)
            case ToolResultStep(call):
                raise BadProviderRequest(f"there is a result for {call!r}, but no such call before it")
            case _ if open_calls:
                raise BadProviderRequest(f"there is no result for {', '.join(open_calls)}")
            case ModelStep(calls):
                open_calls = list(calls)


def decode_request(body: bytes, kind: type[RequestBody]) -> RequestBody:
    """Decode the fields of a body that are used here. Raises `BadProviderRequest` with the place of the error."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadProviderRequest(f"the body is not a valid request: {error}") from None


def content_text(content: Any) -> str:
    """The text of a content field: a string, or a list of parts."""
    match content:
        case str():
            return content
        case list():
            return "".join(map(content_text, content))
        case {"text": str(text)}:
            return text
        case _:
            return ""


class UnsupportedByFormat(Exception):
    """The script uses a feature that the wire format does not have."""


class WireToolCall(Struct, frozen=True):
    id: str
    tool: str
    arguments: str

    @property
    def arguments_object(self) -> dict[str, Any]:
        """The arguments for a format that has them as a JSON object and not as text."""
        try:
            value = json.loads(self.arguments)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UnsupportedByFormat(f"the arguments of {self.tool} must be a JSON object in this format, not `raw`")
        return value


class WireReply(Struct, frozen=True, kw_only=True):
    model: str
    number: int
    """The number of the turn, from 0."""
    reasoning: str
    text: str
    refusal: str
    calls: tuple[WireToolCall, ...]
    finish: FinishReason
    usage: ScriptedUsage | None
    chunk: int

    def id(self, kind: str) -> str:
        return f"{kind}_{self.number + 1}"

    def pieces(self, text: str) -> list[str]:
        return [text[start : start + self.chunk] for start in range(0, len(text), self.chunk)]

    @property
    def signature(self) -> str:
        return reasoning_signature(self.number)


def make_wire_reply(turn: ScriptedTurn, number: int, model: str) -> WireReply:
    calls: list[WireToolCall] = []
    for index, call in enumerate(turn.calls, 1):
        arguments = sorted_json(call.args).decode() if call.raw is UNSET else call.raw
        calls.append(WireToolCall(f"call_{number + 1}_{index}", wire_name(call.tool), arguments))
    return WireReply(
        model=model,
        number=number,
        reasoning=turn.reasoning or "",
        text=turn.text or "",
        refusal=turn.refusal or "",
        calls=tuple(calls),
        finish=("tool_calls" if calls else "stop") if turn.finish is UNSET else turn.finish,
        usage=turn.usage if isinstance(turn.usage, ScriptedUsage) else None,
        chunk=turn.chunk,
    )


def reasoning_signature(number: int) -> str:
    """The signature of the reasoning of a turn. It is base64, which one of the formats requires."""
    return base64.b64encode(f"thought in turn {number + 1}".encode()).decode()


def sse_event(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else sorted_json(data).decode()
    return f"{head}data: {text}\n\n".encode()


class WireFormat(Protocol):
    """The server side of a provider's wire format. It has no state."""

    name: str
    """The provider's name in a spec."""
    accepts_reasoning: bool
    """Whether a client can send reasoning back."""

    def parse_request(self, path: str, body: bytes) -> WireRequest:
        """Raises `BadProviderRequest`."""

    def reply_body(self, reply: WireReply, request: WireRequest) -> dict[str, Any]:
        """The body of a reply that is not streamed. Raises `UnsupportedByFormat`."""

    def reply_events(self, reply: WireReply, request: WireRequest) -> list[bytes]:
        """The events of a streamed reply. Raises `UnsupportedByFormat`."""

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        """The body of a reply with an error status."""
