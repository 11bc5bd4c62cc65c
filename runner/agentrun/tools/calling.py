"""Finds and calls a Python function: what comes of it is a result or a fault, whatever it does."""

from __future__ import annotations

import os
from asyncio import CancelledError, current_task
from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from typing import Any

from agentrun.core.effects import Returned
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Text
from agentrun.errors import ToolError
from agentrun.tools.modules import ImportFailed, Pin, function_of
from agentrun.tools.raised import fault_of
from agentrun.tools.threads import end_copies
from agentrun.tools.values import NoText, as_text


def found_function(roots: Sequence[Path], name: str, pin: Pin) -> Callable[..., Any] | Returned:
    """The function of a tool, or why it cannot be called."""
    try:
        return function_of(roots, name, pin)
    except ToolError as error:
        return Returned(fault=Fault(error.code, error.message, error.fields, error.hint))
    except ImportFailed as failed:
        return Returned(fault=fault_of(name, failed.error, f"{pin.module} cannot be imported: "))


def called(name: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Returned | Awaitable[object]:
    """What a function gives, or what has to be awaited for it."""
    try:
        if iscoroutinefunction(function):
            return _Later(function, arguments)
        result = function(**arguments)
        return result if isawaitable(result) else _given(name, result)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the function's
        return Returned(fault=fault_of(name, error))


async def finished(name: str, answer: Awaitable[object]) -> Returned:
    """What is given by what has to be awaited."""
    owner = os.getpid()
    try:
        return _given(name, await answer)
    except BaseException as error:  # whatever it is, it is the function's: a signal raises nothing here
        if is_stopped(error):
            raise
        return Returned(fault=fault_of(name, error))
    finally:
        end_copies(owner)


def is_stopped(error: BaseException) -> bool:
    """Whether something that is awaited ends because nobody waits any more. It may raise the same by itself."""
    task = current_task()
    is_cancelled = task is not None and bool(task.cancelling())
    return isinstance(error, GeneratorExit) or (isinstance(error, CancelledError) and is_cancelled)


class _Later:
    """A call of an async function, made when it is awaited: nothing is left over when nobody does."""

    def __init__(self, function: Callable[..., Awaitable[object]], arguments: dict[str, Any]) -> None:
        self._function = function
        self._arguments = arguments

    def __await__(self) -> Generator[Any, Any, object]:
        return self._function(**self._arguments).__await__()


def _given(name: str, result: object) -> Returned:
    try:
        return Returned((Text(as_text(result)),))
    except NoText as error:
        return Returned(fault=Fault("tool.execution", str(error), {"tool": name}))
