"""The world of a recording: a wrapper that puts a recorder before the ports of another world, usually a live one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.player import Player
from agentrun.cassette.recorder import ChunkCallback, Recorder
from agentrun.core.facts import ApprovalAnswer
from agentrun.engine.cassette_ports import LiveCall, models_wrapper, other_ports_wrapper, replay_reply, wait_forever
from agentrun.engine.world import World, Wrapper
from agentrun.errors import AgentrunError, StorageError
from agentrun.wire import HttpCall, HttpReply


def recording_wrapper(recorder: Recorder, old_player: Player | None = None, until: int | None = None) -> Wrapper:
    """Records the exchanges of a world. `old_player`, `until`: as for a `RecordingExchanger`."""

    def wrapper(world: World) -> World:
        exchanger = RecordingExchanger(recorder, old_player, until, park=partial(world.crews.park, 0))
        recorded = replace(world, is_recorded=True)
        return other_ports_wrapper(exchanger)(models_wrapper(exchanger)(recorded))

    return wrapper


class RecordingExchanger:
    """Performs and records exchanges. Interactions of an existing cassette can be reused instead."""

    def __init__(
        self,
        recorder: Recorder,
        old_player: Player | None = None,
        until: int | None = None,
        park: Callable[[], None] = lambda: None,
    ) -> None:
        """The first `until` interactions are reused and must match. None: every interaction that matches is reused.
        `park`: called if an interaction cannot be appended to the log."""
        self._recorder = recorder
        self._old_player = old_player
        self._until = until
        self._park = park

    async def exchange(
        self, call: HttpCall, path: str, live: LiveCall, heard: ChunkCallback | None = None
    ) -> HttpReply:
        found = self._find_reusable(call, path)
        if found is not None:
            number, reused = found
            await self._append(lambda: self._recorder.reuse(reused, number, call.effect))
            if reused.stopped:
                await wait_forever()
            return replay_reply(reused, heard)
        take = self._recorder.begin(call, path)
        try:
            reply = await live(take.record_chunks(heard))
        except AgentrunError as error:
            failure = error
            await self._append(lambda: take.fail(failure.code, failure.message, failure.fields))
            raise
        except BaseException:
            with suppress(StorageError):  # the recorder knows
                take.stop()
            raise
        await self._append(lambda: take.end(reply))
        return reply

    async def _append(self, append: Callable[[], None]) -> None:
        """If the log cannot be written, the run is parked as after a crash: without the fact of this exchange."""
        try:
            append()
        except StorageError:
            self._park()
            await wait_forever()

    def has_repeat(self, call: HttpCall, path: str) -> bool:
        """Only among the interactions that must match."""
        is_open = self._until is not None and self._recorder.count < self._until
        return is_open and self._old_player is not None and self._old_player.has_repeat(call, path)

    def skip_next(self, url: str, path: str) -> None:
        """Nothing to do: only requested interactions are reused."""

    def note_overruled(self, call: HttpCall, path: str, new_answer: tuple[ApprovalAnswer, str]) -> None:
        """Nothing to do: see `skip_overruled_answers`."""

    def _find_reusable(self, call: HttpCall, path: str) -> tuple[int, Interaction] | None:
        if self._old_player is None or (self._until is not None and self._recorder.count >= self._until):
            return None
        found = self._old_player.find(call, path)
        if self._until is None:
            return found if found is not None and not found[1].stopped else None
        if found is None:
            raise self._old_player.miss(call, path)
        return found
