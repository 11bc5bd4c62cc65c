"""Runs sub-agents: a child is a run of its own, with its own journal, in its parent's world.

Rule 1  A child that has a journal goes on where that ends; one that is over is not run again. One that has none is
        admitted as any run is, and must be allowed to start by its own policy.
Rule 2  However a child fails, its parent's model reads it as the result of the call. Two things pass: a recording that
        does not fit, which is no failure of the child, and a journal that fails.
Rule 3  What a child used counts in its parent, once, when it is over.
Rule 4  No child outlives its parent: one that still waits, or was lost, is cancelled when its parent is over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from msgspec.structs import replace

from agentrun.canon import fingerprint
from agentrun.core.child_runs import child_failed, child_finished, child_refused, child_suspended
from agentrun.core.effects import RunChild
from agentrun.core.facts import CancelRequested
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import ChildStarted, ChildSuspended, ToolFinished
from agentrun.core.outcome import Outcome, Suspended
from agentrun.core.package import Package
from agentrun.engine.admission import admit
from agentrun.engine.begin import begin
from agentrun.engine.driver import Log, drive
from agentrun.engine.ports import Crew
from agentrun.engine.request import child_request
from agentrun.engine.world import World, open_log, world_of_child
from agentrun.errors import AgentrunError, PolicyError, RequestError

CrewOf: TypeAlias = Callable[[World, Package], Crew]
"""Makes the crew that performs the effects of a run."""


async def run_child(parent: World, effect: RunChild, crew_of: CrewOf) -> ToolFinished | ChildSuspended:
    world = world_of_child(parent, effect.run, effect.id, effect.name)
    log = open_log(world)
    try:
        _begin(world, effect, log)
    except (RequestError, PolicyError) as error:
        return child_refused(effect, error.code, error.message)
    except BaseException:
        log.abandon()  # it may have begun: its parent will never come back to it
        raise
    ended = await drive_all(world, effect.package, log, crew_of)
    if isinstance(ended, Suspended):
        return child_suspended(effect, ended)
    return _finished(world, effect, ended)


async def drive_all(world: World, package: Package, log: Log, crew_of: CrewOf) -> Outcome | Suspended:
    """Drive a run, and when it is over end the children that nobody works on: lost ones, and those that wait."""
    ended = await drive(package, log, crew_of(world, package))
    if isinstance(ended, Outcome) and package.agents:
        with suppress(Exception):  # the run is over, whatever becomes of this
            children = {fact.run: fact for fact in log.facts() if isinstance(fact, ChildStarted)}
            for run, fact in children.items():
                await _end(world_of_child(world, run, fact.call, fact.tool), package.agents[fact.tool], crew_of)
    return ended


async def _end(world: World, package: Package, crew_of: CrewOf) -> None:
    log = open_log(world)
    if log.state.phase not in ("fresh", "stopped"):
        log.take_over(fingerprint(package))
        log.welcome(CancelRequested("parent"))
        await drive_all(world, package, log, crew_of)


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
