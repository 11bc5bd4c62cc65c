"""Performs effects: the boundary to the world. It gives a fact, whatever happens.

Rule 1  Nothing is raised here but what ends the host itself, and the failure of a child's journal.
Rule 2  An error of ours keeps its code; any other is `internal`, with the name of its type and not a word more.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from agentrun.core.effects import AskHook, AskModel, Deliver, Effect, RunChild, RunTool
from agentrun.core.facts import DeliveryFinished, Fact, HookFailure, ModelFailed, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.hooks import make_hook_answered as hook_answered
from agentrun.core.package import Package
from agentrun.core.tool_results import fault_parts
from agentrun.engine.approvals import answered
from agentrun.engine.children import run_child
from agentrun.engine.hooks import ask_hook
from agentrun.engine.models import Models
from agentrun.engine.ports import Crew
from agentrun.engine.progress import Heard
from agentrun.engine.sinks import deliver
from agentrun.engine.toolbox import run_tool
from agentrun.engine.world import World
from agentrun.errors import AgentrunError, CassetteError
from agentrun.tools.progress import listen_to_progress


class Performer:
    """Performs the effects of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._models = Models(world, world.run)

    async def perform(self, effect: Effect) -> Fact | None:
        """What came of it. None: it is a child that was parked."""
        try:
            return await self._perform(effect)
        except AgentrunError as error:
            if _passes(effect, error):
                raise
            return failure(effect, Fault(error.code, error.message, error.fields, error.hint))
        except Exception as error:  # noqa: BLE001  # our own bug: the run still ends with its terminal record
            kind = type(error).__name__
            return failure(effect, Fault("internal", f"{kind} while performing {effect.id}", {"error": kind}))

    async def _perform(self, effect: Effect) -> Fact | None:
        match effect:
            case AskModel():
                return await self._models.ask(effect)
            case RunTool():
                return await self._run_tool(effect)
            case RunChild():
                return await run_child(self._world, effect)
            case AskHook():
                return await ask_hook(self._world, self._world.run, effect)
            case Deliver():
                return await deliver(self._world, effect)
            case _:
                assert_never(effect)

    async def _run_tool(self, effect: RunTool) -> Fact:
        heard = Heard(self._world, self._world.run, effect)
        try:
            with listen_to_progress(heard):
                return await run_tool(self._world, effect)
        finally:
            heard.close()


def _passes(effect: Effect, error: AgentrunError) -> bool:
    """Whether an error is none of the effect's own: a child's journal, or a recording that does not fit."""
    if isinstance(effect, AskHook | Deliver):
        return isinstance(error, CassetteError)
    return isinstance(effect, RunChild) and error.code.startswith(("journal.", "storage."))


def failure(effect: Effect, fault: Fault) -> Fact:
    """The fact of an effect that failed before or beside its own work."""
    match effect:
        case AskModel():
            return ModelFailed(effect.id, effect.turn, effect.attempt, fault)
        case RunTool() | RunChild():
            return ToolFinished(effect.id, fault_parts(fault), fault)
        case AskHook():
            return hook_answered(effect.id, effect.hook, effect.subject, HookFailure(fault))
        case Deliver():
            return DeliveryFinished(effect.name, fault)
        case _:
            assert_never(effect)


def crew_of(world: World, package: Package) -> Crew:
    """The crew of a run: it performs the run's effects, and asks whom there is to ask."""
    consult = None
    if world.approver is not None:
        consult = partial(answered, world.clock, world.approver, package, world.programs)
    return world.crews.make(world.run, Performer(world).perform, consult)
