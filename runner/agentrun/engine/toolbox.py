"""Runs calls.

Rule 1  What a tool does wrong is a result that the model reads: its code and one line, no traceback, no secret.
Rule 2  A tool that says that the run must end is taken at its word: such faults pass unchanged.
Rule 3  A tool gets a copy of its arguments: what it does to them changes nothing.
Rule 4  A call that must not be repeated and whose outcome its tool does not know is lost: somebody has to decide.
Rule 5  The model reads as much as is allowed; when that is not all, the whole text is kept as a blob. What must not be
        shown is taken out before anything is cut: half of a secret is known to nobody.
"""

from __future__ import annotations

from copy import deepcopy

from msgspec import convert, to_builtins
from msgspec.structs import replace

from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished, WorkLost
from agentrun.core.fault import Fault
from agentrun.core.messages import Content
from agentrun.core.package_lookup import tool_effect
from agentrun.core.package_tools import PythonTool
from agentrun.core.tool_results import clip_parts, fault_parts
from agentrun.engine.attempt import Late, Raised, attempt, caught, is_sound
from agentrun.engine.clean import cleaned
from agentrun.engine.ports import Blobs, Executor
from agentrun.engine.world import World, executor_of
from agentrun.errors import AgentrunError


async def run_tool(world: World, effect: RunTool) -> ToolFinished | WorkLost:
    executor = executor_of(world, effect.name, effect.tool)
    limit = effect.tool.timeout
    returned = await attempt(world.clock, limit, lambda: tried(executor, effect))
    if isinstance(returned, Late):
        fault = late(effect)
        return ToolFinished(effect.id, fault_parts(fault), fault)
    if isinstance(returned, Raised):
        returned = _of_raised(effect, returned)
    if returned.fault is not None and returned.fault.code == "tool.indeterminate":
        if tool_effect(effect.tool, effect.name) == "at_most_once":
            return WorkLost(effect.id)
        returned = ToolReturn(returned.parts, failure_of(effect, returned.fault.message, reason="no_reply"))
    cut = shortened(cleaned(world.redactor, returned), world.blobs, effect)
    return ToolFinished(effect.id, cut.parts, cut.fault, cut.whole)


def late(effect: RunTool) -> Fault:
    """That a call took too long."""
    limit = effect.tool.timeout
    message = f"the call took longer than {limit} ms and was stopped"
    return Fault("tool.timeout", message, {"tool": effect.name, "limit": limit, **_abandoned(effect)})


def _abandoned(effect: RunTool) -> dict[str, bool]:
    """A thread cannot be stopped: what it still does is not known, and what it still gives is dropped."""
    in_thread = isinstance(effect.tool, PythonTool) and effect.tool.isolation == "thread"
    return {"abandoned": True} if in_thread else {}


class Cuts:
    """An executor whose results are what the model reads. Any other is foreign, and not taken at its word."""


def shortened(returned: ToolReturn, blobs: Blobs, effect: RunTool) -> ToolReturn:
    """What the model reads of a result."""
    if returned.whole is not None:
        return returned
    parts = returned.parts or (fault_parts(returned.fault) if returned.fault else ())
    read, blob = readable(blobs, parts, effect.max_lines, effect.max_bytes)
    return ToolReturn(read, returned.fault, blob)


async def tried(executor: Executor, effect: RunTool) -> ToolReturn:
    """What a tool gave, whatever it did."""
    copied = replace(effect, arguments=deepcopy(effect.arguments))
    answer = await caught(lambda: executor.run(copied))
    if isinstance(answer, Raised):
        return _of_raised(effect, answer)
    returned = _sound(answer) or ToolReturn(fault=failure_of(effect, "the tool gave something that is not a result"))
    return returned if isinstance(executor, Cuts) else replace(returned, whole=None)


def _of_raised(effect: RunTool, raised: Raised) -> ToolReturn:
    if isinstance(raised.error, AgentrunError):
        error = raised.error
        return ToolReturn(fault=Fault(error.code, error.message, error.fields, error.hint))
    return ToolReturn(fault=failure_of(effect, raised.message, error=raised.kind))


def failure_of(effect: RunTool, message: str, **fields: str) -> Fault:
    return Fault("tool.execution", message, {"tool": effect.name, **fields})


def readable(
    blobs: Blobs, parts: tuple[Content, ...], max_lines: int, max_bytes: int
) -> tuple[tuple[Content, ...], str | None]:
    """What the model reads of a result, and the blob with all its text when that is not all."""
    read, whole = clip_parts(parts, max_lines, max_bytes)
    return read, None if whole is None else blobs.put(whole)


def _sound(answer: object) -> ToolReturn | None:
    """What a tool gave, if it is what the types say: tools are foreign code."""
    if not isinstance(answer, ToolReturn):
        return None
    try:
        returned = convert(to_builtins(answer), ToolReturn)
    except (TypeError, ValueError, RecursionError):
        return None
    return returned if returned.fault is None or is_sound(returned.fault) else None
