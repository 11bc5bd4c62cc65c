"""Count the work of Python code in steps, which a busy machine does not change.

A step is a function, of Python or of C, that begins or ends. What a function of C does inside is not counted: a test
about a pattern or a parser in C asserts that a limit of the product stops it. Only work that hangs is stopped by time.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

HANG = 60
"""Seconds of CPU after which work is said to hang: a hundred times what it takes. Waiting for others is no CPU time."""


class Stopped(BaseException):
    """Too much work. Not an Exception: the code that is counted must not handle it."""


class Counter:
    """Steps so far."""

    def __init__(self) -> None:
        self.steps = 0


@contextmanager
def at_most(limit: int) -> Iterator[Counter]:
    """Fail as soon as the functions that are called here take more steps than this, or hang."""
    counter, too_many = Counter(), f"more than {limit:,} steps"

    def count(_frame: FrameType, _event: str, _arg: Any) -> None:
        counter.steps += 1
        if counter.steps > limit:
            raise Stopped(too_many)

    before = sys.getprofile()
    with no_hang():
        sys.setprofile(count)
        try:
            yield counter
        finally:
            sys.setprofile(before)
    assert counter.steps <= limit, too_many


@contextmanager
def no_hang() -> Iterator[None]:
    """Fail when what is done here hangs, also in C code that lets signals through, as `re` does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped(f"it hangs: it took {HANG} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
    try:
        yield
    except Stopped as stopped:
        raise AssertionError(str(stopped)) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
