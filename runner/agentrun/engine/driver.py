"""The loop: decide → do → journal → evolve. It contains no policy and sees only the core and the ports.

Rule 1  One writer, one order. State changes by `evolve` alone, and only after the record is in the journal.
Rule 2  A fact that cannot follow is refused before it is written.
Rule 3  The intent of an effect is written before the effect is started.
"""

from __future__ import annotations

from typing import assert_never

from agentrun.core.decide import Commit, Finished, Perform, Wait, decide
from agentrun.core.effects import intent
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import Fact, Record
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.engine.ports import Clock, Crew, Journal
from agentrun.errors import InternalError


async def drive(package: Package, journal: Journal, crew: Crew, clock: Clock) -> Outcome:
    """Take a run from where its journal ends to its end."""
    state = fold(journal.records())
    while True:
        match decide(package, state):
            case Finished(outcome):
                return outcome
            case Commit(facts):
                for fact in facts:
                    state = commit(journal, clock, state, fact)
            case Perform(effects):
                for effect in effects[: crew.free]:
                    state = commit(journal, clock, state, intent(effect))
                    crew.start(effect)
                if not crew.free:
                    state = commit(journal, clock, state, await crew.settled())
            case Wait() as wait:
                if not crew.busy:
                    raise InternalError("internal", f"the run waits for {wait.inflight or 'nothing'} for ever")
                state = commit(journal, clock, state, await crew.settled())
            case other:
                assert_never(other)


def commit(journal: Journal, clock: Clock, state: State, fact: Fact) -> State:
    """Write one fact and give the state after it."""
    record = Record(seq=state.seq + 1, at=clock.now(), epoch=journal.epoch, prev=journal.head, fact=fact)
    after = evolve(state, record)
    journal.append(record)
    return after
