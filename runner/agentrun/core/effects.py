"""What `decide` asks the world to do.

Rule 1  Effects are imperative, frozen and closed; each holds all that is needed to perform it.
Rule 2  Ids are derived from the place in the run, so a replay and a resume give the same ones.
Rule 3  Before an effect is performed its intent is journaled: `intent` is that fact.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from agentrun.core.effect_ids import DeliveryId, Purpose
from agentrun.core.facts import (
    ChildStarted,
    DeliveryStarted,
    Fact,
    HookAsked,
    HookPoint,
    ModelAsked,
    Parent,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, Transcript
from agentrun.core.outcome import Outcome, Question
from agentrun.core.package import Hook, ModelSettings, Package, Route, Sink
from agentrun.core.package_tools import Tool


class OfferedTool(Struct, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    args: dict[str, Any]
    """JSON Schema of its arguments."""


class ModelRequest(Struct, frozen=True):
    """What a model is asked, in no provider's words."""

    route: Route
    settings: ModelSettings
    """Temperature and the like; its `routes` are not for this request."""
    instructions: str
    messages: Transcript
    output: dict[str, Any] | None
    """The schema that the answer is to keep."""
    tools: tuple[OfferedTool, ...] = ()


class AskModel(Struct, frozen=True):
    """Send one request to a model."""

    id: str
    turn: int
    attempt: int
    reserved: int
    """Tokens that it may take."""
    cost: int
    """Micro-dollars that it may take."""
    request: ModelRequest
    purpose: Purpose = "answer"
    hidden: tuple[str, ...] = ()
    """Tools that are not offered this time."""
    gap: int = 0
    """The longest silence in the reply, in milliseconds."""
    time: int = 0
    """The longest that it may take, in milliseconds."""


class RunTool(Struct, frozen=True):
    """Run one call."""

    id: str
    """The call's id."""
    name: str
    """The tool's name as the model knows it."""
    tool: Tool
    arguments: dict[str, Any]
    key: str
    """Idempotency key: the same when the call is run again."""
    max_lines: int
    """Lines of its result that the model reads."""
    max_bytes: int
    """Bytes of its result that the model reads."""
    params: dict[str, Any] = {}
    """The run's params, for the templates of the tool."""


class ToolReturn(Struct, frozen=True):
    """What a tool gave."""

    parts: tuple[Content, ...] = ()
    fault: Fault | None = None
    """`tool.execution`: the model reads the parts. `tool.fatal`, `tool.aborted`, `tool.drift`: the run ends.
    `tool.indeterminate`: whether the call took effect is not known; of a call that must not be repeated somebody has to
    decide."""
    whole: str | None = None
    """Hash of all its text, when the parts are what is left of it. Only a tape says so."""


class RunChild(Struct, frozen=True):
    """Run a sub-agent, or go on with it if it has a journal already."""

    id: str
    """The call's id."""
    name: str
    """The tool's name."""
    run: str
    """The child's run."""
    package: Package
    params: dict[str, Any]
    message: str | None
    """Null: the child's own input."""
    parent: Parent
    max_lines: int
    """Lines of its answer that the model reads."""
    max_bytes: int
    """Bytes of its answer that the model reads."""
    seed: str | None = None
    """What its jitter is made of. Null: its run."""


class AskHook(Struct, frozen=True):
    """Ask a hook what it has to say."""

    id: str
    hook: Hook
    point: HookPoint
    subject: str
    target: str
    """The tool, or the subject itself."""
    value: Any
    """What it is about: arguments, or a text."""


class Deliver(Struct, frozen=True):
    """Give the answer to a sink."""

    id: str
    name: str
    sink: Sink
    text: str
    output: Any
    """The parsed answer; UNSET when there is no contract."""
    key: str
    """Who delivers twice delivers under the same key."""


Effect: TypeAlias = AskModel | RunTool | RunChild | AskHook | Deliver
Intent: TypeAlias = ModelAsked | ToolStarted | ChildStarted | HookAsked | DeliveryStarted
"""What is written before an effect takes place."""


def intent(effect: Effect) -> Intent:
    """The fact that says what is about to be done."""
    match effect:
        case AskModel():
            return ModelAsked(
                effect=effect.id,
                turn=effect.turn,
                attempt=effect.attempt,
                route=route_name(effect.request.route),
                reserved=effect.reserved,
                cost=effect.cost,
                purpose=effect.purpose,
                hidden=effect.hidden,
            )
        case RunTool():
            return ToolStarted(effect.id, effect.name, effect.key)
        case RunChild():
            return ChildStarted(effect.id, effect.name, effect.run, effect.parent.share)
        case AskHook():
            return HookAsked(effect.id, effect.hook.id, effect.point, effect.subject)
        case Deliver():
            return DeliveryStarted(effect.name)
        case _:
            assert_never(effect)


def effect_id_of(fact: Intent) -> str:
    """The id of the effect that a fact is the intent of."""
    match fact:
        case ModelAsked() | HookAsked():
            return fact.effect
        case ToolStarted() | ChildStarted():
            return fact.call
        case DeliveryStarted():
            return str(DeliveryId(fact.sink))
        case _:
            assert_never(fact)


def route_name(route: Route) -> str:
    return f"{route.provider}/{route.name}"


# --- what `decide` can answer: the next step of a run ---------------------------------------------------------


class Commit(Struct, frozen=True):
    """Write these facts."""

    facts: tuple[Fact, ...]


class Perform(Struct, frozen=True):
    """Start these effects, each after its intent was written."""

    effects: tuple[Effect, ...]
    questions: tuple[Question, ...] = ()
    waits_for: tuple[str, ...] = ()
    deadline: int | None = None
    """When to look again at the latest, in milliseconds since 1970."""


class Wait(Struct, frozen=True):
    """Nothing to do before one of these settles."""

    inflight: tuple[str, ...] = ()
    """Effects under way."""
    questions: tuple[Question, ...] = ()
    """What people are asked."""
    waits_for: tuple[str, ...] = ()
    """Calls on which somebody outside must act: outcome not known, deferred by a rule, or a child that waits."""
    deadline: int | None = None
    """When to look again at the latest, in milliseconds since 1970."""


class Finished(Struct, frozen=True):
    """It is over."""

    outcome: Outcome


NextStep: TypeAlias = Commit | Perform | Wait | Finished
