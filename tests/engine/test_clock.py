"""The step clock, which moves time by hand."""

import subprocess
import sys
from collections.abc import Awaitable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.engine.clock import Done, Sleep, StepClock, step
from agentrun.errors import InternalError

MILLISECONDS = st.integers(0, 50)


async def sleep_in_turn(clock: StepClock, *lengths: int) -> int:
    for length in lengths:
        await clock.sleep_until(clock.now() + length)
    return clock.now()


def test_sleeping_on_the_step_clock_takes_no_real_time() -> None:
    """Thirty years twice: the test would not end."""
    clock = StepClock(5)
    assert clock.run(sleep_in_turn(clock, 10**12, 10**12)) == 2 * 10**12 + 5


def test_sleep_until_a_past_time_returns_at_once() -> None:
    clock = StepClock(100)
    assert step(clock.sleep_until(100)) == Done(None)
    assert step(clock.sleep_until(99)) == Done(None)
    sleeping = clock.sleep_until(101)
    assert step(sleeping) == Sleep(101)
    sleeping.close()


def test_sleeper_woken_too_early_sleeps_again() -> None:
    clock = StepClock()
    sleeping = clock.sleep_until(10)
    assert step(sleeping) == Sleep(10)
    clock.move_to(9)
    assert step(sleeping) == Sleep(10)
    clock.move_to(10)
    assert step(sleeping) == Done(None)


@given(st.integers(-5, 5), st.lists(st.integers(-10, 10)))
def test_clock_never_goes_back(start: int, moves: list[int]) -> None:
    clock = StepClock(start)
    for count, move in enumerate(moves, 1):
        clock.move_to(move)
        assert clock.now() == max(start, *moves[:count])


def test_aside_returns_the_result_of_the_function() -> None:
    clock = StepClock()
    assert clock.run(clock.aside(lambda: 7)) == 7


def test_run_raises_the_exception_of_the_work() -> None:
    clock = StepClock()

    async def work() -> None:
        await clock.sleep_until(3)
        raise KeyError("no")

    with pytest.raises(KeyError):
        clock.run(work())
    assert clock.now() == 3


class LoopOnlyEvent(Awaitable[None]):
    """Something that only an event loop could bring."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield self


def test_waiting_for_a_real_event_is_an_internal_error() -> None:
    clock, tidy = StepClock(), []

    async def work() -> None:
        try:
            await LoopOnlyEvent()
        finally:
            tidy.append(True)

    with pytest.raises(InternalError, match="waited for a real event"):
        clock.run(work())
    with pytest.raises(InternalError, match="waited for a real event"):
        clock.run(clock.within(5, work()))
    assert tidy == [True, True]


@pytest.mark.parametrize(("limit", "late"), [(9, True), (10, False), (11, False)])
def test_within_raises_timeout_only_after_the_limit(limit: int, late: bool) -> None:
    """Work that takes exactly the limit is in time."""
    clock = StepClock(100)
    if late:
        with pytest.raises(TimeoutError):
            clock.run(clock.within(limit, sleep_in_turn(clock, 4, 6)))
        assert clock.now() == 100 + limit
    else:
        assert clock.run(clock.within(limit, sleep_in_turn(clock, 4, 6))) == 110


@given(st.lists(MILLISECONDS, max_size=5), MILLISECONDS, MILLISECONDS)
def test_shorter_of_two_nested_limits_decides(lengths: list[int], inner: int, outer: int) -> None:
    """The shorter limit decides, and time stops there."""
    clock, total = StepClock(), sum(lengths)
    work = clock.within(outer, clock.within(inner, sleep_in_turn(clock, *lengths)))
    if total <= min(inner, outer):
        assert clock.run(work) == total
    else:
        with pytest.raises(TimeoutError):
            clock.run(work)
    assert clock.now() == min(total, inner, outer)


def test_late_work_is_closed_before_timeout_is_raised() -> None:
    clock, seen = StepClock(), []

    async def work() -> None:
        try:
            await clock.sleep_until(10)
        finally:
            seen.append(clock.now())

    async def root() -> None:
        late = work()  # held here, so that only closing it can end it
        with pytest.raises(TimeoutError):
            await clock.within(5, late)
        assert seen == [5]

    clock.run(root())


def test_closing_a_limited_coroutine_closes_its_work() -> None:
    clock, seen = StepClock(), []

    async def work() -> None:
        try:
            await clock.sleep_until(10)
        finally:
            seen.append("closed")

    inner = work()  # held here, so that only closing it can end it
    limited = clock.within(20, clock.within(30, inner))
    assert step(limited) == Sleep(10)
    limited.close()
    assert seen == ["closed"]


def test_work_that_moves_the_clock_past_its_limit_is_not_timed_out() -> None:
    """A recording moves the clock inside a call: what it gives counts, however long it took then."""
    clock = StepClock()

    async def work() -> str:
        clock.move_to(1000)
        return "recorded"

    assert clock.run(clock.within(10, work())) == "recorded"


@pytest.mark.parametrize("module", ["clock", "crew", "perform"])
def test_step_modules_do_not_import_asyncio(module: str) -> None:
    """Importing asyncio would make every replay start later."""
    code = f"import sys, agentrun.engine.{module}; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
