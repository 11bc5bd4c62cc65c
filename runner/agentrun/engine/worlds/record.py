"""The world of a recording: a wrapper that puts a recorder before the ports of another world, usually a live one."""

from __future__ import annotations

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import ChunkCallback, Recorder
from agentrun.core.facts import ApprovalAnswer
from agentrun.engine.cassette_ports import LiveCall, models_wrapper, other_ports_wrapper, replay_reply, wait_forever
from agentrun.engine.world import World, Wrapper
from agentrun.errors import AgentrunError
from agentrun.wire import HttpCall, HttpReply


def recording_wrapper(recorder: Recorder, old_player: Player | None = None, until: int | None = None) -> Wrapper:
    """Records the exchanges of a world. `old_player`, `until`: as for a `RecordingExchanger`."""
    exchanger = RecordingExchanger(recorder, old_player, until)

    def wrapper(world: World) -> World:
        return other_ports_wrapper(exchanger)(models_wrapper(exchanger)(world))

    return wrapper


class RecordingExchanger:
    """Performs and records exchanges. Interactions of an existing cassette can be reused instead."""

    def __init__(self, recorder: Recorder, old_player: Player | None = None, until: int | None = None) -> None:
        """The first `until` interactions are reused and must match. None: every interaction that matches is reused."""
        self._recorder = recorder
        self._old_player = old_player
        self._until = until

    async def exchange(
        self, call: HttpCall, path: str, live: LiveCall, heard: ChunkCallback | None = None
    ) -> HttpReply:
        reused = self._find_reusable(call, path)
        if reused is not None:
            self._recorder.reuse(reused)
            if reused.stopped:
                await wait_forever()
            return replay_reply(reused, heard)
        take = self._recorder.begin(call, path)
        try:
            reply = await live(take.record_chunks(heard))
        except AgentrunError as error:
            take.fail(error.code, error.message, error.fields)
            raise
        except BaseException:
            take.stop()
            raise
        take.end(reply)
        return reply

    def has_repeat(self, call: HttpCall, path: str) -> bool:
        """Only among the interactions that must match."""
        is_open = self._until is not None and self._recorder.count < self._until
        return is_open and self._old_player is not None and self._old_player.has_repeat(call, path)

    def skip_next(self, url: str, path: str) -> None:
        """Nothing to do: only requested interactions are reused."""

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """Nothing to do: see `skip_overruled_answers`."""

    def _find_reusable(self, call: HttpCall, path: str) -> Interaction | None:
        if self._old_player is None or (self._until is not None and self._recorder.count >= self._until):
            return None
        if self._until is not None:
            return self._old_player.play(call, path)
        found = self._old_player.find(call, path)
        return found[1] if found is not None and not found[1].stopped else None
