"""How far a call is, said while it runs.

    from agentrun import progress

    def import_orders(path: str) -> str:
        for number, order in enumerate(orders, 1):
            progress(f"{number} of {len(orders)}")

Rule 1  It is heard by whoever runs the call in this thread or task, or in any that has its context. Elsewhere, and
        when the call is over, it does nothing.
Rule 2  It never fails, and whoever hears it cannot make the call fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeAlias

MAX_PROGRESS_LENGTH = 4096
"""So much of what is said is looked at."""

ProgressListener: TypeAlias = Callable[[str], None]

_listener: ContextVar[ProgressListener | None] = ContextVar("progress", default=None)


def progress(text: object) -> None:
    """Say how far this call of a tool is. It is shown in passing: no journal, no recording and no model has it."""
    hear = _listener.get()
    if hear is not None:
        with suppress(Exception):  # Rule 2
            hear(str(text)[:MAX_PROGRESS_LENGTH])


report_progress = progress
"""The same, as executors call it that are told by somebody else."""


def current_listener() -> ProgressListener | None:
    """Who hears this call: for what is said about it elsewhere, in a task of another call."""
    return _listener.get()


@contextmanager
def listen_to_progress(hear: ProgressListener) -> Iterator[None]:
    """Let somebody hear what is said in here. It may be called in any thread, also too late."""
    token = _listener.set(hear)
    try:
        yield
    finally:
        _listener.reset(token)
