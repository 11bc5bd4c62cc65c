"""Progress of a tool call, reported while it runs, from any thread or task with the context of the call.

Outside of a call, and after its end, `progress` does nothing. It never raises, and a listener cannot make a call fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeAlias

MAX_PROGRESS_LENGTH = 4096

ProgressListener: TypeAlias = Callable[[str], None]

_listener: ContextVar[ProgressListener | None] = ContextVar("progress", default=None)


def progress(text: object) -> None:
    """Report the progress of this tool call. It is shown live, but is not in the journal, the cassette or the model's
    messages."""
    listener = _listener.get()
    if listener is not None:
        with suppress(Exception):
            listener(str(text)[:MAX_PROGRESS_LENGTH])


def current_listener() -> ProgressListener | None:
    return _listener.get()


@contextmanager
def listen_to_progress(hear: ProgressListener) -> Iterator[None]:
    """Set the listener of `progress` in this context. It may be called from any thread, even after the end."""
    token = _listener.set(hear)
    try:
        yield
    finally:
        _listener.reset(token)
