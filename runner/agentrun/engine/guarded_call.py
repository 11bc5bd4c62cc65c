"""Run user code and turn its exceptions and timeouts into values.

The time limit is never confused with a `TimeoutError` of the code itself. `sys.exit` in a tool ends only the tool.
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
    """The code took too long and was stopped."""


class RaisedException(Struct, frozen=True):
    error: Any

    @property
    def kind(self) -> str:
        return type(self.error).__name__

    @property
    def message(self) -> str:
        return mask(f"{self.kind}: {self.error}").encode("utf-8", "replace").decode()[:MAX_EXCEPTION_TEXT]


def is_journalable(value: Any) -> bool:
    try:
        sorted_json(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_valid_fault(fault: Fault) -> bool:
    return fault.code in ERROR_CODES and is_journalable(fault)


async def call_with_timeout(
    clock: Clock, milliseconds: int, work: Callable[[], Coroutine[Any, Any, _T]]
) -> _T | TimedOut | RaisedException:
    try:
        return await clock.within(milliseconds, call_guarded(work))
    except TimeoutError:
        return TimedOut()
    except Exception as error:  # noqa: BLE001  # raised by the clock, for example if the work cancelled itself
        return RaisedException(error)


async def call_guarded(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T | RaisedException:
    try:
        return await work()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # user code may raise anything
        return RaisedException(error)
