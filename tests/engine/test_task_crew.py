"""`TaskCrew`, which runs effects as tasks in real time."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from agentrun.core.effects import Effect
from agentrun.core.facts import ApprovalAnswered, CancelRequested, Fact
from agentrun.core.outcome import Question
from agentrun.engine import event_loop
from agentrun.engine.event_loop import SystemClock, TaskCrew
from agentrun.engine.ports import AskPerson, PerformEffect
from agentrun.errors import InternalError

from .crew_effects import effect, fact, question

T = TypeVar("T")
LONG = 120


def crew_of(perform: PerformEffect, width: int = 10, consult: AskPerson | None = None) -> TaskCrew:
    return TaskCrew(perform, width=width, clock=SystemClock(), consult=consult)


def run(root: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine that leaves no task behind."""

    async def whole() -> T:
        result = await asyncio.wait_for(root(), LONG)
        assert len(asyncio.all_tasks()) == 1
        return result

    return asyncio.run(whole())


class Gates:
    """Work that ends when it is told to, and what was seen of it."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.stopped: list[str] = []

    async def perform(self, effect: Effect) -> Fact:
        self.begun.append(effect.id)
        try:
            await self.open.setdefault(effect.id, asyncio.Event()).wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.005)  # stopping takes a moment
            self.stopped.append(effect.id)
            raise
        return fact(effect)


def test_event_loop_ends_without_tasks_that_ignore_their_cancellation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks that end when they are cancelled are waited for."""
    monkeypatch.setattr(event_loop, "MAX_STOP_MS", 50)
    seen: list[str] = []

    async def stubborn() -> None:
        released = asyncio.Event()
        asyncio.get_running_loop().call_later(LONG, released.set)
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        seen.append("waited for")

    async def cleaned_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async def whole() -> str:
        tasks.extend([asyncio.create_task(stubborn()), asyncio.create_task(cleaned_up())])
        await asyncio.sleep(0)
        return "done"

    tasks: list[asyncio.Task[None]] = []
    assert event_loop.run_event_loop(whole()) == "done"
    assert seen == ["cleaned up"]
    tasks.clear()
    gc.collect()
    assert caplog.records == []


def test_facts_come_in_the_order_effects_end() -> None:
    async def root() -> list[Fact | None]:
        gates = Gates()
        crew = crew_of(gates.perform)
        for name in "abc":
            crew.start(effect(name))
        await asyncio.sleep(0)
        for name in "bca":
            gates.open[name].set()
            await asyncio.sleep(0.001)
        assert (crew.free, crew.busy) == (7, True)
        given = [await crew.next_fact(None) for _ in "abc"]
        assert (crew.free, crew.busy) == (10, False)
        return given

    assert run(root) == [fact(name) for name in "bca"]


def test_two_hundred_effects_run_at_once() -> None:
    """Each waits for all the others: none would end if they did not run together."""

    async def root() -> None:
        here, all_here = 0, asyncio.Event()

        async def perform(effect: Effect) -> Fact:
            nonlocal here
            here += 1
            if here == 200:
                all_here.set()
            await all_here.wait()
            return fact(effect)

        crew = crew_of(perform, width=200)
        for index in range(200):
            crew.start(effect(str(index)))
        assert crew.free == 0
        facts = [await crew.next_fact(None) for _ in range(200)]
        assert sorted(map(repr, facts)) == sorted(repr(fact(str(index))) for index in range(200))

    run(root)


def test_free_never_allows_more_effects_than_the_width() -> None:
    """Whoever starts no more than are free never has more than that under way."""

    async def root() -> int:
        now = most = 0

        async def perform(effect: Effect) -> Fact:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001)
            now -= 1
            return fact(effect)

        crew, left = crew_of(perform, width=3), [str(index) for index in range(20)]
        while left or crew.busy:
            for name in left[: crew.free]:
                crew.start(effect(name))
                left.remove(name)
            await crew.next_fact(None)
        return most

    assert run(root) == 3


def test_close_stops_all_effects_and_leaves_no_task() -> None:
    async def root() -> None:
        before = asyncio.all_tasks()
        gates = Gates()
        crew = crew_of(gates.perform)
        for name in "abc":
            crew.start(effect(name))
        await asyncio.sleep(0.001)
        assert asyncio.all_tasks() > before
        await crew.close()
        assert sorted(gates.stopped) == ["a", "b", "c"]
        assert not crew.busy
        assert asyncio.all_tasks() == before

    run(root)


def test_cancelled_close_still_stops_all_effects() -> None:
    async def root() -> None:
        gates = Gates()
        crew = crew_of(gates.perform)
        crew.start(effect("a"))
        await asyncio.sleep(0.001)
        closing = asyncio.create_task(crew.close())
        await asyncio.sleep(0.001)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert gates.stopped == ["a"]

    run(root)


def test_effects_are_stopped_when_the_driver_is_cancelled() -> None:
    """As the driver does it: whatever comes out of `settled`, the crew is closed."""

    async def root() -> None:
        gates = Gates()
        crew = crew_of(gates.perform)

        async def driver() -> None:
            crew.start(effect("a"))
            try:
                await crew.next_fact(None)
            finally:
                await crew.close()

        driving = asyncio.create_task(driver())
        await asyncio.sleep(0.001)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert gates.stopped == ["a"]

    run(root)


def test_close_may_be_called_twice() -> None:
    async def root() -> None:
        crew = crew_of(Gates().perform)
        crew.start(effect("a"))
        await crew.close()
        await crew.close()

    run(root)


def test_keep_only_stops_the_other_effects() -> None:
    async def root() -> None:
        gates = Gates()
        crew = crew_of(gates.perform)
        for name in "abc":
            crew.start(effect(name))
        await asyncio.sleep(0.001)
        gates.open["c"].set()
        await asyncio.sleep(0.001)
        crew.keep_only(["b", "unknown"])  # c is done already, and not waited for either
        gates.open["b"].set()
        assert crew.free == 9
        assert await crew.next_fact(None) == fact("b")
        assert not crew.busy
        assert await crew.next_fact(0) is None
        await crew.close()
        assert gates.stopped == ["a"]

    run(root)


def test_exception_of_a_stopped_effect_is_ignored() -> None:
    failures: list[Any] = []

    async def root() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))

        async def perform(effect: Effect) -> Fact:
            try:
                await asyncio.sleep(LONG)
            finally:
                raise OSError("while being stopped")

        crew = crew_of(perform)
        for name in "ab":
            crew.start(effect(name))
        await asyncio.sleep(0.001)
        crew.keep_only(["a"])
        await crew.close()
        assert await crew.next_fact(0) is None
        gc.collect()

    run(root)
    assert failures == []


def test_fact_of_a_stopped_effect_is_not_taken_for_the_restarted_one() -> None:
    """What the stopped one gives is not taken for the new one's."""

    async def root() -> None:
        count = 0

        async def perform(effect: Effect) -> Fact:
            nonlocal count
            count += 1
            mine = count
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                return fact("stopped")  # as a badly behaved tool would
            return fact(f"{effect.id}, run {mine}")

        crew = crew_of(perform)
        crew.start(effect("a"))
        await asyncio.sleep(0.001)
        crew.keep_only([])
        crew.start(effect("a"))
        assert await crew.next_fact(None) == fact("a, run 2")
        await crew.close()

    run(root)


def test_exception_of_an_effect_is_raised() -> None:
    async def root() -> None:
        async def perform(effect: Effect) -> Fact:
            raise KeyError(effect.id)

        crew = crew_of(perform)
        crew.start(effect("a"))
        with pytest.raises(KeyError):
            await crew.next_fact(None)
        assert not crew.busy

    run(root)


def test_effect_that_cancels_itself_is_an_internal_error() -> None:
    """It must not look as if somebody cancelled the run."""

    async def root() -> None:
        async def perform(effect: Effect) -> Fact:
            raise asyncio.CancelledError

        crew = crew_of(perform)
        crew.start(effect("a"))
        with pytest.raises(InternalError, match="not by its crew"):
            await crew.next_fact(None)

    run(root)


def test_next_fact_returns_none_at_the_deadline() -> None:
    async def root() -> None:
        clock, gates = SystemClock(), Gates()
        crew = TaskCrew(gates.perform, width=1, clock=clock)
        crew.start(effect("a"))
        deadline = clock.now() + 20
        assert await crew.next_fact(deadline) is None
        assert clock.now() >= deadline
        assert crew.busy
        gates.open["a"].set()
        assert await crew.next_fact(clock.now() + 1000 * LONG) == fact("a")

    run(root)


class EarlyClock(SystemClock):
    """A clock whose first alarm rings at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alarms = 0

    async def within(self, milliseconds: int, work: Coroutine[Any, Any, T]) -> T:
        self.alarms += 1
        return await super().within(0 if self.alarms == 1 else milliseconds, work)


def test_early_timeout_of_the_clock_is_waited_out() -> None:
    async def root() -> None:
        clock = EarlyClock()
        deadline = clock.now() + 20
        assert await TaskCrew(Gates().perform, width=1, clock=clock).next_fact(deadline) is None
        assert clock.now() >= deadline
        assert clock.alarms == 2

    run(root)


def test_finished_effect_is_returned_after_the_deadline() -> None:
    async def root() -> None:
        gates = Gates()
        crew = crew_of(gates.perform)
        crew.start(effect("a"))
        await asyncio.sleep(0)
        gates.open["a"].set()
        await asyncio.sleep(0.001)
        assert await crew.next_fact(0) == fact("a")

    run(root)


def test_fact_posted_in_another_thread_wakes_the_crew() -> None:
    async def root() -> Fact | None:
        crew = crew_of(Gates().perform)
        timer = threading.Timer(0.01, crew.post, [CancelRequested("thread")])
        timer.start()
        given = await crew.next_fact(None)
        timer.join()
        return given

    began = time.monotonic()
    assert run(root) == CancelRequested("thread")
    assert time.monotonic() - began < LONG / 2  # the loop was woken, and did not wake up by itself


def test_facts_posted_by_many_threads_come_once_and_in_order() -> None:
    """From many threads, while facts are taken both ways: each comes exactly once, and in its thread's order."""

    async def root() -> None:
        crew = crew_of(Gates().perform)

        def crowd(name: int) -> None:
            for index in range(200):
                crew.post(CancelRequested(f"{name}.{index}"))

        threads = [threading.Thread(target=crowd, args=[name]) for name in range(5)]
        for thread in threads:
            thread.start()
        heard: list[str] = []
        while len(heard) < 1000:
            first = await crew.next_fact(None)
            for each in (first, *crew.take_posted()):
                assert isinstance(each, CancelRequested)
                heard.append(each.by)
        for thread in threads:
            thread.join()
        for name in range(5):
            assert [by for by in heard if by.startswith(f"{name}.")] == [f"{name}.{index}" for index in range(200)]
        assert crew.take_posted() == ()

    run(root)


def test_facts_may_be_posted_outside_the_event_loop() -> None:
    crew = crew_of(Gates().perform)
    crew.post(CancelRequested("before"))
    assert crew.busy

    async def root() -> Fact | None:
        return await crew.next_fact(None)

    assert run(root) == CancelRequested("before")
    crew.post(CancelRequested("after"))
    assert crew.take_posted() == (CancelRequested("after"),)


def test_questions_are_asked_once_and_withdrawn_ones_are_stopped() -> None:
    async def root() -> None:
        asked: list[str] = []
        gone: list[str] = []

        async def consult(question: Question) -> Fact:
            asked.append(question.subject)
            try:
                await asyncio.sleep(LONG if question.subject == "slow" else 0)
            except asyncio.CancelledError:
                gone.append(question.subject)
                raise
            return ApprovalAnswered(question.subject, question.question, "approved", "desk")

        crew = crew_of(Gates().perform, width=1, consult=consult)
        crew.start(effect("a"))
        crew.consult([question("quick"), question("slow")])
        crew.keep_only([])
        assert crew.free == 1
        assert await crew.next_fact(None) == ApprovalAnswered("quick", "quick?", "approved", "desk")
        crew.consult([question("quick"), question("slow")])
        assert (sorted(asked), gone, crew.busy) == (["quick", "slow"], [], True)
        crew.consult([question("quick")])
        assert not crew.busy
        await crew.close()
        assert gone == ["slow"]

    run(root)


def test_questions_are_ignored_without_an_approver() -> None:
    crew = crew_of(Gates().perform)
    crew.consult([question("c1.0")])
    assert not crew.busy
