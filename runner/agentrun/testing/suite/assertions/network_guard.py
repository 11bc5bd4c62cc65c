"""Close the network for assertion functions of the project.

Rule 1  The guard is an audit hook. CPython calls it, in every thread, before Python code connects a socket, looks up a
        name or starts a program, so nothing has to be patched. A hook cannot be removed. It is installed for the first
        assertion that needs it, and returns at once unless an assertion runs.
Rule 2  The whole process is closed while a function runs, because threads do not inherit a context. agentrun itself
        does not use the network then. Threads that the function leaves behind stay closed.
Rule 3  Loopback is network. Unix sockets are not: event loops use them, and they stay on this machine.
Rule 4  Starting a program is refused too, because its network access cannot be controlled from this process.
Rule 5  An attempt counts even if the function catches the error.
Rule 6  A connection belongs to the assertion that opened it: it is shut down afterwards, so that a client with a pool
        of connections cannot carry one into an assertion without network.

This makes assertions reproducible. It is not a sandbox: native code that opens its own sockets is not noticed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES
from threading import Thread, current_thread
from threading import enumerate as running_threads
from typing import Any
from weakref import WeakSet

_NAMES = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"})
_ADDRESSES = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_PROGRAMS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn", "pty.spawn"})
_EVENTS = _NAMES | _ADDRESSES | _PROGRAMS | {"socket.__new__"}


class _Guard:
    def __init__(self) -> None:
        self.is_installed = False
        self.attempts: list[str] | None = None
        """Attempts of a function without network. None: there is no such function running."""
        self.sockets: WeakSet[socket.socket] | None = None
        """Sockets of a function with network. None: there is no such function running."""
        self.left_behind: WeakSet[Thread] = WeakSet()
        """Threads of functions without network."""

    def install(self) -> None:
        if not self.is_installed:
            sys.addaudithook(self.watch)
            self.is_installed = True

    def watch(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook. Raises PermissionError for a refused attempt."""
        if event not in _EVENTS:
            return
        if self.sockets is not None:
            if event == "socket.__new__" and args[1] in (socket.AF_INET, socket.AF_INET6):
                with suppress(TypeError):  # the class in C has no weak references
                    self.sockets.add(args[0])
            return
        attempts = self.attempts
        if attempts is None and (not self.left_behind or current_thread() not in self.left_behind):
            return
        attempt = _attempt(event, args)
        if attempt is None:
            return
        if attempts is not None:
            attempts.append(attempt)
        raise PermissionError(EACCES, f"this assertion has no network, but tried to {attempt}")


_guard = _Guard()


@contextmanager
def network_closed() -> Iterator[list[str]]:
    """Run functions without network. The list gets their attempts."""
    _guard.install()
    before = set(running_threads())
    attempts: list[str] = []
    _guard.attempts = attempts
    try:
        yield attempts
    finally:
        _guard.attempts = None
        _guard.left_behind.update(set(running_threads()) - before)


@contextmanager
def network_open() -> Iterator[list[str]]:
    """Run functions with the network, and shut down the connections that they leave open. The list stays empty."""
    _guard.install()
    sockets: WeakSet[socket.socket] = WeakSet()
    _guard.sockets = sockets
    try:
        yield []
    finally:
        _guard.sockets = None
        for each in list(sockets):
            with suppress(OSError):  # it is closed or was never connected
                each.shutdown(socket.SHUT_RDWR)


def _attempt(event: str, args: tuple[Any, ...]) -> str | None:
    """The attempt in words. None: it is allowed."""
    if event in _NAMES:
        return f"reach {_host(args[0] if isinstance(args[0], tuple) else args[:2])}"
    if event in _ADDRESSES:
        if not isinstance(args[1], tuple):  # a path, or no address because the socket is connected
            return None
        return f"{'listen on' if event == 'socket.bind' else 'reach'} {_host(args[1])}"
    if event in _PROGRAMS:
        program = "a shell" if event == "os.system" else os.path.basename(os.fsdecode(args[0]))
        return f"start {program}, which could reach the network"
    return None


def _host(address: tuple[Any, ...]) -> str:
    host, port = (*address, None)[:2]
    host = "" if host is None else host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port is not None else host
