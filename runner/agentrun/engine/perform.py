"""Perform effects: the boundary to the world. The result is a fact, even after a failure.

Only these errors are raised: those that end the host, a failed journal of a sub-agent, and a cassette that does not
match. A sub-agent is a run of its own, with its own journal, in the world of its parent.
"""

from __future__ import annotations

from contextlib import closing
from copy import deepcopy
from functools import partial
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canonical_json import fingerprint
from agentrun.core.effects import AskHook, AskModel, Deliver, Effect, RunChild, RunTool
from agentrun.core.facts import ChildSuspended, DeliveryFinished, Fact, HookFailure, ModelFailed, ToolFinished
from agentrun.core.fault import Fault, fault_of
from agentrun.core.hook_answers import make_hook_answered
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.tool_results import child_failed, child_finished, child_refused, child_suspended, fault_parts
from agentrun.engine.approvals import ask_approver
from agentrun.engine.begin import begin, check_start
from agentrun.engine.driver import drive_with_children, open_run_log
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout
from agentrun.engine.hooks import ask_hook
from agentrun.engine.models import ModelCaller
from agentrun.engine.ports import Crew, SinkPort
from agentrun.engine.request import child_request
from agentrun.engine.tool_runner import CallProgress, run_tool
from agentrun.engine.world import World, find_sink, world_of_child
from agentrun.errors import AgentrunError, CassetteError, HostError, PolicyError, RequestError
from agentrun.tools.progress import listen_to_progress


class Performer:
    def __init__(self, world: World) -> None:
        self._world = world
        self._models = ModelCaller(world, world.run)

    async def perform(self, effect: Effect) -> Fact | None:
        try:
            return await self._perform(effect)
        except AgentrunError as error:
            if _is_passed_on(effect, error):
                raise
            return make_failure_fact(effect, fault_of(error))
        except Exception as error:  # noqa: BLE001  # a bug in agentrun: the run still ends with a terminal record
            kind = type(error).__name__
            return make_failure_fact(effect, Fault("internal", f"{kind} while performing {effect.id}", {"error": kind}))

    async def _perform(self, effect: Effect) -> Fact | None:
        match effect:
            case AskModel():
                return await self._models.ask(effect)
            case RunTool():
                with closing(CallProgress(self._world, effect)) as progress, listen_to_progress(progress):
                    return await run_tool(self._world, effect)
            case RunChild():
                return await run_child(self._world, effect)
            case AskHook():
                return await ask_hook(self._world, effect)
            case Deliver():
                return await deliver_to_sink(self._world, effect)
            case _:
                assert_never(effect)


def _is_passed_on(effect: Effect, error: AgentrunError) -> bool:
    if isinstance(effect, AskHook | Deliver):
        return isinstance(error, CassetteError)
    return isinstance(effect, RunChild) and error.code.startswith(("journal.", "storage."))


def make_failure_fact(effect: Effect, fault: Fault) -> Fact:
    match effect:
        case AskModel():
            return ModelFailed(effect.id, effect.turn, effect.attempt, fault)
        case RunTool() | RunChild():
            return ToolFinished(effect.id, fault_parts(fault), fault)
        case AskHook():
            return make_hook_answered(effect.id, effect.hook, effect.subject, HookFailure(fault))
        case Deliver():
            return DeliveryFinished(effect.name, fault)
        case _:
            assert_never(effect)


def make_crew(world: World, package: Package) -> Crew:
    consult = None
    if world.approver is not None:
        consult = partial(ask_approver, world.clock, world.approver, package, world.programs, suspends=world.suspends)
    return world.crews.make(world.run, Performer(world).perform, consult)


async def deliver_to_sink(world: World, effect: Deliver) -> DeliveryFinished:
    try:
        sink = find_sink(world, effect.name, effect.sink)
    except HostError:  # it is optional: the others must exist before the run starts
        return DeliveryFinished(effect.name, _delivery_fault(effect, "does not exist", reason="missing"))
    fault = await call_with_timeout(world.clock, effect.sink.timeout, lambda: call_sink(sink, effect))
    if isinstance(fault, RaisedException):
        raise fault.error
    if isinstance(fault, TimedOut):
        fault = _delivery_fault(effect, f"took longer than {effect.sink.timeout} ms", reason="timeout")
    return DeliveryFinished(effect.name, fault)


async def call_sink(sink: SinkPort, effect: Deliver) -> Fault | None:
    copied = effect if effect.output is UNSET else replace(effect, output=deepcopy(effect.output))
    result: object = await call_guarded(lambda: sink.deliver(copied))
    match result:
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
            return _delivery_fault(effect, "returned neither None nor a Fault", reason="answer")


def _delivery_fault(effect: Deliver, what: str, **fields: str) -> Fault:
    return Fault("delivery.failed", f"the sink {effect.name} {what}", {"sink": effect.name, **fields})


async def run_child(parent: World, effect: RunChild) -> ToolFinished | ChildSuspended | None:
    world = world_of_child(parent, effect.run, effect.id, effect.name)
    log, package = open_run_log(world), effect.package
    try:
        if log.state.phase == "fresh":
            begin(world, check_start(world, package, child_request(effect)), log=log)
        elif log.state.stopped is None:
            log.take_over(fingerprint(package))
    except (RequestError, PolicyError) as error:
        return child_refused(effect, error.code, error.message)
    except BaseException:
        log.abandon()  # it may have started, and its parent will not resume it
        raise
    outcome = await drive_with_children(world, package, log)
    match outcome.status:
        case "completed" | "failed":
            return _child_result(world, effect, outcome)
        case "suspended":
            return child_suspended(effect, outcome)
        case "parked":
            return None
        case _:
            assert_never(outcome.status)


def _child_result(world: World, effect: RunChild, outcome: Outcome) -> ToolFinished:
    """The result of the call. If the model gets only a part of the answer, the full answer is stored as a blob."""
    fact, whole = child_finished(effect, outcome)
    try:
        return fact if whole is None else replace(fact, blob=world.blobs.put(whole))
    except AgentrunError as error:  # the answer cannot be stored, but no journal failed
        return child_failed(effect, outcome, fault_of(error))
