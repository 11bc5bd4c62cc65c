"""A run driven by `drive` alone, without a runtime; its effects are answered from a list."""

from typing import Any

from agentrun.core.effects import Effect
from agentrun.core.facts import Fact, ModelReplied, ToolFinished, fact_kind
from agentrun.core.messages import Reply, Text
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.engine.crew import StepCrew
from agentrun.engine.driver import RunLog, drive
from agentrun.journal.storage import MemoryJournal

from ..core.script import RUN_STARTED


class DrivenRun:
    """A run of which every effect is answered from a list of replies, and every call with `done`."""

    def __init__(self, agent: Package, *replies: Reply, journal: Any = None, width: int = 1, takes: int = 0) -> None:
        self.agent = agent
        self.clock = StepClock(1000)
        self.journal = MemoryJournal() if journal is None else journal
        self.replies = list(replies)
        self.width, self.takes = width, takes
        self.seen: list[tuple[str, list[str]]] = []
        """Each effect that was started, and the facts that were in the journal then."""
        self.at_once: set[str] = set()
        self.most = 0

    async def perform(self, effect: Effect) -> Fact:
        self.seen.append((effect.id, [fact_kind(record.fact) for record in self.journal.records()]))
        self.at_once.add(effect.id)
        self.most = max(self.most, len(self.at_once))
        try:
            await self.clock.sleep_until(self.clock.now() + self.takes)
            return self.answer(effect)
        finally:
            self.at_once.discard(effect.id)

    def answer(self, effect: Any) -> Fact:
        if effect.id.startswith("c"):
            return ToolFinished(effect.id, (Text("done"),))
        return ModelReplied(effect.id, effect.turn, effect.attempt, self.replies.pop(0).with_call_ids(effect.turn))

    def log(self) -> RunLog:
        return RunLog(self.journal, self.clock)

    def begun(self) -> "DrivenRun":
        self.log().commit(RUN_STARTED)
        return self

    def crew(self) -> StepCrew:
        return StepCrew(self.perform, width=self.width, clock=self.clock)

    def finish(self) -> Outcome:
        return self.clock.run(drive(self.agent, self.log(), self.crew()))

    def facts(self) -> list[Fact]:
        return [record.fact for record in self.journal.records()]
