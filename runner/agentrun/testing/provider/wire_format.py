"""A request in no provider's words, and whether its history holds together.

Rule 1  What stands between two things that others said is one turn of the model, in however many pieces it comes.
Rule 2  As with real providers, every call has its result before anything else is said, and every result its call.
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
from agentrun.providers.wire_names import wire_name
from agentrun.spec.v1.provider import ScriptedTurn, ScriptedUsage

RequestBody = TypeVar("RequestBody")


class BadProviderRequest(Exception):
    """A request that a real provider would refuse."""


class UserStep(Struct, frozen=True):
    """What a user says."""

    text: str


class ModelStep(Struct, frozen=True):
    """What the model said, or a piece of it."""

    calls: tuple[str, ...] = ()
    """The ids of the calls it asked for."""
    thoughts: tuple[str, ...] = ()
    """The signatures of what it thought."""


class ToolResultStep(Struct, frozen=True):
    """What a call gave."""

    call: str
    text: str


HistoryStep = UserStep | ModelStep | ToolResultStep


class WireRequest(Struct, frozen=True, kw_only=True):
    """One request."""

    model: str
    stream: bool
    instructions: str
    tools: tuple[str, ...]
    steps: tuple[HistoryStep, ...]
    reports_usage: bool = True
    """Whether usage is to be reported: a stream of OpenAI chat does it only when asked."""
    shows_thoughts: bool = True
    """Whether what was thought is to be given in a form that can be sent back."""

    @property
    def model_turns(self) -> int:
        """How often the model spoke."""
        return sum(isinstance(step, ModelStep) for step in self.steps)

    @property
    def thoughts(self) -> tuple[str, ...]:
        return tuple(one for step in self.steps if isinstance(step, ModelStep) for one in step.thoughts)

    @property
    def latest_text(self) -> str:
        """All that was said since the model's last turn."""
        return "\n".join(step.text for step in self._latest_steps() if not isinstance(step, ModelStep))

    @property
    def latest_results(self) -> tuple[str, ...]:
        """The results of the last turn's calls, in the order of the calls."""
        since = self._latest_steps()
        texts = [step for step in since if isinstance(step, ToolResultStep)]
        order = since[0].calls if since and isinstance(since[0], ModelStep) else ()
        return tuple(_take_result(texts, call) for call in order)

    def _latest_steps(self) -> tuple[HistoryStep, ...]:
        last = max((index for index, step in enumerate(self.steps) if isinstance(step, ModelStep)), default=0)
        return self.steps[last:]


def _take_result(results: list[ToolResultStep], call: str) -> str:
    found = next(result for result in results if result.call == call)
    results.remove(found)
    return found.text


def join_model_steps(steps: Iterable[HistoryStep]) -> tuple[HistoryStep, ...]:
    """The same with each turn of the model in one piece. Raises BadRequest when calls and results do not fit."""
    whole: list[HistoryStep] = []
    for step in steps:
        last = whole[-1] if whole else None
        if isinstance(step, ModelStep) and isinstance(last, ModelStep):
            whole[-1] = replace(last, calls=last.calls + step.calls, thoughts=last.thoughts + step.thoughts)
        else:
            whole.append(step)
    _check_call_results(whole)
    return tuple(whole)


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
    """A body as the fields of it that count here. Raises BadRequest with the place of what is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadProviderRequest(f"the body is not a request: {error}") from None


def content_text(content: Any) -> str:
    """All words in some content: a text, or parts of which some have texts."""
    match content:
        case str():
            return content
        case list():
            return "".join(map(content_text, content))
        case {"text": str(text)}:
            return text
        case _:
            return ""


# --- one reply of the script, ready to be put into a provider's words -----------------------------------------


CREATED_AT = 1_700_000_000
"""When every reply says that it was made, in seconds."""


class UnsupportedByFormat(Exception):
    """The script asks for something that a format has no words for."""


class WireToolCall(Struct, frozen=True):
    """A call."""

    id: str
    tool: str
    arguments: str

    @property
    def arguments_object(self) -> dict[str, Any]:
        """The arguments for a format that has them as JSON and not as text."""
        try:
            value = json.loads(self.arguments)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UnsupportedByFormat(
                f"this format can only say arguments that are a JSON object, unlike raw: of {self.tool}"
            )
        return value


class WireReply(Struct, frozen=True, kw_only=True):
    """A reply."""

    model: str
    number: int
    """The turn's number, from 0."""
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
        """A text in the pieces in which a stream brings it."""
        return [text[start : start + self.chunk] for start in range(0, len(text), self.chunk)]

    @property
    def signature(self) -> str:
        return reasoning_signature(self.number)


def make_wire_reply(turn: ScriptedTurn, number: int, model: str) -> WireReply:
    calls = tuple(
        WireToolCall(
            f"call_{number + 1}_{index + 1}",
            wire_name(call.tool),
            sorted_json(call.args).decode() if call.raw is UNSET else call.raw,
        )
        for index, call in enumerate(turn.calls)
    )
    return WireReply(
        model=model,
        number=number,
        reasoning=turn.reasoning or "",
        text=turn.text or "",
        refusal=turn.refusal or "",
        calls=calls,
        finish=("tool_calls" if calls else "stop") if turn.finish is UNSET else turn.finish,
        usage=turn.usage if isinstance(turn.usage, ScriptedUsage) else None,
        chunk=turn.chunk,
    )


def reasoning_signature(number: int) -> str:
    """The signature of what was thought in a turn. It is base64, which one of the formats demands."""
    return base64.b64encode(f"thought in turn {number + 1}".encode()).decode()


def sse_event(data: Any, name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else sorted_json(data).decode()
    return f"{head}data: {text}\n\n".encode()


class WireFormat(Protocol):
    """One provider's language, spoken by the server's side. It has no state."""

    @property
    def name(self) -> str:
        """The provider's name in a spec."""

    @property
    def accepts_reasoning(self) -> bool:
        """Whether what the model thought can be sent back."""

    def parse_request(self, path: str, body: bytes) -> WireRequest:
        """A request. Raises BadRequest."""

    def reply_body(self, said: WireReply, asked: WireRequest) -> dict[str, Any]:
        """A reply in one piece. Raises CannotSay."""

    def reply_events(self, said: WireReply, asked: WireRequest) -> list[bytes]:
        """A reply as the events of a stream; the last one says that it is over. Raises CannotSay."""

    def error_body(self, status: int, message: str) -> dict[str, Any]:
        """The body of a reply that is none."""
