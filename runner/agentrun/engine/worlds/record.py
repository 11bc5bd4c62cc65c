"""Record all exchanges of a world to a cassette."""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.cassette.recorder import Recorder
from agentrun.engine.cassette_ports import RecordingExchanger, models_wrapper, other_ports_wrapper
from agentrun.engine.world import World, Wrapper


def recording_wrapper(recorder: Recorder, old_player: Player | None = None, until: int | None = None) -> Wrapper:
    """Records all ports. `old_player` and `until`: the interactions to reuse, as for `RecordingExchanger`."""
    exchanger = RecordingExchanger(recorder, old_player, until)

    def wrapper(world: World) -> World:
        return other_ports_wrapper(exchanger)(models_wrapper(exchanger)(world))

    return wrapper
