"""Foreign code, run so that nothing it does gets out: it gives a value, raises, or takes too long.

Rule 1  A time limit of ours is never confused with a `TimeoutError` that the code raised itself.
Rule 2  `sys.exit` in a tool ends the tool and not the host. An interrupt by the user, and a cancellation, pass.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Struct

from agentrun.canonical_json import sorted_json
from agentrun.core.fault import Fault
from agentrun.engine.ports import Clock
from agentrun.errors import ERROR_CODES
from agentrun.secret import mask

_T = TypeVar("_T")

MAX_EXCEPTION_TEXT = 300


class TimedOut(Struct, frozen=True):
    """It took too long and was stopped."""


class RaisedException(Struct, frozen=True):
    """It raised."""

    error: Any
    """The exception."""

    @property
    def kind(self) -> str:
        return type(self.error).__name__

    @property
    def message(self) -> str:
        """What it says, without secrets, and not all of it if it is long."""
        text = mask(f"{self.kind}: {self.error}").encode("utf-8", "replace").decode()
        return text[:MAX_EXCEPTION_TEXT]


def is_journalable(value: Any) -> bool:
    """Whether a journal could hold it."""
    try:
        sorted_json(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_valid_fault(fault: Fault) -> bool:
    """Whether a fault that foreign code made can be recorded: its code is known, and its evidence is plain data."""
    return fault.code in ERROR_CODES and is_journalable(fault)


async def call_with_timeout(
    clock: Clock, milliseconds: int, work: Callable[[], Coroutine[Any, Any, _T]]
) -> _T | TimedOut | RaisedException:
    """Do some work, as long as it takes no longer than that."""
    try:
        return await clock.within(milliseconds, call_guarded(work))
    except TimeoutError:
        return TimedOut()
    except Exception as error:  # noqa: BLE001  # it ended in a way that only the clock could see
        return RaisedException(error)


async def call_guarded(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T | RaisedException:
    """Do some work, however long it takes."""
    try:
        return await work()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code may raise anything
        return RaisedException(error)
