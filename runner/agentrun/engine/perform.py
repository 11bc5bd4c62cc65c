"""Performs effects: the boundary to the world. It gives a fact, whatever happens.

Rule 1  Nothing is raised here but what ends the host itself, and the failure of a child's journal.
Rule 2  An error of ours keeps its code; any other is `internal`, with the name of its type and not a word more.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canonical_json import fingerprint
from agentrun.core.effects import AskHook, AskModel, Deliver, Effect, RunChild, RunTool
from agentrun.core.facts import ChildSuspended, DeliveryFinished, Fact, HookFailure, ModelFailed, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.hooks import make_hook_answered as hook_answered
from agentrun.core.outcome import Outcome, Parked, Suspended
from agentrun.core.package import Package
from agentrun.core.tool_results import child_failed, child_finished, child_refused, child_suspended, fault_parts
from agentrun.engine.approvals import ask_approver
from agentrun.engine.begin import admit, begin
from agentrun.engine.driver import RunLog, drive_with_children, open_run_log
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout
from agentrun.engine.hooks import ask_hook
from agentrun.engine.models import ModelCaller
from agentrun.engine.ports import Crew, SinkPort
from agentrun.engine.request import child_request
from agentrun.engine.tool_runner import CallProgress, run_tool
from agentrun.engine.world import World, find_sink, world_of_child
from agentrun.errors import AgentrunError, CassetteError, PolicyError, RequestError
from agentrun.tools.progress import listen_to_progress


class Performer:
    """Performs the effects of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._models = ModelCaller(world, world.run)

    async def perform(self, effect: Effect) -> Fact | None:
        """What came of it. None: it is a child that was parked."""
        try:
            return await self._perform(effect)
        except AgentrunError as error:
            if _is_passed_on(effect, error):
                raise
            return make_failure_fact(effect, Fault(error.code, error.message, error.fields, error.hint))
        except Exception as error:  # noqa: BLE001  # our own bug: the run still ends with its terminal record
            kind = type(error).__name__
            return make_failure_fact(effect, Fault("internal", f"{kind} while performing {effect.id}", {"error": kind}))

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
                return await deliver_to_sink(self._world, effect)
            case _:
                assert_never(effect)

    async def _run_tool(self, effect: RunTool) -> Fact:
        heard = CallProgress(self._world, self._world.run, effect)
        try:
            with listen_to_progress(heard):
                return await run_tool(self._world, effect)
        finally:
            heard.close()


def _is_passed_on(effect: Effect, error: AgentrunError) -> bool:
    """Whether an error is none of the effect's own: a child's journal, or a recording that does not fit."""
    if isinstance(effect, AskHook | Deliver):
        return isinstance(error, CassetteError)
    return isinstance(effect, RunChild) and error.code.startswith(("journal.", "storage."))


def make_failure_fact(effect: Effect, fault: Fault) -> Fact:
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


def make_crew(world: World, package: Package) -> Crew:
    """The crew of a run: it performs the run's effects, and asks whom there is to ask."""
    consult = None
    if world.approver is not None:
        consult = partial(ask_approver, world.clock, world.approver, package, world.programs)
    return world.crews.make(world.run, Performer(world).perform, consult)


# --- gives answers to sinks -----------------------------------------------------------------------------------


async def deliver_to_sink(world: World, effect: Deliver) -> DeliveryFinished:
    sink = find_sink(world, effect.name, effect.sink)
    match await call_with_timeout(world.clock, effect.sink.timeout, lambda: call_sink(sink, effect)):
        case TimedOut():
            fault = _delivery_fault(effect, f"took longer than {effect.sink.timeout} ms", reason="timeout")
            return DeliveryFinished(effect.name, fault)
        case RaisedException(error):
            raise error
        case said:
            return DeliveryFinished(effect.name, said)


async def call_sink(sink: SinkPort, effect: Deliver) -> Fault | None:
    """Why a sink does not have the answer. None: it has it."""
    copied = effect if effect.output is UNSET else replace(effect, output=deepcopy(effect.output))
    said: object = await call_guarded(lambda: sink.deliver(copied))
    match said:
        case None:
            return None
        case RaisedException(CassetteError() as error):
            raise error
        case RaisedException() as raised:
            return _delivery_fault(effect, f"raised {raised.message}", reason="exception", error=raised.kind)
        case Fault("delivery.failed") as fault:
            return fault
        case Fault() as fault:
            return _delivery_fault(effect, f"refused: {fault.message}", reason=fault.code)
        case _:
            return _delivery_fault(effect, "gave something that is no answer", reason="answer")


def _delivery_fault(effect: Deliver, what: str, **fields: str) -> Fault:
    return Fault("delivery.failed", f"the sink {effect.name} {what}", {"sink": effect.name, **fields})


# --- runs sub-agents: a child is a run of its own, with its own journal, in its parent's world ----------------


async def run_child(parent: World, effect: RunChild) -> ToolFinished | ChildSuspended | None:
    world = world_of_child(parent, effect.run, effect.id, effect.name)
    log = open_run_log(world)
    try:
        _begin_child(world, effect, log)
    except (RequestError, PolicyError) as error:
        return child_refused(effect, error.code, error.message)
    except BaseException:
        log.abandon()  # it may have begun: its parent will never come back to it
        raise
    match await drive_with_children(world, effect.package, log):
        case Outcome() as outcome:
            return _child_result(world, effect, outcome)
        case Suspended() as waits:
            return child_suspended(effect, waits)
        case Parked():
            return None


def _begin_child(world: World, effect: RunChild, log: RunLog) -> None:
    """Begin the child, or go on with it where its journal ends."""
    package = effect.package
    if log.state.phase == "fresh":
        begin(world, package, child_request(effect), admit(package, effect.message, effect.params), log=log)
    elif log.state.stopped is None:
        log.take_over(fingerprint(package))


def _child_result(world: World, effect: RunChild, outcome: Outcome) -> ToolFinished:
    """The result of the call, with the whole answer kept as a blob if the model reads only a part of it."""
    fact, whole = child_finished(effect, outcome)
    try:
        return fact if whole is None else replace(fact, blob=world.blobs.put(whole))
    except AgentrunError as error:  # it is its answer that cannot be kept: no journal failed
        return child_failed(effect, outcome, Fault(error.code, error.message, error.fields, error.hint))
