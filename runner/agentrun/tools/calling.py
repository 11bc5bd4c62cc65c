"""Finds and calls a Python function: what comes of it is a result or a fault, whatever it does."""

from __future__ import annotations

import os
from asyncio import CancelledError, create_task, current_task
from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from pathlib import Path
from typing import Any, NamedTuple

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
        return Returned(fault=fault_of(name, failed.error, f"{pin.module} cannot be imported: ", roots=roots))


def called(
    name: str, function: Callable[..., Any], arguments: dict[str, Any], roots: Sequence[Path] = ()
) -> Returned | Awaitable[object]:
    """What a function gives, or what has to be awaited for it. `roots`: where its code is."""
    try:
        if iscoroutinefunction(function):
            return _Later(function, arguments)
        result = function(**arguments)
        return result if isawaitable(result) else _given(name, result)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the function's
        return Returned(fault=fault_of(name, error, roots=roots))


async def finished(name: str, answer: Awaitable[object], roots: Sequence[Path] = ()) -> Returned:
    """What is given by what has to be awaited."""
    came = await in_task(answer, lambda result: _given(name, result))
    return came.value if came.error is None else Returned(fault=fault_of(name, came.error, roots=roots))


class Came(NamedTuple):
    """What comes of something that has to be awaited."""

    value: Any = None
    error: BaseException | None = None
    """What it raised, whatever it is: a signal raises nothing here."""


async def in_task(answer: Awaitable[object], read: Callable[[Any], Any] = lambda value: value) -> Came:
    """Await something in a task of its own: it may cancel the one that it is in. Raises when nobody waits any more.

    `read` makes the value of what it gives.
    """
    owner = os.getpid()

    async def tried() -> Came:
        try:
            return Came(read(await answer))
        except CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # it is the function's; one that is closed may end so too
            return Came(error=error)
        finally:
            end_copies(owner)

    here = current_task()
    try:
        return await create_task(tried())
    except CancelledError as error:
        if here is None or here.cancelling():
            raise
        return Came(error=error)
    finally:
        if iscoroutine(answer):
            answer.close()  # nobody may have come to it


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
