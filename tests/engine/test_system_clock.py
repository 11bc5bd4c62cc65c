"""`SystemClock`, the clock of real runs."""

import asyncio
import threading
import time

import pytest

from agentrun.engine.event_loop import SystemClock


def test_clock_starts_at_the_wall_clock() -> None:
    before = time.time_ns() // 1_000_000
    clock = SystemClock()
    assert before <= clock.now() <= time.time_ns() // 1_000_000 + 1


def test_clock_ignores_a_wall_clock_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert clock.now() >= before


def test_sleep_until_waits_for_the_time() -> None:
    clock = SystemClock()
    at = clock.now() + 20
    asyncio.run(clock.sleep_until(at))
    assert clock.now() >= at


def test_sleep_until_a_past_time_returns_at_once() -> None:
    """Whoever sleeps goes on the next time that it is their turn."""
    clock = SystemClock()

    async def root() -> None:
        sleeper = asyncio.create_task(clock.sleep_until(clock.now() - 1))
        for _ in range(3):
            await asyncio.sleep(0)
        assert sleeper.done()

    asyncio.run(root())


def test_within_returns_the_result_or_stops_late_work() -> None:
    clock, seen = SystemClock(), []

    async def work(length: int) -> str:
        try:
            await clock.sleep_until(clock.now() + length)
        finally:
            await asyncio.sleep(0)  # stopping takes a moment
            seen.append(length)
        return "done"

    async def root() -> None:
        assert await clock.within(60_000, work(1)) == "done"
        with pytest.raises(TimeoutError):
            await clock.within(10, work(60_000))
        assert seen == [1, 60_000]

    asyncio.run(root())


def test_cancelling_within_stops_the_work() -> None:
    clock, seen = SystemClock(), []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("stopped")

    async def root() -> None:
        task = asyncio.create_task(clock.within(60_000, work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(root())
    assert seen == ["stopped"]


def test_work_that_cancels_itself_raises_runtime_error() -> None:
    """Nobody asked for it: taken for a cancellation of the run it would end the run without a reason."""

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled itself"):
        asyncio.run(SystemClock().within(1000, work()))


def test_aside_does_not_block() -> None:
    clock, released = SystemClock(), threading.Event()

    async def root() -> bool:
        waiting = asyncio.create_task(clock.aside(lambda: released.wait(60)))
        await asyncio.sleep(0.01)
        released.set()
        return await waiting

    assert asyncio.run(root())


def test_aside_raises_the_exception_of_the_function() -> None:
    def fails() -> None:
        raise SystemExit(3)

    async def root() -> None:
        await SystemClock().aside(fails)

    with pytest.raises(SystemExit):
        asyncio.run(root())


def test_event_loop_closes_without_waiting_for_aside() -> None:
    """A function that never ends, given up after a moment: the event loop closes all the same."""
    never = threading.Event()

    async def root() -> None:
        with pytest.raises(TimeoutError):
            await SystemClock().within(20, SystemClock().aside(lambda: never.wait(600)))

    before = time.monotonic()
    asyncio.run(root())
    assert time.monotonic() - before < 300
    never.set()
