"""Runs Python functions.

Rule 1  A function runs in a thread of its own that no exit of the process waits for; an async function runs on the
        event loop, after its module was imported in such a thread.
Rule 2  What it raises, also `SystemExit` or `KeyboardInterrupt`, is a fault: one line, no traceback, no secret. Only
        `ToolError` with a code of `SAYS` is taken at its word: that is how a tool ends the run.
Rule 3  When nobody waits any more, what it still gives is dropped.
Rule 4  What it prints is for `printed` alone.
Rule 5  What it says is cleaned whole, before any of it is cut: half of a secret is known to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Text
from agentrun.core.package_tools import PythonTool
from agentrun.errors import ToolError
from agentrun.secret import mask
from agentrun.tools.modules import ImportFailed, function_of
from agentrun.tools.printed import kept
from agentrun.tools.values import NoText, as_text

T = TypeVar("T")

SAYS = ("tool.execution", "tool.fatal", "tool.aborted")
"""What a function may raise a `ToolError` with."""
LONGEST_MESSAGE = 300


def _unheard(tool: str, text: str) -> None:
    """Nobody reads what is printed."""


def _as_it_is(text: str) -> str:
    return text


class PythonTools:
    """Runs Python functions found under the import roots."""

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        printed: Callable[[str, str], None] = _unheard,
        clean: Callable[[str], str] = _as_it_is,
    ) -> None:
        """`printed` hears the name of a tool and what one call of it printed, without secrets.

        `clean` takes out of a text what must not be shown, beyond what has the shape of a secret.
        """
        self._roots = tuple(root.resolve() for root in roots)
        self._printed = printed
        self._clean = clean
        self._functions: dict[tuple[str, str, str], Callable[..., Any]] = {}

    async def run(self, call: RunTool) -> Returned:
        tool = call.tool
        assert isinstance(tool, PythonTool)
        if tool.isolation != "thread":
            message = f"this version cannot run {call.name}: isolation: {tool.isolation}"
            fields = {"name": f"isolation: {tool.isolation}", "tool": call.name}
            return Returned(fault=Fault("host.missing", message, fields, "take isolation out of the tool"))
        with kept(self._clean) as output:
            try:
                answer = await _in_thread(lambda: self._begin(call, tool), f"tool {call.name} {call.id}")
                return answer if isinstance(answer, Returned) else await self._finished(call, answer)
            finally:
                if text := output.end():
                    with suppress(Exception):  # who listens may fail; the call did not
                        self._printed(call.name, text)

    def _begin(self, call: RunTool, tool: PythonTool) -> Returned | Awaitable[object]:
        """Call the function, in a thread. What has to be awaited is left to the event loop."""
        try:
            function = self._function(call.name, tool)
        except ToolError as error:
            return Returned(fault=Fault(error.code, error.message, error.fields, error.hint))
        except ImportFailed as failed:
            return self._raised(call, failed.error, f"{tool.module} cannot be imported: ")
        try:
            if iscoroutinefunction(function):
                return _Later(function, call.arguments)
            result = function(**call.arguments)
            return result if isawaitable(result) else _given(call, result)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the function's
            return self._raised(call, error)

    def _function(self, name: str, tool: PythonTool) -> Callable[..., Any]:
        key = tool.module, tool.function, tool.source
        if key not in self._functions:
            self._functions[key] = function_of(self._roots, name, tool)
        return self._functions[key]

    async def _finished(self, call: RunTool, answer: Awaitable[object]) -> Returned:
        try:
            return _given(call, await answer)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # an interrupt is the user's, a cancellation the run's
            return self._raised(call, error)

    def _raised(self, call: RunTool, error: BaseException, where: str = "") -> Returned:
        if isinstance(error, ToolError) and error.code in SAYS:
            message = _line(self._clean(error.message))
            fields = {"tool": call.name, "reason": message, **error.fields}
            return Returned(fault=Fault(error.code, message, fields, error.hint))
        kind = type(error).__name__
        try:
            words = self._clean(str(error))
        except BaseException:  # noqa: BLE001  # its __str__ is the function's code too
            words = "it cannot say what happened"
        message = _line(f"{where}{kind}: {words}" if words else f"{where}{kind}")
        return Returned(fault=Fault("tool.execution", message, {"tool": call.name, "error": kind}))


class _Later:
    """A call of an async function, made when it is awaited: nothing is left over when nobody does."""

    def __init__(self, function: Callable[..., Awaitable[object]], arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = arguments

    def __await__(self) -> Generator[Any, Any, object]:
        return self._function(**self._arguments).__await__()


async def _in_thread(work: Callable[[], T], name: str) -> T:
    """What some work gives that never raises. An exit of the process does not wait for it: it may hang for ever."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(result: T) -> None:
        if done.done():
            _drop(result)
        else:
            done.set_result(result)

    def body() -> None:
        result = work()
        try:
            loop.call_soon_threadsafe(end, result)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _drop(result)

    Thread(target=copy_context().run, args=(body,), name=name, daemon=True).start()
    return await done


def _drop(result: object) -> None:
    if iscoroutine(result):
        result.close()  # or Python complains that nobody awaited it


def _given(call: RunTool, result: object) -> Returned:
    try:
        return Returned((Text(as_text(result)),))
    except NoText as error:
        return Returned(fault=Fault("tool.execution", _line(str(error)), {"tool": call.name}))


def _line(text: str) -> str:
    """A message without secrets that any journal can hold, and not all of it if it is long."""
    return mask(text).encode("utf-8", "replace").decode()[:LONGEST_MESSAGE]
