"""Run tool calls and report their progress.

Rule 1  A failed call is a result for the model: the code and one line, without traceback and without secrets.
Rule 2  A tool gets a copy of its arguments, so it cannot change them.
Rule 3  If the outcome of a call is unknown and the call must not be repeated, it is lost and a person has to decide.
Rule 4  Secrets are redacted before a long result is truncated, because a part of a secret could not be recognised.
Rule 5  A call that shares the result of an identical one does not run, and a cassette does not contain it. Earlier
        releases ran and recorded every call: a result of its own on such a cassette is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from typing import Any, Protocol, runtime_checkable

from msgspec import convert, to_builtins
from msgspec.structs import replace

from agentrun.core import model_texts as texts
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished, WorkLost
from agentrun.core.fault import Fault, fault_of
from agentrun.core.package import tool_effect
from agentrun.core.package_tools import PythonTool
from agentrun.core.tool_results import clip_parts, fault_parts
from agentrun.engine.clock import StepClock
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout, is_valid_fault
from agentrun.engine.ports import Blobs, Clock, Executor, ToolProgress
from agentrun.engine.world import World, find_executor
from agentrun.errors import AgentrunError
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible

MAX_PROGRESS_TEXT = 300
PROGRESS_GAP_MS = 100
"""Minimum of milliseconds between two progress lines."""
MAX_PROGRESS_LINES = 1000


async def run_tool(world: World, effect: RunTool) -> ToolFinished | WorkLost:
    executor = find_executor(world, effect.name, effect.tool)
    if effect.shared is not None and not has_recorded_result(executor, effect):
        shared = effect.shared.returned
        return ToolFinished(effect.id, shared.parts, shared.fault, shared.whole)
    returned = await call_with_timeout(world.clock, effect.tool.timeout, lambda: call_executor(executor, effect))
    if isinstance(returned, TimedOut):
        fault = tool_timeout_fault(effect)
        return ToolFinished(effect.id, fault_parts(fault), fault)
    if isinstance(returned, RaisedException):
        returned = _result_of_exception(effect, returned)
    returned = _complete_fault(effect, returned)
    if returned.fault is not None and returned.fault.code == "tool.indeterminate":
        if tool_effect(effect.tool, effect.name) == "at_most_once":
            return WorkLost(effect.id)
        returned = ToolReturn(returned.parts, tool_execution_fault(effect, returned.fault.message, reason="no_reply"))
    cut = truncate_result(world.redactor.redact_struct(returned), world.blobs, effect)
    return ToolFinished(effect.id, cut.parts, cut.fault, cut.whole)


def tool_timeout_fault(effect: RunTool) -> Fault:
    limit = effect.tool.timeout
    fields: dict[str, Any] = {"tool": effect.name, "limit": limit}
    if isinstance(effect.tool, PythonTool) and effect.tool.isolation == "thread":
        fields["abandoned"] = True  # a thread cannot be stopped: it may still be running
    return Fault("tool.timeout", texts.TIMED_OUT.format(limit), fields)


class TruncatingExecutor:
    """An executor whose results are already truncated. `whole` in the results of other executors is ignored."""


@runtime_checkable
class RecordedExecutor(Protocol):
    """An executor that replays a cassette."""

    def has_recorded_result(self, call: RunTool) -> bool:
        """Whether a call that shares a result has one of its own."""


def has_recorded_result(executor: Executor, call: RunTool) -> bool:
    return isinstance(executor, RecordedExecutor) and executor.has_recorded_result(call)


def truncate_result(returned: ToolReturn, blobs: Blobs, effect: RunTool) -> ToolReturn:
    if returned.whole is not None:
        return returned
    parts = returned.parts or (fault_parts(returned.fault) if returned.fault else ())
    read, whole = clip_parts(parts, effect.max_lines, effect.max_bytes)
    return ToolReturn(read, returned.fault, None if whole is None else blobs.put(whole))


async def call_executor(executor: Executor, effect: RunTool) -> ToolReturn:
    copied = replace(effect, arguments=deepcopy(effect.arguments))
    answer = await call_guarded(lambda: executor.run(copied))
    if isinstance(answer, RaisedException):
        return _result_of_exception(effect, answer)
    returned = _validate_result(answer) or ToolReturn(fault=tool_execution_fault(effect, texts.INVALID_RESULT))
    return returned if isinstance(executor, TruncatingExecutor) else replace(returned, whole=None)


def _complete_fault(effect: RunTool, returned: ToolReturn) -> ToolReturn:
    """A fault that ends the run has the tool and the reason, whatever the executor gave."""
    fault = returned.fault
    if fault is None or fault.code not in ("tool.fatal", "tool.aborted"):
        return returned
    fields = {"reason": fault.message, **fault.fields, "tool": effect.name}
    return replace(returned, fault=replace(fault, fields=fields))


def _result_of_exception(effect: RunTool, raised: RaisedException) -> ToolReturn:
    if isinstance(raised.error, AgentrunError):
        return ToolReturn(fault=fault_of(raised.error))
    return ToolReturn(fault=tool_execution_fault(effect, raised.message, error=raised.kind))


def tool_execution_fault(effect: RunTool, message: str, **fields: str) -> Fault:
    return Fault("tool.execution", message, {"tool": effect.name, **fields})


def _validate_result(answer: object) -> ToolReturn | None:
    """The result of a tool if it is valid. Tools are user code, so nothing is assumed about their results."""
    if not isinstance(answer, ToolReturn):
        return None
    try:
        returned = convert(to_builtins(answer), ToolReturn)
    except (TypeError, ValueError, RecursionError):
        return None
    return returned if returned.fault is None or is_valid_fault(returned.fault) else None


class CallProgress:
    def __init__(self, world: World, call: RunTool) -> None:
        self._world = world
        self._call = call
        self._next = 0
        """Lines before this moment are dropped."""
        self._left = MAX_PROGRESS_LINES
        self._closed = False
        self._schedule = _scheduler(world.clock)

    def __call__(self, text: str) -> None:
        now = self._world.clock.now()
        if self._closed or now < self._next or not self._left:
            return
        self._next = now + PROGRESS_GAP_MS
        self._left -= 1
        self._schedule(lambda: self._publish(text))

    def close(self) -> None:
        self._closed = True

    def _publish(self, text: str) -> None:
        clean = mask(self._world.redactor.redact_string(text)).encode("utf-8", "replace").decode()
        line = escape_invisible(clean)[:MAX_PROGRESS_TEXT]
        run = self._world.run
        with suppress(Exception):  # a listener cannot make a call fail
            self._world.listen(run, ToolProgress(run, self._call.id, self._call.name, line))


def _scheduler(clock: Clock) -> Callable[[Callable[[], None]], object]:
    """Listeners run in the current context. In the context of the tool, their output would be captured as its own."""
    if isinstance(clock, StepClock):
        return lambda publish: publish()
    from asyncio import get_running_loop  # late: a step clock needs no event loop

    return partial(get_running_loop().call_soon_threadsafe, context=copy_context())
