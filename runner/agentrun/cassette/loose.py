"""Plays a cassette for a run that goes another way than the recorded one.

Rule 1  A request to a model that is not on the tape gets the recorded reply that is next in line: of the same run and
        the same endpoint. So do hooks and sinks. Anything else that is not on the tape is a miss, as ever.
Rule 2  There is no network in here either.
Rule 3  Where a case lays faults over its recording, that holds from the first fault on that a model may read about, and
        is said: what a model would have answered nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable

from agentrun.cassette.player import Player
from agentrun.cassette.tape import Interaction
from agentrun.wire import HttpCall

BESIDE = ("hook://", "sink://")
"""Those who stand beside a run: they are asked in other words when it goes another way."""


class LoosePlayer(Player):
    """For trying what an agent does when something goes wrong. Never for judging whether a recording fits."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        return super().find(call, path) or (self.next_to(call.url, path) if _may_stray(call) else None)


class FaultedPlayer(Player):
    """For a case with faults: strict until one has struck that a model may read about."""

    is_faulted: Callable[[], bool] = staticmethod(lambda: False)
    """Whether one has."""
    has_strayed = False
    """Whether a reply was played to a request that is not the recorded one."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        found = super().find(call, path)
        if found is None and self.is_faulted() and _may_stray(call):
            found = self.next_to(call.url, path)
            self.has_strayed = self.has_strayed or found is not None
        return found


def _may_stray(call: HttpCall) -> bool:
    """Whether it is a model's, a hook's or a sink's."""
    return call.reach is None and (call.method != "CALL" or call.url.startswith(BESIDE))
