"""Capture the output of user functions, because the output of the process is reserved for the answer.

Every call of user code in this process runs inside `capture_output()`, which also restores other process state. Output
is captured in every thread or task with the context of the call: at most 64 KiB, without a partial word at the end,
which may be a part of a credential. Other code writes to the real streams, even at the same time.

Rule 1  There is one recursion limit for all threads. A call may raise it while it runs. It is never lower than before,
        because the event loop runs at the same time and would fail.
Rule 2  The working directory, the umask, the locale, signal handlers and the other interpreter limits are restored when
        the last running call ends, to their values before the first one. Not earlier, because another running call may
        depend on its own changes.
Rule 3  A call that timed out or was cancelled has ended. If it sets the recursion limit later, that has no effect.
"""

from __future__ import annotations

import io
import locale
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from operator import index
from threading import Lock, current_thread, main_thread
from typing import Any, NamedTuple, TextIO

from agentrun.secret import mask

MAX_CAPTURED_BYTES = 64 * 1024
TRUNCATED_NOTE = "[… the rest of the output was discarded …]\n"
_current: ContextVar[CapturedOutput | None] = ContextVar("printed", default=None)
_set_recursion_limit = sys.setrecursionlimit
"""The original function."""
_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
"""The signals that programs handle. Reading all 64 would take longer than most calls."""
_get_handler: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""`signal.getsignal` without the conversion to an enum, which takes longer than the rest of a short call."""
_call: ContextVar[object | None] = ContextVar("call", default=None)


class CapturedOutput(io.RawIOBase):
    """Captures output up to a limit. It accepts bytes; `stream` accepts text."""

    def __init__(self, most: int = MAX_CAPTURED_BYTES, clean: Callable[[str], str] = lambda text: text) -> None:
        super().__init__()
        self._most = most
        self._clean = clean
        self._kept = bytearray()
        self._over = False
        raw: Any = self  # a stream without a buffer, as with `python -u`; typeshed does not allow it
        self.stream: TextIO = io.TextIOWrapper(
            raw, encoding="utf-8", errors="backslashreplace", newline="", write_through=True
        )

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        room = max(self._most - len(self._kept), 0)
        self._kept += view[:room]
        self._over = self._over or (len(view) > room and self._most > 0)
        return len(view)

    @property
    def text(self) -> str:
        """The output without secrets."""
        text = self._kept.decode("utf-8", "replace")
        if not self._over:
            return mask(self._clean(text))
        whole = text[: -len(text.split()[-1])] if text and not text[-1].isspace() else text
        whole = self._clean(whole)
        return mask(whole) + ("" if whole.endswith("\n") or not whole else "\n") + TRUNCATED_NOTE

    def end(self) -> str:
        """Return the output and drop everything that follows."""
        text = self.text
        self._most = 0
        return text


class _SwitchedStream:
    """Replaces `sys.stdout` or `sys.stderr`: inside `capture_output()` it writes to a different stream from outside."""

    def __init__(self, outside: Any) -> None:
        self._outside = CapturedOutput(0).stream if outside is None else outside  # a program without a console has None

    def _stream(self) -> Any:
        printed = _current.get()
        return self._outside if printed is None else printed.stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def __enter__(self) -> Any:
        return self._stream().__enter__()

    def __exit__(self, *failure: object) -> Any:
        return self._stream().__exit__(*failure)


@contextmanager
def capture_output(
    clean: Callable[[str], str] = lambda text: text, report: Callable[[str], None] = lambda text: None
) -> Iterator[CapturedOutput]:
    """Capture the output from here on. `clean` redacts it; `report` gets it at the end, unless it is empty."""
    sys.stdout, sys.stderr = streams = switchable_stream(sys.stdout), switchable_stream(sys.stderr)
    printed = CapturedOutput(clean=clean)
    token = _current.set(printed)
    try:
        with preserve_process_state():
            yield printed
    finally:
        _current.reset(token)
        sys.stdout, sys.stderr = streams
        if text := printed.end():
            with suppress(Exception):  # a failing listener does not fail the call
                report(text)


def switchable_stream(stream: Any) -> Any:
    """The stream for code outside of `capture_output()`."""
    return stream if isinstance(stream, _SwitchedStream) else _SwitchedStream(stream)


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
        handlers={number: _get_handler(number) for number in _SIGNALS} if in_main else {},
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
        if handler is not None and _get_handler(number) != handler:  # None: not set by Python
            signal.signal(number, handler)
