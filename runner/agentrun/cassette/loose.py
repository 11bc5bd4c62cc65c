"""Plays a cassette for a run that goes another way than the recorded one.

Rule 1  A request to a model that is not on the tape gets the recorded reply that is next in line: of the same run and
        the same endpoint. So do hooks and sinks. Anything else that is not on the tape is a miss, as ever.
Rule 2  There is no network in here either.
"""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.cassette.tape import Interaction
from agentrun.wire import HttpCall

BESIDE = ("hook://", "sink://")
"""Those who stand beside a run: they are asked in other words when it goes another way."""


class LoosePlayer(Player):
    """For trying what an agent does when something goes wrong. Never for judging whether a recording fits."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        return super().find(call, path) or (self._next(call, path) if call.reach is None else None)

    def _next(self, call: HttpCall, path: str) -> tuple[int, Interaction] | None:
        if call.method == "CALL" and not call.url.startswith(BESIDE):
            return None
        for index, each in enumerate(self._interactions):
            if index not in self._played and (each.path, each.call.url) == (path, call.url):
                self._played.add(index)
                return index + 1, each
        return None
