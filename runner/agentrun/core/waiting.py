"""The phases in which there is nothing to decide: the run waits, or it is over."""

from __future__ import annotations

from agentrun.core.outcome import outcome_of
from agentrun.core.package import Package
from agentrun.core.state import State, under_way
from agentrun.core.steps import Finished, Next, Wait
from agentrun.core.think import think


def wait_for_start(_: Package, __: State) -> Next:
    """Nothing happened yet."""
    return Wait()


def wait_for_reply(_: Package, state: State) -> Next:
    """A request is under way."""
    return Wait(inflight=under_way(state))


def wait_for_retry(package: Package, state: State) -> Next:
    """Ask again, when it is time."""
    return think(package, state) if state.now >= state.requests.until else Wait(deadline=state.requests.until)


def give_outcome(_: Package, state: State) -> Next:
    """It is over."""
    return Finished(outcome_of(state))
