"""Time that is moved by hand."""

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


async def naps(clock: StepClock, *lengths: int) -> int:
    for length in lengths:
        await clock.sleep_until(clock.now() + length)
    return clock.now()


def test_no_real_time_passes() -> None:
    """Thirty years twice: the test would not end."""
    clock = StepClock(5)
    assert clock.run(naps(clock, 10**12, 10**12)) == 2 * 10**12 + 5


def test_sleep_that_is_over() -> None:
    clock = StepClock(100)
    assert step(clock.sleep_until(100)) == Done(None)
    assert step(clock.sleep_until(99)) == Done(None)
    sleeping = clock.sleep_until(101)
    assert step(sleeping) == Sleep(101)
    sleeping.close()


def test_woken_too_early_sleeps_on() -> None:
    clock = StepClock()
    sleeping = clock.sleep_until(10)
    assert step(sleeping) == Sleep(10)
    clock.move_to(9)
    assert step(sleeping) == Sleep(10)
    clock.move_to(10)
    assert step(sleeping) == Done(None)


@given(st.integers(-5, 5), st.lists(st.integers(-10, 10)))
def test_never_goes_back(start: int, moves: list[int]) -> None:
    clock = StepClock(start)
    for count, move in enumerate(moves, 1):
        clock.move_to(move)
        assert clock.now() == max(start, *moves[:count])


def test_aside() -> None:
    clock = StepClock()
    assert clock.run(clock.aside(lambda: 7)) == 7


def test_run_gives_what_the_work_raises() -> None:
    clock = StepClock()

    async def work() -> None:
        await clock.sleep_until(3)
        raise KeyError("no")

    with pytest.raises(KeyError):
        clock.run(work())
    assert clock.now() == 3


class Elsewhere(Awaitable[None]):
    """Something that only an event loop could bring."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield self


def test_waiting_for_the_world_is_refused() -> None:
    clock, tidy = StepClock(), []

    async def work() -> None:
        try:
            await Elsewhere()
        finally:
            tidy.append(True)

    with pytest.raises(InternalError, match="waited for a real event"):
        clock.run(work())
    with pytest.raises(InternalError, match="waited for a real event"):
        clock.run(clock.within(5, work()))
    assert tidy == [True, True]


@pytest.mark.parametrize(("limit", "late"), [(9, True), (10, False), (11, False)])
def test_within(limit: int, late: bool) -> None:
    """Work that takes exactly the limit is in time."""
    clock = StepClock(100)
    if late:
        with pytest.raises(TimeoutError):
            clock.run(clock.within(limit, naps(clock, 4, 6)))
        assert clock.now() == 100 + limit
    else:
        assert clock.run(clock.within(limit, naps(clock, 4, 6))) == 110


@given(st.lists(MILLISECONDS, max_size=5), MILLISECONDS, MILLISECONDS)
def test_limits_nest(lengths: list[int], inner: int, outer: int) -> None:
    """The shorter limit decides, and time stops there."""
    clock, total = StepClock(), sum(lengths)
    work = clock.within(outer, clock.within(inner, naps(clock, *lengths)))
    if total <= min(inner, outer):
        assert clock.run(work) == total
    else:
        with pytest.raises(TimeoutError):
            clock.run(work)
    assert clock.now() == min(total, inner, outer)


def test_late_work_is_stopped_before_the_error() -> None:
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


def test_closed_from_outside_closes_the_work() -> None:
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


def test_time_that_jumps_is_no_reason_to_stop() -> None:
    """A recording moves the clock inside a call: what it gives counts, however long it took then."""
    clock = StepClock()

    async def work() -> str:
        clock.move_to(1000)
        return "recorded"

    assert clock.run(clock.within(10, work())) == "recorded"


@pytest.mark.parametrize("module", ["clock", "crew", "perform"])
def test_needs_no_event_loop(module: str) -> None:
    """Importing asyncio would make every replay start later."""
    code = f"import sys, agentrun.engine.{module}; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
