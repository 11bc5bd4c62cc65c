"""Count the work of Python code in function calls, which is independent of machine load.

A step is a function, of Python or of C, that begins or ends. What a function of C does inside is not counted: a test
about a pattern or a parser in C asserts that a limit of the product stops it. Only work that hangs is stopped by time.

The profiler of `cProfile` counts, because it is C: a function of Python that is called at every step takes as long as
the work that it counts.
"""

import signal
import time
from _lsprof import Profiler
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANG = 60
"""Seconds of CPU after which work is said to hang: a hundred times what it takes. Waiting for others is no CPU time."""
LOOK = 0.2
"""Seconds of CPU between two looks at the count. It says how soon too much work is stopped, not whether."""


class TooManySteps(BaseException):
    """Too much work. Not an Exception: the code that is counted must not handle it."""


class Counter:
    """Steps so far."""

    def __init__(self) -> None:
        self.profiler = Profiler(subcalls=False)

    @property
    def steps(self) -> int:
        return 2 * sum(each.callcount for each in self.profiler.getstats())


@contextmanager
def at_most(limit: int) -> Iterator[Counter]:
    """Fail when the functions that are called here take more steps than this, or hang."""
    counter, too_many = Counter(), f"more than {limit:,} steps"

    def look() -> None:
        if counter.steps > limit:
            raise TooManySteps(too_many)

    with no_hang(look):
        counter.profiler.enable()
        try:
            yield counter
        finally:
            counter.profiler.disable()
    assert counter.steps <= limit, too_many


@contextmanager
def no_hang(look: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Fail when what is done here hangs, also in C code that lets signals through, as `re` does."""
    begin = time.process_time()

    def stop(_number: int, _frame: FrameType | None) -> None:
        look()
        if time.process_time() - begin > HANG:
            raise TooManySteps(f"it hangs: it took {HANG} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LOOK, LOOK)
    try:
        yield
    except TooManySteps as stopped:
        raise AssertionError(str(stopped)) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
