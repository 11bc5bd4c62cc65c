"""What time it is: the one door through which time enters a run."""

from __future__ import annotations

import time


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000


class ReplayClock:
    """Stands still at the recorded time and moves to the recorded end of what is played. Never backwards."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._now = start

    def now(self) -> int:
        return self._now

    def move_to(self, offset: int) -> None:
        """To so many milliseconds after the start of the recording."""
        self._now = max(self._now, self._start + offset)
