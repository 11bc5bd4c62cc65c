"""Puts a cassette before all ports of a world: what the run asks for happens, and is recorded."""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.engine.taped import Recording, tape_models, tape_others
from agentrun.engine.world import World, Wrapper


def record_on(recorder: Recorder, kept: Player | None = None, until: int | None = None) -> Wrapper:
    """Records on a recorder. What `kept` has is played instead; `until`: only the first so many interactions, which
    must fit."""
    tape = Recording(recorder, kept, until)

    def wrapper(world: World) -> World:
        return tape_others(tape)(tape_models(tape)(world))

    return wrapper
