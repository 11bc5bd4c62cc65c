"""Parked runs finish the work in progress, start nothing more and continue when they are resumed."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.core.audit import find_divergence
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import (
    ApprovalAsked,
    CancelRequested,
    Fact,
    ModelAsked,
    Record,
    RunResumed,
    RunStopped,
    ToolFinished,
    ToolStarted,
    WorkLost,
)
from agentrun.core.messages import Text
from agentrun.core.outcome import Outcome, parked_outcome
from agentrun.engine import driver
from agentrun.engine.clock import StepClock
from agentrun.engine.event_loop import MAX_CLEANUP_MS, MAX_STOP_MS, SystemClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.host_ports import providers_by_name
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.ports import Clock
from agentrun.engine.runtime import Runtime
from agentrun.errors import SUSPENDED_EXIT
from agentrun.testing import after, calls, scripted, stub, text
from agentrun.testing.doubles import Script
from agentrun.testing.laws import (
    RUN_ID,
    Setting,
    _count_answers,
    begin_run,
    canonical_journals,
    finish_run,
    make_runtime,
)

from ..core.script import tool, writing
from ..packages import package
from ..testing.law_shapes import ALLOW, SHAPES, TWO_TOOLS, Shape

LONG = 1_000_000
"""Milliseconds in which everything under way ends."""
PERSON = 500
"""Milliseconds that the person of a shape takes to answer."""


class ParkingJournals(MemoryJournals):
    """Journals that call somebody after so many records of all runs."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.count = 0
        self._after = after
        self.park: Callable[[], None] = lambda: None
        self.heard: Callable[[Record], None] = lambda record: None

    def append(self, run: str, record: Record) -> None:
        super().append(run, record)
        self.count += 1
        self.heard(record)
        if self.count == self._after:
            self.park()


class Site:
    """One run in a setting, parked after so many records."""

    def __init__(self, shape: Shape, after: int, grace: int) -> None:
        self.clock = StepClock()
        self.file: PackageFile = seal_package(shape.package)
        self.setting = shape.setting(self.clock)
        self.journals = ParkingJournals(after)
        self.runtime = make_runtime(self.file, self.setting, self.clock, self.journals, 8)
        self.handle = begin_run(self.runtime, self.file, self.setting)
        self.journals.park = lambda: self.handle.park(grace)

    def wait(self) -> Outcome:
        return self.clock.run(self.handle.wait())

    def facts(self, run: str = RUN_ID) -> list[Any]:
        return [record.fact for record in self.journals.records(run)]

    def rewind(self) -> None:
        """Models go on after the last answer that was recorded: one that was cut off is asked again."""
        heard = sum(
            (_count_answers(self.journals.records(run)) for run in self.journals.runs), start=_count_answers([])
        )
        models = providers_by_name(self.file.agent, self.setting.model)
        for script in {id(each): each for each in models.values()}.values():
            if isinstance(script, Script):
                script.go_to(sum(heard[name] for name, each in models.items() if each is script))


def look(shape: Shape, after: int, grace: int, undisturbed: str) -> bool:
    """Park a run after so many records, and resume it. False: it was over, or waited, before that."""
    site = Site(shape, after, grace)
    ending = site.wait()
    if ending.status != "parked":
        return False
    records = tuple(site.journals.records(RUN_ID))
    assert (ending.run, ending.seq, ending.exit_code) == (RUN_ID, len(records), SUSPENDED_EXIT)
    assert not any(isinstance(fact, RunStopped) for fact in site.facts())
    if grace == LONG:
        started = {fact.call for fact in site.facts() if isinstance(fact, ToolStarted)}
        assert started <= {fact.call for fact in site.facts() if isinstance(fact, ToolFinished)}, "it had the time"
    site.rewind()
    outcome = finish_run(site.runtime, site.runtime.resume(RUN_ID), site.clock, "retry", "approved")
    assert outcome.is_finished
    assert canonical_journals(site.journals) == undisturbed
    assert find_divergence(site.file.agent, site.journals.records(RUN_ID)) is None
    for run in site.journals.runs:
        assert [isinstance(fact, RunStopped) for fact in site.facts(run)].count(True) == 1, run
    return True


@pytest.mark.parametrize("grace", [0, LONG], ids=["no grace", "grace"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_run_parked_after_any_record_resumes_to_the_same_end(shape: Shape, grace: int) -> None:
    """Wherever it is parked, it goes on to the same end."""
    whole = Site(shape, 0, grace)
    finish_run(whole.runtime, whole.handle, whole.clock, "retry", "approved")
    undisturbed = canonical_journals(whole.journals)
    parked = [after for after in range(2, whole.journals.count) if look(shape, after, grace, undisturbed)]
    assert len(parked) >= 1


def test_call_that_ends_within_the_grace_is_not_run_again() -> None:
    ran: list[str] = []

    def setting(clock: StepClock) -> Setting:
        def pay(n: int) -> str:
            ran.append(f"pay {n}")
            return "paid"

        tools = {"pay": stub(pay, delay=50, clock=clock), "search": stub()}
        return Setting(model=scripted(calls("pay", n=1), text("Done.")), tools=tools, message="Hi.")

    shape = Shape(package(tools=TWO_TOOLS, policy=ALLOW), setting)
    number = first_record(shape, ToolStarted)
    for grace, in_time in ((49, False), (50, True)):
        ran.clear()
        site = Site(shape, number, grace)
        assert site.wait().status == "parked"
        assert any(isinstance(fact, ToolFinished) for fact in site.facts()) == in_time
        assert not any(isinstance(fact, RunStopped) for fact in site.facts())
        again = site.clock.run(site.runtime.resume(RUN_ID).wait())
        if in_time:
            assert ran == ["pay 1"], "once, and not again"
        else:
            assert again.status == "suspended", "it may have been paid: somebody has to say"
            assert WorkLost("c1.0") in site.facts()


def first_record(shape: Shape, kind: type) -> int:
    """After how many records of all runs the first of a kind is written."""
    site = Site(shape, 0, LONG)
    seen: list[int] = []
    site.journals.heard = lambda record: seen.append(site.journals.count) if isinstance(record.fact, kind) else None
    finish_run(site.runtime, site.handle, site.clock, "retry", "approved")
    return seen[0]


def test_parked_run_starts_no_call_and_no_request() -> None:
    def setting(clock: StepClock) -> Setting:
        model = scripted(after(50, calls("search", q="x"), clock=clock), text("never"))
        return Setting(model=model, tools={"search": stub("found"), "pay": stub()}, message="Hi.")

    shape = Shape(package(tools=TWO_TOOLS, policy=ALLOW), setting)
    site = Site(shape, first_record(shape, ModelAsked), LONG)
    assert site.wait().status == "parked"
    assert [fact for fact in site.facts() if isinstance(fact, ToolStarted)] == []
    assert len([fact for fact in site.facts() if isinstance(fact, ModelAsked)]) == 1


def test_parking_does_not_wait_for_an_approval() -> None:
    number = first_record(SHAPES["person"], ApprovalAsked)
    site = Site(SHAPES["person"], number, LONG)
    began = site.clock.now()
    assert site.wait().status == "parked"
    assert site.clock.now() - began < PERSON, "it is asked again when the run goes on"


def test_parking_a_suspended_run_changes_nothing() -> None:
    site = Site(SHAPES["approval"], 0, 0)
    assert site.wait().status == "suspended"
    before = site.journals.count
    site.handle.park()
    site.runtime.park()
    assert site.journals.count == before
    assert finish_run(site.runtime, site.handle, site.clock, "retry", "approved").is_finished


def test_parked_handle_stays_parked_and_a_cancel_takes_effect_on_resume() -> None:
    """Another owner may: what is told to the run in the meantime is written, and counts when it goes on."""
    site = Site(SHAPES["parallel tools"], first_record(SHAPES["parallel tools"], ToolStarted), 0)
    parked = site.wait()
    assert parked.status == "parked"
    assert site.wait() == parked
    site.handle.cancel("ada")
    assert site.wait() == parked
    assert site.facts()[-1] == CancelRequested("ada")
    outcome = site.clock.run(site.runtime.resume(RUN_ID).wait())
    assert outcome.code == "cancelled"


def test_parking_a_finished_run_changes_nothing() -> None:
    whole = Site(SHAPES["plain text"], 0, 0)
    assert whole.wait().is_finished
    last = Site(SHAPES["plain text"], whole.journals.count, 0)
    assert last.wait().is_finished, "parked after the terminal record"


# --- in real time ---------------------------------------------------------------------------------------------------


class SlowTool:
    """A tool that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended: list[str] = []

    async def run(self, call: RunTool) -> Any:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.append("given up")
            raise
        self.ended.append("done")
        return ToolReturn((Text("paid"),))


def start_in_real_time(
    slow: SlowTool, journals: MemoryJournals, *, policy: Any = ALLOW, clock: Clock | None = None
) -> tuple[Runtime, RunHandle]:
    file = seal_package(package(tools={"pay": writing(), "search": tool()}, policy=policy))
    setting = Setting(model=scripted(calls("pay", n=1), text("Done.")), message="Hi.")
    runtime = Runtime.in_memory(
        journals=journals,
        providers=providers_by_name(file.agent, setting.model),
        executors={"pay": slow, "search": slow},
        packages=[file],
        clock=clock,
    )
    return runtime, begin_run(runtime, file, setting)


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it does not"])
def test_parking_in_real_time_waits_for_the_grace_only(ends: bool) -> None:
    async def whole() -> None:
        slow, journals = SlowTool(), MemoryJournals()
        runtime, handle = start_in_real_time(slow, journals)
        await slow.begun.wait()
        await asyncio.to_thread(handle.park, 3_600_000 if ends else 0)  # from any thread
        if ends:
            slow.go_on.set()
        parked = await handle.wait()
        assert parked.status == "parked"
        assert slow.ended == (["done"] if ends else ["given up"])
        assert len(asyncio.all_tasks()) == 1, "nothing is left running"
        facts = [record.fact for record in journals.records(RUN_ID)]
        assert any(isinstance(fact, ToolFinished) for fact in facts) == ends
        assert not any(isinstance(fact, RunStopped) for fact in facts)
        again = await runtime.resume(RUN_ID).wait()
        assert again.is_finished == bool(ends)
        assert any(isinstance(record.fact, RunResumed) for record in journals.records(RUN_ID))

    asyncio.run(whole())


def test_park_directly_after_start_is_not_lost() -> None:
    """The task of the run has not taken its first step."""

    async def whole() -> None:
        slow, journals = SlowTool(), MemoryJournals()
        slow.go_on.set()
        runtime, handle = start_in_real_time(slow, journals)
        runtime.park(0)
        parked = await handle.wait()
        assert parked.status == "parked"
        assert (parked.seq, slow.begun.is_set()) == (1, False)
        assert (await runtime.resume(RUN_ID).wait()).is_finished
        assert slow.ended == ["done"]

    asyncio.run(whole())


def test_park_before_the_first_wait_is_not_lost() -> None:
    """Without an event loop a run does its work inside `wait`."""
    site = Site(SHAPES["plain text"], 0, 0)
    site.runtime.park()
    parked = site.wait()
    assert parked.status == "parked"
    assert parked.seq == 1
    assert site.clock.run(site.runtime.resume(RUN_ID).wait()).is_finished


def test_park_after_an_answer_is_not_lost() -> None:
    """The run was suspended, and the answer has just made it go on."""

    async def whole() -> None:
        slow, journals = SlowTool(), MemoryJournals()
        runtime, handle = start_in_real_time(slow, journals, policy={"default": "ask"})
        suspended = await handle.wait()
        assert suspended.status == "suspended"
        handle.answer(suspended.questions[0], "approved", "ada")
        runtime.park(0)
        assert (await handle.wait()).status == "parked"
        assert not slow.begun.is_set()

    asyncio.run(whole())


class HandClock(SystemClock):
    """Time passes only when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0
        self._limits: dict[asyncio.Timeout, int] = {}

    def now(self) -> int:
        return self._now

    async def within(self, milliseconds: int, work: Any) -> Any:
        async with asyncio.timeout(None) as limit:
            self._limits[limit] = self._now + milliseconds
            try:
                return await work
            finally:
                del self._limits[limit]

    async def advance(self, milliseconds: int) -> None:
        """Let time pass, and everything happen that it brings about."""
        self._now += milliseconds
        for limit, end in self._limits.items():
            if end <= self._now and limit.when() is None:
                limit.reschedule(0)
        for _ in range(50):
            await asyncio.sleep(0)


class Stubborn(SlowTool):
    """Ignores that it is cancelled."""

    async def run(self, call: RunTool) -> Any:
        self.begun.set()
        while not self.go_on.is_set():
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.ended.append("ignored")
        return ToolReturn((Text("paid"),))


def last_fact(journals: MemoryJournals) -> Fact:
    return tuple(journals.records(RUN_ID))[-1].fact


def test_work_that_cannot_be_stopped_is_abandoned_and_lost() -> None:
    async def whole(stubborn: Stubborn) -> None:
        journals, clock = MemoryJournals(), HandClock()
        runtime, handle = start_in_real_time(stubborn, journals, clock=clock)
        await stubborn.begun.wait()
        handle.park(100)
        end = asyncio.ensure_future(handle.wait())
        await clock.advance(99)
        assert stubborn.ended == [], "it has the grace time"
        await clock.advance(1)
        assert stubborn.ended == ["ignored"]
        await clock.advance(MAX_STOP_MS - 1)
        assert not end.done(), "it may clean up"
        await clock.advance(1)
        assert end.done()
        assert end.result().status == "parked"
        assert isinstance(last_fact(journals), ToolStarted)
        stubborn.go_on.set()
        await clock.advance(0)
        assert isinstance(last_fact(journals), ToolStarted), "its result comes too late"
        assert (await runtime.resume(RUN_ID).wait()).status == "suspended"
        assert WorkLost("c1.0") in [record.fact for record in journals.records(RUN_ID)]

    async def released() -> None:
        stubborn = Stubborn()
        try:
            await whole(stubborn)
        finally:
            stubborn.go_on.set()

    asyncio.run(released())


def test_cancelled_run_abandons_work_that_cannot_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async def whole(stubborn: Stubborn) -> None:
        journals, clock = MemoryJournals(), HandClock()
        _, handle = start_in_real_time(stubborn, journals, clock=clock)
        await stubborn.begun.wait()
        handle.cancel()
        end = asyncio.ensure_future(handle.wait())
        await clock.advance(0)
        assert stubborn.ended == ["ignored"]
        assert isinstance(last_fact(journals), RunStopped)
        await clock.advance(MAX_CLEANUP_MS - 1)
        assert not end.done(), "it may clean up"
        await clock.advance(1)
        assert end.done()
        assert getattr(end.result(), "code", None) == "cancelled"
        assert asyncio.all_tasks() == {asyncio.current_task()}, "asyncio.run waits for all tasks"

    async def released_only_on_failure(stubborn: Stubborn) -> None:
        try:
            await whole(stubborn)
        except AssertionError:
            stubborn.go_on.set()
            raise

    asyncio.run(released_only_on_failure(Stubborn()))
    gc.collect()
    assert caplog.records == []


# --- planted ------------------------------------------------------------------------------------------------------


def test_check_detects_a_driver_that_ends_a_parked_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real = driver._park  # replaced on purpose

    async def abandons(log: driver.RunLog, crew: Any, until: int) -> Outcome:
        await real(log, crew, until)
        log.abandon()
        return parked_outcome(log.state)

    monkeypatch.setattr(driver, "_park", abandons)
    with pytest.raises(AssertionError):
        test_run_parked_after_any_record_resumes_to_the_same_end(SHAPES["parallel tools"], 0)


def test_check_detects_a_driver_that_ignores_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    real = driver._park  # replaced on purpose
    monkeypatch.setattr(driver, "_park", lambda log, crew, until: real(log, crew, 0))
    with pytest.raises(AssertionError, match="it had the time"):
        test_run_parked_after_any_record_resumes_to_the_same_end(SHAPES["parallel tools"], LONG)


def test_check_detects_an_abandoned_sub_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a crew that is closed would do it, if the child did not know that it is parked."""
    monkeypatch.setattr("agentrun.engine.crew.BaseCrew.parks_at", property(lambda crew: None))
    with pytest.raises(AssertionError):
        test_run_parked_after_any_record_resumes_to_the_same_end(SHAPES["child"], 0)
