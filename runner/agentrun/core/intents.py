"""From an intent back to its effect: what a journal says was about to be done, found again by deciding once more.

An intent does not hold all that its effect needs (arguments, messages, packages): the state before it does.
"""

from __future__ import annotations

from msgspec.structs import replace

from agentrun.core.decide import STEPS
from agentrun.core.effects import Effect, Intent, RunChild, intent
from agentrun.core.facts import kind_of
from agentrun.core.facts_calls import ChildStarted
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.core.steps import Perform
from agentrun.errors import StorageError


def perform_of(package: Package, state: State, fact: Intent) -> Effect:
    """The effect that an intent stands for. `state` is the state before the intent was recorded.

    Raises `recovery.failed` if the package would not do exactly this in that state.
    """
    # Neither the deadline nor a cancellation is checked again: the intent was written, so both were in order.
    step = STEPS[state.phase](package, state)
    effects = [_as_written(effect, fact) for effect in step.effects] if isinstance(step, Perform) else []
    found = [effect for effect in effects if intent(effect) == fact]
    if len(found) != 1:
        message = f"record {state.seq + 1} ({kind_of(fact)}) stands for no effect of this package"
        raise StorageError("recovery.failed", message, fields={"seq": state.seq + 1})
    return found[0]


def _as_written(effect: Effect, fact: Intent) -> Effect:
    """The effect with the share that was written: what is left for a child also depends on the clock."""
    if not isinstance(effect, RunChild) or not isinstance(fact, ChildStarted) or effect.id != fact.call:
        return effect
    return replace(effect, parent=replace(effect.parent, share=fact.share))
