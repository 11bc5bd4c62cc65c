"""Effects: what `decide` asks the world to do.

Rule 1  Effects are imperative, frozen and closed. Each contains all that is needed to perform it.
Rule 2  Ids are derived from the position in the run, so a replay and a resume make the same ids.
Rule 3  Before an effect is performed, its intent is journaled. `intent` returns that fact.
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
    """A request to a model, independent of the provider."""

    route: Route
    settings: ModelSettings
    """Temperature and other settings. Its `routes` are not used here."""
    instructions: str
    messages: Transcript
    output: dict[str, Any] | None
    """The schema of the answer."""
    tools: tuple[OfferedTool, ...] = ()


class AskModel(Struct, frozen=True):
    id: str
    turn: int
    attempt: int
    reserved: int
    """Tokens that it may use."""
    cost: int
    """Micro-dollars that it may cost."""
    request: ModelRequest
    purpose: Purpose = "answer"
    hidden: tuple[str, ...] = ()
    """Tools that are not offered in this request."""
    gap: int = 0
    """The longest pause in the reply, in milliseconds."""
    time: int = 0
    """How long the request may take, in milliseconds."""


class RunTool(Struct, frozen=True):
    id: str
    """The call's id."""
    name: str
    """The name of the tool, as the model knows it."""
    tool: Tool
    arguments: dict[str, Any]
    key: str
    """Idempotency key. It is the same when the call runs again."""
    max_lines: int
    """Lines of its result that the model reads."""
    max_bytes: int
    """Bytes of its result that the model reads."""
    params: dict[str, Any] = {}
    """The params of the run, for the templates of the tool."""


class ToolReturn(Struct, frozen=True):
    parts: tuple[Content, ...] = ()
    fault: Fault | None = None
    """`tool.execution`: the model reads the parts. `tool.fatal`, `tool.aborted`, `tool.drift`: the run ends.
    `tool.indeterminate`: it is not known whether the call took effect. If the call must not be repeated, someone has to
    decide."""
    whole: str | None = None
    """Hash of the whole text, if the parts were cut. Only a cassette sets it."""


class RunChild(Struct, frozen=True):
    """Run a sub-agent. If it has a journal already, continue it."""

    id: str
    """The call's id."""
    name: str
    run: str
    package: Package
    params: dict[str, Any]
    message: str | None
    """Null: the sub-agent's own input."""
    parent: Parent
    max_lines: int
    """Lines of its answer that the model reads."""
    max_bytes: int
    """Bytes of its answer that the model reads."""
    seed: str | None = None
    """The seed of its retry jitter. Null: the id of its run."""


class AskHook(Struct, frozen=True):
    id: str
    hook: Hook
    point: HookPoint
    subject: str
    target: str
    """The tool, or the subject itself."""
    value: Any
    """The arguments, or the text."""


class Deliver(Struct, frozen=True):
    id: str
    name: str
    sink: Sink
    text: str
    output: Any
    """The parsed answer; UNSET when there is no contract."""
    key: str
    """Idempotency key. It is the same when the delivery is repeated."""


Effect: TypeAlias = AskModel | RunTool | RunChild | AskHook | Deliver
Intent: TypeAlias = ModelAsked | ToolStarted | ChildStarted | HookAsked | DeliveryStarted
"""The facts that are written before an effect is performed."""


def intent(effect: Effect) -> Intent:
    """The fact that is written before an effect."""
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
    """The id of the effect that an intent belongs to."""
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


# --- the next step of a run: what `decide` returns ---


class Commit(Struct, frozen=True):
    """Write these facts."""

    facts: tuple[Fact, ...]


class Perform(Struct, frozen=True):
    """Start these effects, each after its intent is written."""

    effects: tuple[Effect, ...]
    questions: tuple[Question, ...] = ()
    waits_for: tuple[str, ...] = ()
    deadline: int | None = None
    """When to decide again at the latest, in milliseconds since 1970."""


class Wait(Struct, frozen=True):
    """There is nothing to do before one of these changes."""

    inflight: tuple[str, ...] = ()
    """Effects that are running."""
    questions: tuple[Question, ...] = ()
    """Questions to people."""
    waits_for: tuple[str, ...] = ()
    """Calls that someone outside must act on: outcome not known, deferred by a rule, or a sub-agent that waits."""
    deadline: int | None = None
    """When to decide again at the latest, in milliseconds since 1970."""


class Finished(Struct, frozen=True):
    outcome: Outcome


NextStep: TypeAlias = Commit | Perform | Wait | Finished
