"""Runs calls.

Rule 1  What a tool does wrong is a result that the model reads: its code and one line, no traceback, no secret.
Rule 2  A tool that says that the run must end is taken at its word: such faults pass unchanged.
Rule 3  A tool gets a copy of its arguments: what it does to them changes nothing.
Rule 4  A call that must not be repeated and whose outcome its tool does not know is lost: somebody has to decide.
Rule 5  The model reads as much as is allowed; when that is not all, the whole text is kept as a blob. What must not be
        shown is taken out before anything is cut: half of a secret is known to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from functools import partial

from msgspec import convert, to_builtins
from msgspec.structs import replace

from agentrun.cassette.redaction import redact_text
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished, WorkLost
from agentrun.core.fault import Fault
from agentrun.core.messages import Content
from agentrun.core.package_lookup import tool_effect
from agentrun.core.package_tools import PythonTool
from agentrun.core.tool_results import clip_parts, fault_parts
from agentrun.engine.clock import StepClock
from agentrun.engine.fact_redaction import redact_struct
from agentrun.engine.guarded_call import RaisedException, TimedOut, call_guarded, call_with_timeout, is_valid_fault
from agentrun.engine.ports import Blobs, Executor, ToolProgress
from agentrun.engine.world import World, find_executor
from agentrun.errors import AgentrunError
from agentrun.secret import mask
from agentrun.spec.problems import escape_invisible


async def run_tool(world: World, effect: RunTool) -> ToolFinished | WorkLost:
    executor = find_executor(world, effect.name, effect.tool)
    limit = effect.tool.timeout
    returned = await call_with_timeout(world.clock, limit, lambda: call_executor(executor, effect))
    if isinstance(returned, TimedOut):
        fault = tool_timeout_fault(effect)
        return ToolFinished(effect.id, fault_parts(fault), fault)
    if isinstance(returned, RaisedException):
        returned = _result_of_exception(effect, returned)
    if returned.fault is not None and returned.fault.code == "tool.indeterminate":
        if tool_effect(effect.tool, effect.name) == "at_most_once":
            return WorkLost(effect.id)
        returned = ToolReturn(returned.parts, tool_execution_fault(effect, returned.fault.message, reason="no_reply"))
    cut = truncate_result(redact_struct(world.redactor, returned), world.blobs, effect)
    return ToolFinished(effect.id, cut.parts, cut.fault, cut.whole)


def tool_timeout_fault(effect: RunTool) -> Fault:
    """That a call took too long."""
    limit = effect.tool.timeout
    message = f"the call took longer than {limit} ms and was stopped"
    return Fault("tool.timeout", message, {"tool": effect.name, "limit": limit, **_abandoned_field(effect)})


def _abandoned_field(effect: RunTool) -> dict[str, bool]:
    """A thread cannot be stopped: what it still does is not known, and what it still gives is dropped."""
    in_thread = isinstance(effect.tool, PythonTool) and effect.tool.isolation == "thread"
    return {"abandoned": True} if in_thread else {}


class TruncatingExecutor:
    """An executor whose results are what the model reads. Any other is foreign, and not taken at its word."""


def truncate_result(returned: ToolReturn, blobs: Blobs, effect: RunTool) -> ToolReturn:
    """What the model reads of a result."""
    if returned.whole is not None:
        return returned
    parts = returned.parts or (fault_parts(returned.fault) if returned.fault else ())
    read, blob = truncate_parts(blobs, parts, effect.max_lines, effect.max_bytes)
    return ToolReturn(read, returned.fault, blob)


async def call_executor(executor: Executor, effect: RunTool) -> ToolReturn:
    """What a tool gave, whatever it did."""
    copied = replace(effect, arguments=deepcopy(effect.arguments))
    answer = await call_guarded(lambda: executor.run(copied))
    if isinstance(answer, RaisedException):
        return _result_of_exception(effect, answer)
    returned = _validate_result(answer) or ToolReturn(
        fault=tool_execution_fault(effect, "the tool gave something that is not a result")
    )
    return returned if isinstance(executor, TruncatingExecutor) else replace(returned, whole=None)


def _result_of_exception(effect: RunTool, raised: RaisedException) -> ToolReturn:
    if isinstance(raised.error, AgentrunError):
        error = raised.error
        return ToolReturn(fault=Fault(error.code, error.message, error.fields, error.hint))
    return ToolReturn(fault=tool_execution_fault(effect, raised.message, error=raised.kind))


def tool_execution_fault(effect: RunTool, message: str, **fields: str) -> Fault:
    return Fault("tool.execution", message, {"tool": effect.name, **fields})


def truncate_parts(
    blobs: Blobs, parts: tuple[Content, ...], max_lines: int, max_bytes: int
) -> tuple[tuple[Content, ...], str | None]:
    """What the model reads of a result, and the blob with all its text when that is not all."""
    read, whole = clip_parts(parts, max_lines, max_bytes)
    return read, None if whole is None else blobs.put(whole)


def _validate_result(answer: object) -> ToolReturn | None:
    """What a tool gave, if it is what the types say: tools are foreign code."""
    if not isinstance(answer, ToolReturn):
        return None
    try:
        returned = convert(to_builtins(answer), ToolReturn)
    except (TypeError, ValueError, RecursionError):
        return None
    return returned if returned.fault is None or is_valid_fault(returned.fault) else None


# --- what calls say about how far they are, on its way to whoever listens -------------------------------------


MAX_PROGRESS_TEXT = 300
"""Characters of what is told."""
PROGRESS_GAP_MS = 100
"""Milliseconds between two."""
MAX_PROGRESS_LINES = 1000
"""Of one call."""


class CallProgress:
    """What one call says."""

    def __init__(self, world: World, run: str, call: RunTool) -> None:
        self._world = world
        self._run = run
        self._call = call
        self._next = 0
        """Nothing is told before this moment."""
        self._left = MAX_PROGRESS_LINES
        self._closed = False
        self._schedule = _call_now if isinstance(world.clock, StepClock) else _loop_scheduler()

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
        clean = mask(redact_text(text, self._world.redactor)).encode("utf-8", "replace").decode()
        line = escape_invisible(clean)[:MAX_PROGRESS_TEXT]
        with suppress(Exception):  # who listens cannot make a call fail
            self._world.listen(self._run, ToolProgress(self._run, self._call.id, self._call.name, line))


def _call_now(tell: Callable[[], None]) -> None:
    tell()


def _loop_scheduler() -> Callable[[Callable[[], None]], object]:
    """In the context of now: in that of the tool, what a listener prints would count as printed by the tool."""
    from asyncio import get_running_loop  # late: a clock moved by hand needs no event loop

    return partial(get_running_loop().call_soon_threadsafe, context=copy_context())
