"""Ctrl-C while a suite runs: what is known by then is told.

Rule 1  While cases run in this process, the one at hand is finished: an interrupt in the middle of it could be taken
        for something that happened to the case. Asked twice, it ends at once.
Rule 2  While this process only waits, it ends at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self.is_asked = False

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        if self._at_once or self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True


@contextmanager
def stopping(*, at_once: bool) -> Iterator[Stop]:
    """Listens to signals. Not in a thread, where there are none to hear."""
    stop = Stop(at_once=at_once)
    try:
        before = [(number, signal.signal(number, stop.ask)) for number in _SIGNALS]
    except ValueError:
        before = []
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
