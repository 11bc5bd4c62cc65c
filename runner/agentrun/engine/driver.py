"""The loop: decide → do → journal → evolve. It contains no policy and sees only the core and the ports.

Rule 1  One writer, one order. State changes by `evolve` alone, and only after the record is in the journal.
Rule 2  A fact that cannot follow is refused before it is written.
Rule 3  The intent of an effect is written before the effect is started.
Rule 4  Whatever happens here, nothing is left running, and the journal ends with one terminal record, unless it is
        the journal itself that fails.
"""

from __future__ import annotations

from contextlib import suppress
from typing import assert_never

from agentrun.core.decide import Commit, Finished, Perform, Wait, decide
from agentrun.core.effects import intent
from agentrun.core.evolve import evolve, fold
from agentrun.core.facts import RULES, CancelRequested, Fact, Record, RunResumed, RunStopped, TimePassed
from agentrun.core.facts_base import Fault
from agentrun.core.outcome import Outcome, Suspended, suspended
from agentrun.core.package import Package
from agentrun.core.state import under_way
from agentrun.core.takeover import is_welcome, lost_work
from agentrun.engine.ports import Clock, Crew, Journal
from agentrun.errors import AgentrunError


class Log:
    """A run's journal and the state it stands for, which change together."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self.state = fold(journal.records())

    def commit(self, fact: Fact) -> None:
        record = Record(self.state.seq + 1, self._clock.now(), self._journal.epoch, self._journal.head, fact)
        after = evolve(self.state, record)
        self._journal.append(record)
        self.state = after

    def welcome(self, fact: Fact) -> None:
        """Commit what came from outside, if it still matters."""
        if is_welcome(self.state, fact):
            self.commit(fact)

    def take_over(self, fingerprint: str) -> None:
        """Go on with the run of an owner that is gone."""
        self.commit(RunResumed(fingerprint, RULES))
        for fact in lost_work(self.state):
            self.commit(fact)


async def drive(package: Package, log: Log, crew: Crew) -> Outcome | Suspended:
    """Take a run from where its journal ends to its end, or to where somebody outside must answer."""
    try:
        return await _loop(package, log, crew)
    except AgentrunError as error:  # the journal failed: there is nowhere to write to
        if error.code.startswith(("journal.", "storage.")):
            raise
        return await _ended(package, log, crew, Fault(error.code, error.message, error.fields, error.hint))
    except Exception as error:  # noqa: BLE001  # our own bug: the run still ends with its terminal record
        fault = Fault("internal", f"{type(error).__name__} in the runtime", {"error": type(error).__name__})
        return await _ended(package, log, crew, fault)
    except BaseException as error:
        with suppress(Exception):
            log.welcome(CancelRequested(type(error).__name__))
            log.commit(RunStopped("failed", fault=Fault("cancelled", "the host ended the run", {"by": "host"})))
        raise
    finally:
        await crew.close()


async def _ended(package: Package, log: Log, crew: Crew, fault: Fault) -> Outcome | Suspended:
    log.commit(RunStopped("failed", fault=fault))
    return await _loop(package, log, crew)


async def _loop(package: Package, log: Log, crew: Crew) -> Outcome | Suspended:
    while True:
        for fact in crew.arrived():
            log.welcome(fact)
        match decide(package, log.state):
            case Finished(outcome):
                return outcome
            case Commit(facts):
                for fact in facts:
                    log.commit(fact)
                crew.keep(under_way(log.state))
            case Perform(effects) if crew.free:
                for effect in effects[: crew.free]:
                    log.commit(intent(effect))
                    crew.start(effect)
            case Perform() | Wait() as pause:
                crew.consult(pause.questions)
                if not crew.busy and pause.deadline is None:
                    return suspended(log.state, pause.questions, pause.waits_for)
                log.welcome(await crew.settled(pause.deadline) or TimePassed())
            case other:
                assert_never(other)
