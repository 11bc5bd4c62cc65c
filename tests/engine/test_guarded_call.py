"""Calling user code with a timeout, and turning its exceptions into values."""

import asyncio
import sys
from typing import NoReturn

import pytest

from agentrun.core.fault import Fault
from agentrun.engine.clock import StepClock
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.guarded_call import (
    MAX_EXCEPTION_TEXT,
    RaisedException,
    TimedOut,
    call_with_timeout,
    is_valid_fault,
)

KEY = "sk-ant-" + "a1B2c3D4" * 4  # made up


@pytest.mark.parametrize(("limit", "late"), [(9, True), (10, False)])
def test_work_over_its_limit_times_out(limit: int, late: bool) -> None:
    clock = StepClock()

    async def work() -> str:
        await clock.sleep_until(10)
        return "done"

    assert clock.run(call_with_timeout(clock, limit, work)) == (TimedOut() if late else "done")


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError("its own"), SystemExit(3)])
def test_exception_of_the_work_is_returned(error: BaseException) -> None:
    """A timeout of its own is no timeout of ours, and `sys.exit` ends nothing but the work."""
    clock = StepClock()

    async def work() -> NoReturn:
        raise error

    assert clock.run(call_with_timeout(clock, 10, work)) == RaisedException(error)


def test_work_that_is_no_coroutine_gives_an_exception_value() -> None:
    clock = StepClock()

    def broken() -> NoReturn:
        raise LookupError

    for work, kind in ((broken, "LookupError"), (lambda: 7, "TypeError")):
        raised = clock.run(call_with_timeout(clock, 10, work))  # type: ignore[arg-type]  # foreign code may be anything
        assert isinstance(raised, RaisedException)
        assert raised.kind == kind


def test_keyboard_interrupt_is_raised() -> None:
    clock = StepClock()

    async def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clock.run(call_with_timeout(clock, 10, work))


def test_work_that_cancels_itself_gives_an_exception_value() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    raised = asyncio.run(call_with_timeout(SystemClock(), 1000, work))
    assert isinstance(raised, RaisedException)


def test_cancellation_from_outside_is_raised() -> None:
    async def root() -> None:
        task = asyncio.create_task(call_with_timeout(SystemClock(), 60_000, lambda: asyncio.sleep(60)))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(root())


def test_exception_message_shows_no_secret() -> None:
    assert KEY not in RaisedException(ValueError(f"no access with {KEY}")).message


def test_cut_exception_message_shows_no_part_of_a_secret() -> None:
    """Masked first and cut then: the other way round, half a key would no longer look like one."""
    for start in range(MAX_EXCEPTION_TEXT - len(KEY), MAX_EXCEPTION_TEXT):
        message = RaisedException(ValueError("x" * (start - len("ValueError: ")) + " " + KEY)).message
        assert KEY[:12] not in message


def test_exception_message_is_short_and_encodable() -> None:
    assert len(RaisedException(ValueError("x" * 10_000)).message) == MAX_EXCEPTION_TEXT
    assert RaisedException(KeyError("no")).message == "KeyError: 'no'"
    RaisedException(ValueError("half a pair: \ud800")).message.encode()


def test_is_valid_fault_checks_code_fields_and_text() -> None:
    assert is_valid_fault(Fault("tool.fatal", "no", {"tool": "x", "list": [1, None]}))
    assert not is_valid_fault(Fault("tool.invented", "no"))
    assert not is_valid_fault(Fault("tool.fatal", "no", {"module": sys}))
    assert not is_valid_fault(Fault("tool.fatal", "\ud800"))
