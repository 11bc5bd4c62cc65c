"""Find and call a Python function. The outcome is always a result or a fault."""

from __future__ import annotations

import os
from asyncio import CancelledError, create_task, wait
from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from pathlib import Path
from typing import Any, NamedTuple

from agentrun.core import model_texts as texts
from agentrun.core.effects import ToolReturn
from agentrun.core.fault import fault_of
from agentrun.core.messages import Text
from agentrun.errors import ToolError
from agentrun.tools.call_results import NotSerializable, failed_call, fault_from_exception, result_text
from agentrun.tools.pinned_modules import FunctionPin, ImportFailed, import_function
from agentrun.tools.threads import exit_if_forked

STOP_SECONDS = 1.0
"""Seconds that an async function may take to end after it was cancelled. Then it is abandoned."""


def load_function(roots: Sequence[Path], name: str, pin: FunctionPin) -> Callable[..., Any] | ToolReturn:
    """The function of a tool, or a result with the reason why it cannot be called."""
    try:
        return import_function(roots, name, pin)
    except ToolError as error:
        return ToolReturn(fault=fault_of(error))
    except ImportFailed as failed:
        where = texts.IMPORT_FAILED.format(pin.module)
        return ToolReturn(fault=fault_from_exception(name, failed.error, where, roots=roots))


def call_function(
    name: str, function: Callable[..., Any], arguments: dict[str, Any], roots: Sequence[Path] = ()
) -> ToolReturn | Awaitable[object]:
    """Call a function. Returns its result, or an awaitable. `roots`: the folders of its code."""
    try:
        if iscoroutinefunction(function):
            return _DeferredCall(function, arguments)
        result = function(**arguments)
        return result if isawaitable(result) else to_returned(name, result)
    except BaseException as error:  # noqa: BLE001  # user code may raise anything
        return ToolReturn(fault=fault_from_exception(name, error, roots=roots))


async def await_result(name: str, answer: Awaitable[object], roots: Sequence[Path] = ()) -> ToolReturn:
    result = await run_in_task(answer, lambda value: to_returned(name, value))
    if result.error is not None:
        return ToolReturn(fault=fault_from_exception(name, result.error, roots=roots))
    return result.value  # type: ignore[no-any-return]  # made by `to_returned`


class AwaitedResult(NamedTuple):
    value: Any = None
    error: BaseException | None = None


async def run_in_task(answer: Awaitable[object], read: Callable[[Any], Any] = lambda value: value) -> AwaitedResult:
    """Await in a separate task, because user code may cancel its own task or ignore that it is cancelled. A
    cancellation of the caller is raised.

    `read` converts the value.
    """
    owner = os.getpid()

    async def tried() -> AwaitedResult:
        try:
            return AwaitedResult(read(await answer))
        except CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # user code may raise anything, even when it is closed
            return AwaitedResult(error=error)
        finally:
            exit_if_forked(owner)

    task = create_task(tried())
    try:
        await wait((task,))
        return AwaitedResult(error=CancelledError()) if task.cancelled() else task.result()
    except CancelledError:
        task.cancel()
        await wait((task,), timeout=STOP_SECONDS)
        raise
    finally:
        if iscoroutine(answer) and task.done():
            answer.close()  # it may not have been started


class _DeferredCall:
    """A call of an async function that happens when it is awaited. If it never is, no open coroutine is left."""

    def __init__(self, function: Callable[..., Awaitable[object]], arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = arguments

    def __await__(self) -> Generator[Any, Any, object]:
        return self._function(**self._arguments).__await__()


def to_returned(name: str, result: object) -> ToolReturn:
    try:
        return ToolReturn((Text(result_text(result)),))
    except NotSerializable as error:
        return failed_call(name, str(error))
