"""Assertions that are Python functions of the project.

Rule 1  A function is found and imported like a Python tool. It gets a copy of the evidence.
Rule 2  None and True mean that the assertion is true. False, a text or an AssertionError mean that it is false. Any
        other return value or exception is an error in the function, and fails the assertion with `not-` too.
Rule 3  A function has no network in a replay and in CI, unless the assertion has `network: true`, because the verdict
        on an unchanged cassette must not depend on a server. An attempt fails the assertion, with `not-` too.

How the network is closed:

Rule 4  The guard is an audit hook. CPython calls it, in every thread, before Python code connects a socket, looks up a
        name or starts a program, so nothing has to be patched. A hook cannot be removed. It is installed for the first
        assertion that needs it, and returns at once unless an assertion runs.
Rule 5  The whole process is closed while a function runs, because threads do not inherit a context. agentrun itself
        does not use the network then. Threads that the function leaves behind stay closed.
Rule 6  Loopback is network. Unix sockets are not: event loops use them, and they stay on this machine.
Rule 7  Starting a program is refused too, because its network access cannot be controlled from this process.
Rule 8  An attempt counts even if the function catches the error.
Rule 9  A connection belongs to the assertion that opened it: it is shut down afterwards, so that a client with a pool
        of connections cannot carry one into an assertion without network.

This makes assertions reproducible. It is not a sandbox: native code that opens its own sockets is not noticed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from errno import EACCES
from functools import lru_cache
from inspect import isawaitable, iscoroutine
from linecache import getline
from pathlib import Path
from threading import Thread, current_thread
from threading import enumerate as running_threads
from typing import Any, NamedTuple
from weakref import WeakSet

from msgspec.structs import replace

from agentrun.compiler.python_functions import FunctionRefused, find_function
from agentrun.errors import ToolError
from agentrun.spec.project import Project
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.evidence import AssertionResult, CannotEvaluate, Evidence
from agentrun.tools.call_results import fault_from_exception
from agentrun.tools.captured_output import capture_output, preserve_process_state
from agentrun.tools.pinned_modules import ImportFailed, import_function

MAX_FUNCTION_TEXT = 300


class _FunctionPin(NamedTuple):
    module: str
    function: str
    source: str


def check_function(
    assertion: types.PythonAssertion, evidence: Evidence, project: Project, *, may_reach: bool
) -> AssertionResult:
    """`may_reach`: whether it may use the network without `network: true`."""
    with network_open() if assertion.network or may_reach else network_closed() as attempts:
        try:
            result = _call_function(assertion, evidence, project)
        except CannotEvaluate:
            if not attempts:
                raise
            result = None
    if result is None or attempts:
        attempt = evidence.quoted(attempts[0], MAX_FUNCTION_TEXT)
        message = f"{assertion.value} tried to {attempt}, but assertions have no network in a replay and in CI"
        raise CannotEvaluate(message, "add `network: true` to the assertion; the report then lists it as live")
    return result


def _call_function(assertion: types.PythonAssertion, evidence: Evidence, project: Project) -> AssertionResult:
    function, name = _load_function(project, assertion.value), assertion.value
    copy = replace(evidence, params=deepcopy(evidence.params), calls=deepcopy(evidence.calls))
    raised: BaseException | None = None
    returned: Any = None
    with capture_output() as output:
        try:
            returned = function(copy)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # any exception of the function is reported
            raised = error
        printed = output.end()
    if raised is not None and not isinstance(raised, AssertionError):
        message = f"{name} fails: {_exception_text(evidence, project, name, raised)}"
        raise CannotEvaluate(_add_printed(message, evidence, printed))
    if isawaitable(returned):
        if iscoroutine(returned):
            returned.close()
        raise CannotEvaluate(f"{name} is async", "write it as a plain function")
    if raised is None and not (returned is None or isinstance(returned, bool | str)):
        hint = "return None or True if the assertion is true, else False or a text with the reason"
        raise CannotEvaluate(f"{name} returns {type(returned).__name__}", hint)
    holds = raised is None and (returned is None or returned is True)

    def describe() -> str:
        if holds:
            return f"{name} passes"
        if raised:
            reason = _exception_text(evidence, project, name, raised)
        else:
            reason = evidence.quoted(returned or "", MAX_FUNCTION_TEXT)
        return _add_printed(f"{name}: {reason or 'it returned no reason'}", evidence, printed)

    return AssertionResult(holds, describe)


def _add_printed(line: str, evidence: Evidence, printed: str) -> str:
    lines = [evidence.quoted(f"  {each}", MAX_FUNCTION_TEXT) for each in printed.splitlines()[:20]]
    return "\n".join([line, *(["it printed:"] if lines else []), *lines])


def _exception_text(evidence: Evidence, project: Project, name: str, error: BaseException) -> str:
    fault = fault_from_exception(name, error, roots=_import_roots(project))
    message, at = fault.message, fault.fields.get("at")
    if isinstance(error, AssertionError):
        message = message.removeprefix("AssertionError: ")
        if message == "AssertionError" and at is not None:  # an assert without a message: show its source line
            message = _source_line(project, at) or message
    return evidence.quoted(message if at is None else f"{message} ({at})", MAX_FUNCTION_TEXT)


def _source_line(project: Project, at: str) -> str:
    file, _, line = at.rpartition(":")
    lines = (getline(str(root / file), int(line)).strip() for root in _import_roots(project))
    return next(filter(None, lines), "")


def _import_roots(project: Project) -> list[Path]:
    return [project.root / root for root in project.import_roots]


@lru_cache(maxsize=256)
def _load_function(project: Project, reference: str) -> Any:
    try:
        function = find_function(project, reference)
        pin = _FunctionPin(function.module, function.name, function.source)
        with preserve_process_state():
            return import_function(_import_roots(project), reference, pin, "assertion")
    except (FunctionRefused, ToolError) as error:
        raise CannotEvaluate(error.message, error.hint) from None
    except ImportFailed as error:
        fault = fault_from_exception(reference, error.error, roots=_import_roots(project))
        place = f" ({fault.fields['at']})" if "at" in fault.fields else ""
        raise CannotEvaluate(f"{reference.partition(':')[0]} cannot be imported: {fault.message}{place}") from None


# --- the network ------------------------------------------------------------------------------------------------------

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
