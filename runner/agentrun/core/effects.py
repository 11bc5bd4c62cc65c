"""What `decide` asks the world to do.

Rule 1  Effects are imperative, frozen and closed; each holds all that is needed to perform it.
Rule 2  Ids are derived from the place in the run, so a replay and a resume give the same ones.
Rule 3  Before an effect is performed its intent is journaled: `intent` is that fact.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from agentrun.core.facts import Fact, ModelAsked
from agentrun.core.messages import Transcript
from agentrun.core.package import Model, Route


class ModelRequest(Struct, frozen=True):
    """What a model is asked, in no provider's words."""

    route: Route
    settings: Model
    """Temperature and the like; its `routes` are not for this request."""
    instructions: str
    messages: Transcript
    output: dict[str, Any] | None
    """The schema that the answer is to keep."""


class AskModel(Struct, frozen=True):
    """Send one request to a model."""

    id: str
    turn: int
    attempt: int
    reserved: int
    """Tokens that it may take."""
    request: ModelRequest


Effect: TypeAlias = AskModel


def intent(effect: Effect) -> Fact:
    """The fact that says what is about to be done."""
    match effect:
        case AskModel():
            route = effect.request.route
            name = f"{route.provider}/{route.name}"
            return ModelAsked(effect.id, effect.turn, effect.attempt, name, effect.reserved)
        case _:
            assert_never(effect)
