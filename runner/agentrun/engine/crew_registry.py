"""The active crews of a run and its sub-agents, by run id."""

from __future__ import annotations

from collections import defaultdict

from agentrun.core.facts import Fact
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import MAX_PARALLEL_EFFECTS, CompletionOrder, StepCrew
from agentrun.engine.ports import AskPerson, Clock, Crew, PerformEffect


class CrewRegistry:
    def __init__(
        self, clock: Clock, width: int = MAX_PARALLEL_EFFECTS, order: CompletionOrder = lambda ready: 0
    ) -> None:
        self._clock = clock
        self._width = width
        self._order = order
        self._crews: dict[str, Crew] = {}
        self._waiting: dict[str, list[Fact]] = defaultdict(list)
        self._parks_at: int | None = None

    def __contains__(self, run: object) -> bool:
        return run in self._crews

    def make(self, run: str, work: PerformEffect, consult: AskPerson | None) -> Crew:
        crew: Crew
        if isinstance(self._clock, StepClock):
            crew = StepCrew(work, width=self._width, clock=self._clock, consult=consult, order=self._order)
        else:
            from agentrun.engine.event_loop import TaskCrew  # late: a step clock needs no event loop

            crew = TaskCrew(work, width=self._width, clock=self._clock, consult=consult)
        for fact in self._waiting.pop(run, ()):
            crew.post(fact)
        self._crews[run] = crew
        if self._parks_at is not None:  # after the line above: another thread may park the run at this moment
            crew.park(self._parks_at)
        return crew

    def post(self, run: str, fact: Fact) -> None:
        """Add a fact to a run. A run without a crew gets it when its crew is created."""
        if run in self._crews:
            self._crews[run].post(fact)
        else:
            self._waiting[run].append(fact)

    def posted(self, run: str) -> tuple[Fact, ...]:
        """The facts that a run has not recorded yet."""
        return tuple(self._crews[run].posted) if run in self._crews else tuple(self._waiting.get(run, ()))

    def is_busy(self, run: str) -> bool:
        return run in self._crews and self._crews[run].busy

    def drop(self, run: str) -> None:
        """The crew of a run is closed: facts for the run are not taken any more."""
        self._crews.pop(run, None)

    def park(self, grace: int) -> None:
        self._parks_at = self._clock.now() + grace
        for crew in tuple(self._crews.values()):
            crew.park(self._parks_at)

    def clear(self) -> None:
        self._crews.clear()
        self._parks_at = None
