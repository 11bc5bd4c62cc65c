"""Runs sub-agents: a child is a run of its own, with its own journal, in its parent's world.

Rule 1  A child that has a journal goes on where that ends; one that is over is not run again. One that has none is
        admitted as any run is, and must be allowed to start by its own policy.
Rule 2  However a child fails, its parent's model reads it as the result of the call. Two things pass: a recording that
        does not fit, which is no failure of the child, and a journal that fails.
Rule 3  What a child used counts in its parent, once, when it is over.
Rule 4  A child that is parked gives its parent, which is parked too, nothing to record.
"""

from __future__ import annotations

from msgspec.structs import replace

from agentrun.canonical_json import fingerprint
from agentrun.core.effects import RunChild
from agentrun.core.facts import ChildSuspended, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.outcome import Outcome, Parked, Suspended
from agentrun.core.tool_results import child_failed, child_finished, child_refused, child_suspended
from agentrun.engine.admission import admit
from agentrun.engine.begin import begin
from agentrun.engine.driver import Log, drive_family, open_log
from agentrun.engine.request import child_request
from agentrun.engine.world import World, world_of_child
from agentrun.errors import AgentrunError, PolicyError, RequestError


async def run_child(parent: World, effect: RunChild) -> ToolFinished | ChildSuspended | None:
    world = world_of_child(parent, effect.run, effect.id, effect.name)
    log = open_log(world)
    try:
        _begin(world, effect, log)
    except (RequestError, PolicyError) as error:
        return child_refused(effect, error.code, error.message)
    except BaseException:
        log.abandon()  # it may have begun: its parent will never come back to it
        raise
    match await drive_family(world, effect.package, log):
        case Outcome() as outcome:
            return _finished(world, effect, outcome)
        case Suspended() as waits:
            return child_suspended(effect, waits)
        case Parked():
            return None


def _begin(world: World, effect: RunChild, log: Log) -> None:
    """Begin the child, or go on with it where its journal ends."""
    package = effect.package
    if log.state.phase == "fresh":
        begin(world, package, child_request(effect), admit(package, effect.message, effect.params), log=log)
    elif log.state.stopped is None:
        log.take_over(fingerprint(package))


def _finished(world: World, effect: RunChild, outcome: Outcome) -> ToolFinished:
    """The result of the call, with the whole answer kept as a blob if the model reads only a part of it."""
    fact, whole = child_finished(effect, outcome)
    try:
        return fact if whole is None else replace(fact, blob=world.blobs.put(whole))
    except AgentrunError as error:  # it is its answer that cannot be kept: no journal failed
        return child_failed(effect, outcome, Fault(error.code, error.message, error.fields, error.hint))
