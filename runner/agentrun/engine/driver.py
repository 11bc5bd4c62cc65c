"""The loop: decide → perform → journal → evolve. It contains no policy and uses only the core, the ports and the world.

Rule 1  A run has one writer. Only `evolve` changes the state, and only after the record is in the journal.
Rule 2  An illegal fact is refused before it is written.
Rule 3  The intent of an effect is written before the effect starts.
Rule 4  When the loop ends, no effect is running and the journal ends with one terminal record. If the journal itself
        fails, nothing more is written or started, and the run can be resumed. Rule 6 has the exceptions.
Rule 5  Listeners get a record after it is committed and cannot stop the run.
Rule 6  A parked run makes no more decisions: it records effects that end within the grace time, stops the others,
        abandons those that cannot be stopped, and writes no terminal record.
Rule 7  A sub-agent does not outlive its parent: if it is suspended or lost, it is cancelled when the parent ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import assert_never

from msgspec import UNSET

from agentrun.canonical_json import escape_surrogates, fingerprint
from agentrun.core import facts as core_facts
from agentrun.core.decide import decide
from agentrun.core.effects import Commit, Finished, Perform, Wait, intent
from agentrun.core.evolve import evolve, fold
from agentrun.core.fault import Fault, fault_of
from agentrun.core.outcome import Outcome, outcome_of, parked_outcome, suspended_outcome
from agentrun.core.package import Package
from agentrun.core.state import pending_effects
from agentrun.core.transitions import is_acceptable, lost_work
from agentrun.engine.ports import Clock, Crew, Journal
from agentrun.engine.world import World, world_of_child
from agentrun.errors import AgentrunError, InternalError, RecordRefused, StorageError, poisoned_journal_error


class RunLog:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        listen: Callable[[core_facts.Record], None] = lambda record: None,
        clean: Callable[[core_facts.Fact], core_facts.Fact] | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._listen = listen
        self._clean = clean
        self._poisoned = False
        self.state = fold(journal.records())

    def commit(self, fact: core_facts.Fact, at: int | None = None) -> None:
        seq = self.state.seq + 1
        if self._poisoned:
            raise poisoned_journal_error(seq)
        at = self._clock.now() if at is None else at
        try:
            record = self._append(fact, seq, at)
        except UnicodeEncodeError:  # no file or request can contain half of a surrogate pair
            record = self._append(escape_surrogates(fact), seq, at)
        with suppress(Exception):
            self._listen(record)

    def _append(self, fact: core_facts.Fact, seq: int, at: int) -> core_facts.Record:
        fact = fact if self._clean is None else self._clean(fact)
        record = core_facts.Record(seq, at, self._journal.epoch, self._journal.head, fact)
        after = evolve(self.state, record)
        try:
            self._journal.append(record)
        except StorageError as error:
            self._poisoned = not isinstance(error, RecordRefused)
            raise
        self.state = after
        return record

    def facts(self) -> Iterable[core_facts.Fact]:
        return (record.fact for record in self._journal.records())

    def commit_if_acceptable(self, fact: core_facts.Fact) -> None:
        if is_acceptable(self.state, fact):
            self.commit(fact)

    def take_over(self, fingerprint: str) -> None:
        """Continue the run of a process that is gone."""
        self.commit(core_facts.RunResumed(fingerprint, core_facts.RULES_VERSION, self._journal.torn or UNSET))
        for fact in lost_work(self.state):
            self.commit(fact)

    def stop(self, fault: Fault) -> Outcome:
        at = self.state.now
        with suppress(Exception):  # the clock itself may have failed
            at = self._clock.now()
        if self.state.stopped is None:
            self.commit(core_facts.RunStopped("failed", fault=fault), at)
        return outcome_of(self.state)

    def abandon(self) -> None:
        """The host is shutting down, or the parent ends: end the run if its journal can still be written."""
        by = "host" if self.state.start is None or self.state.start.parent is None else "parent"
        try:
            with suppress(Exception):
                self.commit_if_acceptable(core_facts.CancelRequested(by))
        finally:
            with suppress(Exception):
                self.stop(Fault("cancelled", f"the {by} ended the run", {"by": by}))


def open_run_log(world: World) -> RunLog:
    clean = world.redactor.redact_struct if world.redactor else None
    return RunLog(world.journals.open(world.run), world.clock, partial(world.listen, world.run), clean)


async def drive_with_children(world: World, package: Package, log: RunLog) -> Outcome:
    """Drive a run. When it is finished, cancel its sub-agents that are suspended or lost."""
    try:
        ending = await drive(package, log, world.crew(world, package))
    finally:
        world.crews.drop(world.run)
    if ending.is_finished and package.agents:
        with suppress(Exception):  # the outcome of the run does not depend on this
            children = {fact.run: fact for fact in log.facts() if isinstance(fact, core_facts.ChildStarted)}
            for run, fact in children.items():
                await _end_child(world_of_child(world, run, fact.call, fact.tool), package.agents[fact.tool])
    return ending


async def _end_child(world: World, package: Package) -> None:
    log = open_run_log(world)
    if log.state.phase not in ("fresh", "stopped"):
        log.take_over(fingerprint(package))
        log.commit_if_acceptable(core_facts.CancelRequested("parent"))
        await drive_with_children(world, package, log)


async def drive(package: Package, log: RunLog, crew: Crew) -> Outcome:
    try:
        return await _loop(package, log, crew)
    except AgentrunError as error:
        is_storage = error.code.startswith(("journal.", "storage."))
        if is_storage and not isinstance(error, RecordRefused):  # the fault cannot be written
            raise
        return log.stop(fault_of(error))
    except Exception as error:  # noqa: BLE001  # a bug in agentrun: the run still ends with a terminal record
        kind = type(error).__name__
        return log.stop(Fault("internal", f"{kind} in the runtime", {"error": kind}))
    except BaseException:
        if crew.parks_at is None:
            log.abandon()
        raise
    finally:
        await crew.close()


async def _loop(package: Package, log: RunLog, crew: Crew) -> Outcome:
    while crew.parks_at is None:
        for fact in crew.take_posted():
            log.commit_if_acceptable(fact)
        match decide(package, log.state):
            case Finished(outcome):
                return outcome
            case Commit(facts):
                for fact in facts:
                    log.commit(fact)
                crew.keep_only(pending_effects(log.state))
            case Perform(effects) if crew.free:
                for effect in effects[: crew.free]:
                    log.commit(intent(effect))
                    crew.start(effect)
            case Perform() | Wait() as pause:
                crew.consult(pause.questions)
                if not crew.busy and (lost := pending_effects(log.state)):
                    raise InternalError("internal", f"the effect {lost[0]} is pending, but it is not running")
                if not crew.busy and pause.deadline is None:
                    return suspended_outcome(log.state, pause.questions, pause.waits_for)
                news = await crew.next_fact(pause.deadline)
                if news is None and pause.deadline is not None and crew.parks_at is None:
                    news = core_facts.TimePassed()
                if news is not None:
                    log.commit_if_acceptable(news)
            case other:
                assert_never(other)
    return await _park(log, crew, crew.parks_at)


async def _park(log: RunLog, crew: Crew, until: int) -> Outcome:
    crew.consult(())
    while crew.busy and (fact := await crew.next_fact(until)) is not None:
        log.commit_if_acceptable(fact)
    if log.state.stopped is not None:
        return outcome_of(log.state)
    return parked_outcome(log.state)
