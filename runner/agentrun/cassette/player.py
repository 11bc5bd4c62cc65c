"""Replays one cassette: a Sender that has nothing but the recording.

Rule 1  There is no network in here to fall back to. What is not on the tape is a miss.
Rule 2  Each interaction is played once. Equal requests are answered in recorded order.
Rule 3  What was not played is reported at the end: a tape that is only half used no longer fits its agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from agentrun.cassette.explain import nearest
from agentrun.cassette.match import Key, key_of
from agentrun.cassette.tape import Cassette, Interaction
from agentrun.errors import CassetteError
from agentrun.wire import HttpCall, HttpReply


class Player:
    def __init__(self, cassette: Cassette, move_to: Callable[[int], None]) -> None:
        """`move_to` is told the recorded end of each interaction that is played, in milliseconds."""
        self._interactions = cassette.interactions
        self._move_to = move_to
        self._unplayed: dict[Key, deque[int]] = {}
        for index, interaction in enumerate(cassette.interactions):
            self._unplayed.setdefault(key_of(interaction.call), deque()).append(index)

    async def send(
        self,
        call: HttpCall,
        *,
        gap: int,  # noqa: ARG002  # no real time passes
        time: int,  # noqa: ARG002  # the port asks for it
        heard: Callable[[bytes], None] | None = None,
    ) -> HttpReply:
        """The recorded reply, or `cassette.miss`. A streamed one is heard in one piece."""
        waiting = self._unplayed.get(key_of(call))
        if not waiting:
            raise self._miss(call)
        interaction = self._interactions[waiting.popleft()]
        if interaction.end is not None:
            self._move_to(interaction.end)
        reply = interaction.reply
        if heard is not None and reply.status == 200:
            heard(reply.body)
        return reply

    def unused(self) -> tuple[int, ...]:
        """The numbers, from 1, of the interactions that were not played."""
        return tuple(sorted(index + 1 for waiting in self._unplayed.values() for index in waiting))

    def _miss(self, call: HttpCall) -> CassetteError:
        number, difference = self._explain(call)
        return CassetteError(
            "cassette.miss",
            f"the cassette has no reply to this request: {difference}",
            hint="change it back, or replace the recording if the change is meant",
            fields={"nearest": number, "difference": difference},
        )

    def _explain(self, call: HttpCall) -> tuple[int | None, str]:
        if key_of(call) in self._unplayed:
            return None, "it was recorded, but not this many times"
        unplayed = [(number, self._interactions[number - 1]) for number in self.unused()]
        return nearest(call, unplayed) or (None, "every recorded interaction was played already")


def unused_error(numbers: tuple[int, ...], interactions: tuple[Interaction, ...]) -> CassetteError:
    """The error for interactions that nobody asked for."""
    first = interactions[numbers[0] - 1]
    return CassetteError(
        "cassette.unused",
        f"{len(numbers)} of {len(interactions)} recorded interactions were not played",
        hint="record the cassette again if the run is meant to be shorter",
        fields={"unused": list(numbers), "nearest": numbers[0], "line": first.line},
    )
