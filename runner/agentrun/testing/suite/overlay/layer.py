"""What is laid over one run of a family, and what stands behind it."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from agentrun.cassette.player import Player
from agentrun.engine.clock import StepClock
from agentrun.engine.ports import Clock
from agentrun.engine.taped import FOREVER
from agentrun.testing.suite.overlay.places import Faults, Member
from agentrun.testing.suite.overlay.stubs import Stubs
from agentrun.wire import HttpCall


class Layer(Struct, frozen=True):
    member: Member
    faults: Faults
    stubs: Stubs
    clock: Clock
    player: Player | None
    """Plays the recording. None: there is none, or it is being made."""
    by: str
    """Who answers in place of a person."""
    run: str
    """The run's id."""
    carried_out: Counter[tuple[str, str]]
    """How often each call reached its tool, or what stands before it: by run and call."""

    @property
    def in_real_time(self) -> bool:
        return not isinstance(self.clock, StepClock)

    def use_up(self, call: HttpCall) -> None:
        """What the recording has of a request counts as played. It takes no time."""
        if self.player is not None:
            self.player.find(call, self.member.path)

    async def wait(self) -> None:
        """Until whoever keeps the time says that it is over."""
        await self.clock.sleep_until(FOREVER)
