"""Finds and calls a Python function: what comes of it is a result or a fault, whatever it does."""

from __future__ import annotations

import os
from asyncio import CancelledError, create_task, current_task
from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from pathlib import Path
from typing import Any, NamedTuple

from agentrun.core.effects import ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.errors import ToolError
from agentrun.tools.call_results import NotSerializable, fault_from_exception, result_text
from agentrun.tools.pinned_modules import FunctionPin, ImportFailed, import_function
from agentrun.tools.threads import exit_if_forked


def load_function(roots: Sequence[Path], name: str, pin: FunctionPin) -> Callable[..., Any] | ToolReturn:
    """The function of a tool, or why it cannot be called."""
    try:
        return import_function(roots, name, pin)
    except ToolError as error:
        return ToolReturn(fault=Fault(error.code, error.message, error.fields, error.hint))
    except ImportFailed as failed:
        return ToolReturn(
            fault=fault_from_exception(name, failed.error, f"{pin.module} cannot be imported: ", roots=roots)
        )


def call_function(
    name: str, function: Callable[..., Any], arguments: dict[str, Any], roots: Sequence[Path] = ()
) -> ToolReturn | Awaitable[object]:
    """What a function gives, or what has to be awaited for it. `roots`: where its code is."""
    try:
        if iscoroutinefunction(function):
            return _DeferredCall(function, arguments)
        result = function(**arguments)
        return result if isawaitable(result) else _to_returned(name, result)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the function's
        return ToolReturn(fault=fault_from_exception(name, error, roots=roots))


async def await_result(name: str, answer: Awaitable[object], roots: Sequence[Path] = ()) -> ToolReturn:
    """What is given by what has to be awaited."""
    came = await run_in_task(answer, lambda result: _to_returned(name, result))
    return came.value if came.error is None else ToolReturn(fault=fault_from_exception(name, came.error, roots=roots))


class AwaitedResult(NamedTuple):
    """What comes of something that has to be awaited."""

    value: Any = None
    error: BaseException | None = None
    """What it raised, whatever it is: a signal raises nothing here."""


async def run_in_task(answer: Awaitable[object], read: Callable[[Any], Any] = lambda value: value) -> AwaitedResult:
    """Await something in a task of its own: it may cancel the one that it is in. Raises when nobody waits any more.

    `read` makes the value of what it gives.
    """
    owner = os.getpid()

    async def tried() -> AwaitedResult:
        try:
            return AwaitedResult(read(await answer))
        except CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # it is the function's; one that is closed may end so too
            return AwaitedResult(error=error)
        finally:
            exit_if_forked(owner)

    here = current_task()
    try:
        return await create_task(tried())
    except CancelledError as error:
        if here is None or here.cancelling():
            raise
        return AwaitedResult(error=error)
    finally:
        if iscoroutine(answer):
            answer.close()  # nobody may have come to it


class _DeferredCall:
    """A call of an async function, made when it is awaited: nothing is left over when nobody does."""

    def __init__(self, function: Callable[..., Awaitable[object]], arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = arguments

    def __await__(self) -> Generator[Any, Any, object]:
        return self._function(**self._arguments).__await__()


def _to_returned(name: str, result: object) -> ToolReturn:
    try:
        return ToolReturn((Text(result_text(result)),))
    except NotSerializable as error:
        return ToolReturn(fault=Fault("tool.execution", str(error), {"tool": name}))
