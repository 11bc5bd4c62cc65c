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

T = TypeVar("T")

LONGEST_MESSAGE = 300


class Late(Struct, frozen=True):
    """It took too long and was stopped."""


class Raised(Struct, frozen=True):
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
        return text[:LONGEST_MESSAGE]


def is_plain(value: Any) -> bool:
    """Whether a journal could hold it."""
    try:
        sorted_json(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_sound(fault: Fault) -> bool:
    """Whether a fault that foreign code made can be recorded: its code is known, and its evidence is plain data."""
    return fault.code in ERROR_CODES and is_plain(fault)


async def attempt(clock: Clock, milliseconds: int, work: Callable[[], Coroutine[Any, Any, T]]) -> T | Late | Raised:
    """Do some work, as long as it takes no longer than that."""
    try:
        return await clock.within(milliseconds, caught(work))
    except TimeoutError:
        return Late()
    except Exception as error:  # noqa: BLE001  # it ended in a way that only the clock could see
        return Raised(error)


async def caught(work: Callable[[], Coroutine[Any, Any, T]]) -> T | Raised:
    """Do some work, however long it takes."""
    try:
        return await work()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code may raise anything
        return Raised(error)
