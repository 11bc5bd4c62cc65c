"""Restore process state that user code may change.

Rule 1  There is one recursion limit for all threads. A call may raise it while it runs. It is never lower than before,
        because the event loop runs at the same time and would fail.
Rule 2  The working directory, the umask, the locale, signal handlers and the other interpreter limits are restored when
        the last running call ends, to their values before the first one. Not earlier, because another running call may
        depend on its own changes.
Rule 3  A call that timed out or was cancelled has ended. If it sets the recursion limit later, that has no effect.
"""

from __future__ import annotations

import locale
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from operator import index
from threading import Lock, current_thread, main_thread
from typing import Any, NamedTuple

_set_recursion_limit = sys.setrecursionlimit
"""The original function."""
_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
"""The signals that programs handle. Reading all 64 would take longer than most calls."""
_call: ContextVar[object | None] = ContextVar("call", default=None)


class _State(NamedTuple):
    recursion_limit: int
    digits: int
    switch_interval: float
    directory: str | None
    """None: it was removed."""
    umask: int
    locale: str
    handlers: dict[signal.Signals, Any]
    """The signal handlers. Only the main thread can change them."""


class _Calls:
    def __init__(self) -> None:
        self._lock = Lock()
        self._limits: dict[object, int] = {}
        self._before: _State | None = None
        """The state before the first call."""

    def begin(self, call: object) -> None:
        with self._lock:
            sys.setrecursionlimit = self.set_recursion_limit
            if not self._limits:
                self._before = _read_state()
            self._limits[call] = 0

    def end(self, call: object) -> None:
        with self._lock:
            del self._limits[call]
            assert self._before is not None
            _set_recursion_limit(max([self._before.recursion_limit, *self._limits.values()]))
            if not self._limits:
                _restore(self._before)

    def set_recursion_limit(self, limit: int, /) -> None:
        """Replaces `sys.setrecursionlimit`."""
        call, limit = _call.get(), index(limit)
        with self._lock:
            if (call is None and not self._limits) or limit < 1:
                _set_recursion_limit(limit)
            elif call is None or call in self._limits:
                assert self._before is not None
                _set_recursion_limit(max([self._before.recursion_limit, limit, *self._limits.values()]))
                if call is not None:
                    self._limits[call] = limit


_calls = _Calls()


@contextmanager
def preserve_process_state() -> Iterator[None]:
    """Run user code inside this block, in this task or thread or in any other with its context."""
    call = object()
    _calls.begin(call)
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)
        _calls.end(call)


def _read_state() -> _State:
    directory = None
    with suppress(OSError):
        directory = os.getcwd()
    umask = os.umask(0o077)  # the only way to read it; a file created in between is private to its owner
    os.umask(umask)
    in_main = current_thread() is main_thread()
    return _State(
        recursion_limit=sys.getrecursionlimit(),
        digits=sys.get_int_max_str_digits(),
        switch_interval=sys.getswitchinterval(),
        directory=directory,
        umask=umask,
        locale=locale.setlocale(locale.LC_ALL),
        handlers={number: signal.getsignal(number) for number in _SIGNALS} if in_main else {},
    )


def _restore(state: _State) -> None:
    sys.set_int_max_str_digits(state.digits)
    sys.setswitchinterval(state.switch_interval)
    if state.directory is not None:
        with suppress(OSError):  # it may be gone
            os.chdir(state.directory)
    os.umask(state.umask)
    if locale.setlocale(locale.LC_ALL) != state.locale:
        with suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, state.locale)
    for number, handler in state.handlers.items():
        if handler is not None and signal.getsignal(number) != handler:  # None: not set by Python
            signal.signal(number, handler)
