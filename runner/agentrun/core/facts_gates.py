"""Facts of gates: what a hook, the policy or a person says about something that wants to pass.

What wants to pass is the fact's subject: `input`, `request`, `reply`, `output`, `stop`, `deliver:` and a sink's
name, or a call's id; after a call ran, its id stands for the result.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.core.facts_base import Decision, Fault, Observation
from agentrun.core.messages import VOLATILE, Message
from agentrun.core.package import Ruling, Stage

Point: TypeAlias = Literal[
    "on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop"
]
Answer: TypeAlias = Literal["approved", "approved_for_session", "denied", "timed_out", "cancelled", "unavailable"]


class _HookAnswer(Struct, frozen=True, forbid_unknown_fields=True, tag_field="answer"):
    """Base of what a hook can say."""


class Continue(_HookAnswer, frozen=True, tag="continue"):
    """Go on."""


class Deny(_HookAnswer, frozen=True, tag="deny"):
    """Do not."""

    reason: str


class Modify(_HookAnswer, frozen=True, tag="modify"):
    """Go on with this instead: the arguments of a call, or the text of anything else."""

    value: dict[str, Any] | str


class Inject(_HookAnswer, frozen=True, tag="inject"):
    """Go on, and tell the model this."""

    text: str


class Failed(_HookAnswer, frozen=True, tag="failed"):
    """The hook gave no answer that can be used."""

    fault: Fault


HookAnswer: TypeAlias = Continue | Deny | Modify | Inject | Failed


class HookAsked(Decision, frozen=True, tag="hook_asked"):
    """A hook is about to be asked."""

    effect: Annotated[str, VOLATILE]
    hook: str
    point: Point
    subject: str


class HookAnswered(Observation, frozen=True, tag="hook_answered"):
    """It answered."""

    effect: Annotated[str, VOLATILE]
    hook: str
    point: Point
    subject: str
    answer: HookAnswer
    closes: bool = False
    """Whether this is a no: a denial, or a failure of a hook that must not fail open."""


class Rewritten(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the conversation with what a rule masks in it."""

    index: int
    message: Message


class Ruled(Decision, frozen=True, tag="ruled"):
    """The policy ruled."""

    subject: str
    stage: Stage
    ruling: Ruling
    rules: tuple[str, ...]
    """The rules that led to it. None: the default."""
    reason: str | None = None
    granted: bool = False
    """Whether an earlier approval for the session answers the question that the ruling asks."""
    arguments: dict[str, Any] | UnsetType = UNSET
    """With modify: the arguments of the call from here on."""
    text: str | UnsetType = UNSET
    """With modify: the text from here on (of a result, an answer, a delivery, or the instructions)."""
    messages: tuple[Rewritten, ...] = ()
    """With modify on a request: the messages from here on."""


class ApprovalAsked(Decision, frozen=True, tag="approval_asked"):
    """A person is needed."""

    subject: str
    question: Annotated[str, VOLATILE]
    """Hash of all that the question is about, the run included. An answer holds for this question alone."""
    grant: Annotated[str, VOLATILE]
    """The same without run and call: what an approval for the session answers from then on."""
    target: str
    """The tool or sink, or the stage itself."""
    rules: tuple[str, ...]
    reason: str | None = None


class ApprovalAnswered(Observation, frozen=True, tag="approval_answered"):
    """Somebody, or the lack of anybody, answered."""

    subject: str
    question: Annotated[str, VOLATILE]
    answer: Answer
    by: str


GateFact: TypeAlias = HookAsked | HookAnswered | Ruled | ApprovalAsked | ApprovalAnswered


def is_about_call(fact: GateFact) -> bool:
    """Whether the fact is about a call or its result, and not about the run as a whole."""
    match fact:
        case Ruled():
            return fact.stage in ("tool_call", "tool_result")
        case HookAsked() | HookAnswered():
            return fact.point in ("before_tool", "after_tool")
        case _:
            return isinstance(parse_effect_id(fact.subject), CallId)


def is_about_result(fact: GateFact) -> bool:
    """Whether the fact is about the result of a call."""
    match fact:
        case Ruled():
            return fact.stage == "tool_result"
        case HookAsked() | HookAnswered():
            return fact.point == "after_tool"
        case _:
            return False
