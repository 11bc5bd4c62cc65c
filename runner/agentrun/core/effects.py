"""Effects: what `decide` asks the world to do.

Rule 1  Effects are imperative, frozen and closed. Each contains all that is needed to perform it.
Rule 2  Before an effect is performed, its intent is journaled. `intent` returns that fact.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from agentrun.core import facts
from agentrun.core.effect_ids import DeliveryId, Purpose
from agentrun.core.facts import Fact, Parent
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, Transcript
from agentrun.core.outcome import Outcome, Question
from agentrun.core.package import Hook, HookPoint, ModelSettings, Package, Route, Sink
from agentrun.core.package_tools import Tool


class OfferedTool(Struct, frozen=True):
    name: str
    description: str
    args: dict[str, Any]


class ModelRequest(Struct, frozen=True):
    """What a model is asked."""

    route: Route
    settings: ModelSettings
    """Its `routes` are not used here."""
    instructions: str
    messages: Transcript
    output: dict[str, Any] | None
    tools: tuple[OfferedTool, ...] = ()


class AskModel(Struct, frozen=True):
    id: str
    turn: int
    attempt: int
    reserved: int
    cost: int
    request: ModelRequest
    purpose: Purpose = "answer"
    hidden: tuple[str, ...] = ()
    gap: int = 0
    """The longest pause in the reply, in milliseconds."""
    time: int = 0
    """How long the request may take, in milliseconds."""


class ToolReturn(Struct, frozen=True):
    parts: tuple[Content, ...] = ()
    fault: Fault | None = None
    """`tool.execution`: the model reads the parts. `tool.fatal`, `tool.aborted`, `tool.drift`: the run ends.
    `tool.indeterminate`: it may have taken effect. If it must not be repeated, someone has to decide."""
    whole: str | None = None
    """Hash of the whole text, if the parts were cut. Only a cassette sets it."""


class SharedResult(Struct, frozen=True):
    """The result of an identical call of the same reply."""

    source: str
    """The call that ran."""
    returned: ToolReturn


class RunTool(Struct, frozen=True):
    id: str
    name: str
    tool: Tool
    arguments: dict[str, Any]
    key: str
    max_lines: int
    max_bytes: int
    params: dict[str, Any] = {}
    arguments_without_defaults: dict[str, Any] | None = None
    """The arguments without the defaults that were filled in. Null: there were none to fill in."""
    shared: SharedResult | None = None
    """The result that the call gets, instead of running."""


class RunChild(Struct, frozen=True):
    """Run a sub-agent. If it has a journal already, continue it."""

    id: str
    name: str
    run: str
    package: Package
    params: dict[str, Any]
    message: str | None
    """Null: the sub-agent's own input."""
    parent: Parent
    max_lines: int
    max_bytes: int
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
    """The arguments of a call, including defaults, or a text."""
    value_without_defaults: dict[str, Any] | None = None
    """The arguments of a call without the defaults that were filled in. Null: there were none to fill in."""


class Deliver(Struct, frozen=True):
    """An answer for a sink."""

    id: str
    name: str
    sink: Sink
    text: str
    output: Any
    """The parsed answer; UNSET when there is no contract."""
    key: str


Effect: TypeAlias = AskModel | RunTool | RunChild | AskHook | Deliver
_CallIntent: TypeAlias = facts.ToolStarted | facts.ResultShared | facts.ChildStarted
Intent: TypeAlias = facts.ModelAsked | _CallIntent | facts.HookAsked | facts.DeliveryStarted


def intent(effect: Effect) -> Intent:
    match effect:
        case AskModel():
            return facts.ModelAsked(
                effect=effect.id,
                turn=effect.turn,
                attempt=effect.attempt,
                route=route_name(effect.request.route),
                reserved=effect.reserved,
                cost=effect.cost,
                purpose=effect.purpose,
                hidden=effect.hidden,
            )
        case RunTool(shared=SharedResult(source=source)):
            return facts.ResultShared(effect.id, effect.name, source)
        case RunTool():
            return facts.ToolStarted(effect.id, effect.name, effect.key)
        case RunChild():
            return facts.ChildStarted(effect.id, effect.name, effect.run, effect.parent.share)
        case AskHook():
            return facts.HookAsked(effect.id, effect.hook.id, effect.point, effect.subject)
        case Deliver():
            return facts.DeliveryStarted(effect.name)
        case _:
            assert_never(effect)


def effect_id_of(fact: Intent) -> str:
    if isinstance(fact, facts.DeliveryStarted):
        return str(DeliveryId(fact.sink))
    return fact.effect if isinstance(fact, facts.ModelAsked | facts.HookAsked) else fact.call


def route_name(route: Route) -> str:
    return f"{route.provider}/{route.name}"


# --- the next step of a run: what `decide` returns ---


class Commit(Struct, frozen=True):
    facts: tuple[Fact, ...]


class Perform(Struct, frozen=True):
    """Start these effects, each after its intent is written."""

    effects: tuple[Effect, ...]
    questions: tuple[Question, ...] = ()
    waits_for: tuple[str, ...] = ()
    deadline: int | None = None


class Wait(Struct, frozen=True):
    """There is nothing to do before one of these changes."""

    inflight: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Calls that someone outside must act on: outcome not known, deferred by a rule, or a sub-agent that waits."""
    deadline: int | None = None
    """When to decide again at the latest, in milliseconds since 1970."""


class Finished(Struct, frozen=True):
    outcome: Outcome


NextStep: TypeAlias = Commit | Perform | Wait | Finished
