"""The loop, with ports that go wrong."""

import asyncio
from typing import Any

import pytest

from agentrun.core.effects import AskModel
from agentrun.core.evolve import fold
from agentrun.core.facts import Fact, ModelAsked, ModelFailed, ModelReplied, Record, RunStopped
from agentrun.core.outcome import Outcome
from agentrun.core.state import State
from agentrun.engine.assemble import _at_once
from agentrun.engine.clock import ReplayClock, SystemClock
from agentrun.engine.crew import SingleCrew
from agentrun.engine.driver import commit, drive
from agentrun.engine.models import Models
from agentrun.errors import CassetteError, InternalError, StorageError
from agentrun.journal.memory import MemoryJournal
from agentrun.providers.registry import codec_for

from ..core.script import STARTED, said
from ..packages import ROUTE, package, typed
from ..worlds import BAD, GOOD, Scripted, completion, live

CLOCK = ReplayClock(1000)


class FullDisk(MemoryJournal):
    """Fails at the nth append."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def append(self, record: Record) -> None:
        if record.seq == self._at:
            raise StorageError("storage.failed", "no space left", fields={"errno": 28})
        super().append(record)


def started(journal: MemoryJournal) -> MemoryJournal:
    commit(journal, CLOCK, State(), STARTED)
    return journal


def crew(sender: Scripted) -> SingleCrew:
    return SingleCrew(Models(sender, codec_for).perform)


def finish(journal: MemoryJournal, sender: Scripted) -> Outcome:
    return _at_once(drive(typed(), journal, crew(sender), CLOCK))


def test_intent_before_effect() -> None:
    journal = started(MemoryJournal())
    seen: list[list[str]] = []

    async def perform(effect: AskModel) -> Fact:
        seen.append([type(record.fact).__name__ for record in journal.records()])
        return ModelReplied(effect.id, effect.turn, effect.attempt, said(GOOD))

    _at_once(drive(typed(), journal, SingleCrew(perform), CLOCK))
    assert seen == [["RunStarted", "ModelAsked"]]


@pytest.mark.parametrize("at", [2, 3, 4, 5])
def test_no_effect_without_its_intent(at: int) -> None:
    """Whichever record cannot be written: nothing is sent whose intent is not in the journal."""
    journal, sender = started(FullDisk(at)), Scripted([completion(BAD), completion(GOOD)])
    with pytest.raises(StorageError):
        finish(journal, sender)
    written = [record.fact for record in journal.records()]
    assert len(written) == at - 1
    assert len(sender.calls) == sum(isinstance(fact, ModelAsked) for fact in written)


def test_goes_on_where_the_journal_ends() -> None:
    """Cut after any record at which nothing is under way: the rest of the run is the same to the byte."""
    whole = started(MemoryJournal())
    replies = [completion(BAD), completion(GOOD)]
    outcome = finish(whole, Scripted(replies))
    for length in range(1, len(whole.records()) + 1):
        part = MemoryJournal()
        for record in whole.records()[:length]:
            part.append(record)
        if fold(part.records()).phase == "asking":
            continue
        sent = sum(isinstance(record.fact, ModelAsked) for record in part.records())
        assert finish(part, Scripted(replies[sent:])) == outcome
        assert part.text() == whole.text()


def test_illegal_fact_is_not_written() -> None:
    journal = started(MemoryJournal())
    before = journal.text()
    with pytest.raises(StorageError, match=r"recovery\.failed"):
        commit(journal, CLOCK, fold(journal.records()), STARTED)
    assert journal.text() == before


def test_waits_for_nobody() -> None:
    """A journal that ends inside a call, and nobody to perform it: an error, not an endless loop."""
    journal = started(MemoryJournal())
    commit(journal, CLOCK, fold(journal.records()), ModelAsked("m1.1", 1, 1, "r", 0))
    with pytest.raises(InternalError, match=r"m1\.1"):
        finish(journal, Scripted([]))
    with pytest.raises(InternalError, match="nothing"):
        finish(MemoryJournal(), Scripted([]))


class WideCrew(SingleCrew):
    """Has room for two."""

    @property
    def free(self) -> int:
        return super().free + 1


def test_waits_for_what_is_under_way() -> None:
    journal, sender = started(MemoryJournal()), Scripted([completion(GOOD)])
    outcome = _at_once(drive(typed(), journal, WideCrew(Models(sender, codec_for).perform), CLOCK))
    assert outcome.status == "completed"


def test_in_an_event_loop() -> None:
    """The driver is a plain coroutine: it also runs where effects do take time."""

    async def perform(effect: AskModel) -> Fact:
        await asyncio.sleep(0)
        return ModelReplied(effect.id, effect.turn, effect.attempt, said(GOOD))

    outcome = asyncio.run(drive(typed(), started(MemoryJournal()), SingleCrew(perform), CLOCK))
    assert outcome.status == "completed"
    with pytest.raises(InternalError, match="waited for the outside world"):
        _at_once(drive(typed(), started(MemoryJournal()), SingleCrew(perform), CLOCK))


# --- models ------------------------------------------------------------------------------------------------


def ask(sender: Scripted, **changes: Any) -> Any:
    from agentrun.core.decide import Perform, decide

    agent = package(**changes)
    state = fold(started(MemoryJournal()).records())
    decided = decide(agent, state)
    assert isinstance(decided, Perform)
    return _at_once(Models(sender, codec_for).perform(decided.effects[0]))


def test_model_replied() -> None:
    call = {"id": "call_1", "function": {"name": "t", "arguments": "{}"}}
    fact = ask(Scripted([completion("x", "tool_calls", tool_calls=[call])]))
    assert isinstance(fact, ModelReplied)
    assert (fact.effect, fact.turn, fact.attempt) == ("m1.1", 1, 1)
    assert [call.id for call in fact.reply.message.calls] == ["c1.0"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CassetteError("cassette.miss", "no", fields={"nearest": 1}, hint="h"), "cassette.miss"),
        (ValueError("secret"), "internal"),
        (RecursionError(), "internal"),
        (MemoryError(), "internal"),
    ],
)
def test_boundary_never_raises(error: Exception, code: str) -> None:
    fact = ask(Scripted([error]))
    assert isinstance(fact, ModelFailed)
    assert fact.fault.code == code
    assert "secret" not in fact.fault.message
    if isinstance(error, CassetteError):
        assert (fact.fault.fields, fact.fault.hint) == ({"nearest": 1}, "h")


def test_boundary_covers_the_codec() -> None:
    fact = ask(Scripted([]), model={"routes": [ROUTE | {"options": {"model": "x"}}]})
    assert fact.fault.code == "package.invalid"
    fact = ask(Scripted([]), model={"routes": [ROUTE | {"provider": "nobody"}]})
    assert fact.fault.code == "provider.not_found"


def test_bug_in_the_world_still_ends_the_run() -> None:
    journal = live(package(), Scripted([ValueError("x")]))
    *_, last = journal.records()
    assert isinstance(last.fact, RunStopped)
    assert last.fact.fault is not None
    assert last.fact.fault.code == "internal"


# --- clocks ------------------------------------------------------------------------------------------------


def test_replay_clock() -> None:
    clock = ReplayClock(5000)
    assert clock.now() == 5000
    clock.move_to(700)
    assert clock.now() == 5700
    clock.move_to(300)
    assert clock.now() == 5700, "never backwards"


def test_system_clock() -> None:
    assert 1_700_000_000_000 < SystemClock().now() < 10**14
