"""What a case lays over its recording: stubs, faults, and the clock.

    laid = LaidOver(case, player)
    replay_run(request, player, start=laid.start, step=laid.step, wrappers=laid.wrappers)      # every run of the case
    laid.unmet()                                                                # the faults that never happened

Rule 1  It stands before the tape, in a replay and while a recording is made: none of it gets onto one.
Rule 2  One for a case, also for a conversation: counting goes on from run to run.
Rule 3  The clock is set for replays alone. A recording is made in real time.
Rule 4  From the first fault on that a model may read about, recorded replies are played in their order to whatever it
        is asked: the recording has no others. Who wants to know what it would say records the case with its faults.
Rule 5  What a fault takes of time is taken once: a recorded moment that is over by then is not waited for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import cache

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.cassette.loose import FaultedPlayer
from agentrun.cassette.player import Player
from agentrun.compiler.quantities import milliseconds
from agentrun.engine.models import WireProvider
from agentrun.engine.ports import Executor, Provider
from agentrun.engine.toolbox import Cuts
from agentrun.engine.world import World, Wrapper
from agentrun.spec.v1.cases import Case, FaultAt
from agentrun.testing.suite.overlay.layer import Layer
from agentrun.testing.suite.overlay.models import LaidModels
from agentrun.testing.suite.overlay.places import Faults, Member, Place
from agentrun.testing.suite.overlay.ports import LaidApprover, LaidCuts, LaidSink, LaidTool, laid_hook
from agentrun.testing.suite.overlay.stubs import Stubs


class LaidOver:
    """What is laid over the runs of one case."""

    def __init__(
        self, case: Case, player: Player | None = None, more: Iterable[FaultAt] = (), *, watched: bool = False
    ) -> None:
        """`player`: plays the recording; None: it is being made. `more`: further faults, which come before its own.
        `watched`: `places` is wanted, also of a case that lays nothing over its recording."""
        self._by = f"case {case.name}"
        self._player = player
        self._stubs = Stubs(case.stubs)
        self._faults = Faults([*more, *case.faults])
        self.carried_out: Counter[tuple[str, str]] = Counter()
        """How often each call reached its tool: by run and call. It is no journal's word."""
        self._is_laid = bool(case.stubs or case.faults or more or watched)
        clock = case.clock
        self.start = None if clock.start is UNSET else _moment(clock.start)
        """When the clock of a replay begins, in milliseconds since 1970. None: when the recording was made."""
        self.step = None if clock.step is UNSET else milliseconds(clock.step)
        """How long each recorded exchange takes, in milliseconds. None: as long as it took."""
        self.wrappers: tuple[Wrapper, ...] = (self.wrap,) if self._is_laid else ()
        if isinstance(player, FaultedPlayer):
            player.is_faulted = self._faults.is_read_of

    def unmet(self) -> tuple[str, ...]:
        """The places of faults that never happened."""
        return self._faults.unmet()

    def has_struck(self, fault: FaultAt) -> bool:
        """Whether one of the further faults happened."""
        return self._faults.has_struck(fault.inject)

    @property
    def places(self) -> tuple[Place, ...]:
        """Where somebody was asked, in order. Nothing if nothing is laid over and nobody watches."""
        return tuple(self._faults.places)

    def wrap(self, world: World) -> World:
        """The world of one run with all of it before the ports."""
        member = Member(world.path, world.above)
        layer = Layer(
            member, self._faults, self._stubs, world.clock, self._player, self._by, world.run, self.carried_out
        )
        models = LaidModels(layer)
        return replace(
            world,
            providers={name: _laid_model(each, models) for name, each in world.providers.items()},
            executors={name: _laid_tool(layer, each) for name, each in world.executors.items()},
            hooks={name: laid_hook(layer, name, each) for name, each in world.hooks.items()},
            sinks={name: LaidSink(layer, each) for name, each in world.sinks.items()},
            approver=None if world.approver is None else LaidApprover(layer, world.approver),
        )


def _laid_model(provider: Provider, models: LaidModels) -> Provider:
    return provider.over(models.over, models.read) if isinstance(provider, WireProvider) else provider


def _laid_tool(layer: Layer, executor: Executor) -> Executor:
    return LaidCuts(layer, executor) if isinstance(executor, Cuts) else LaidTool(layer, executor)


@cache
def _moment(text: str) -> int:
    """Milliseconds since 1970. That it is a date was checked with the file."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
