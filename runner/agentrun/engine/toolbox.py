"""Runs calls.

Rule 1  What a tool does wrong is a result that the model reads: its code and one line, no traceback, no secret.
Rule 2  A tool that says that the run must end is taken at its word: such faults pass unchanged.
Rule 3  A tool gets a copy of its arguments: what it does to them changes nothing.
Rule 4  The model reads as much as is allowed; when that is not all, the whole text is kept as a blob.
"""

from __future__ import annotations

from copy import deepcopy

from msgspec import convert, to_builtins
from msgspec.structs import replace

from agentrun.core.effects import Returned, RunChild, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import ToolFinished
from agentrun.core.messages import Content, Text, words
from agentrun.core.results import clipped
from agentrun.engine.attempt import Late, Raised, attempt, is_sound
from agentrun.engine.ports import Blobs
from agentrun.engine.world import World, executor_of
from agentrun.errors import AgentrunError


async def run_tool(world: World, effect: RunTool) -> ToolFinished:
    executor = executor_of(world, effect.name, effect.tool)
    copied = replace(effect, arguments=deepcopy(effect.arguments))
    limit = effect.tool.timeout
    match await attempt(world.clock, limit, lambda: executor.run(copied)):
        case Late():
            message = f"the call took longer than {limit} ms and was stopped"
            fault = Fault("tool.timeout", message, {"tool": effect.name, "limit": limit})
            return ToolFinished(effect.id, told(fault), fault)
        case Raised(AgentrunError() as error):
            fault = Fault(error.code, error.message, error.fields, error.hint)
            return ToolFinished(effect.id, told(fault), fault)
        case Raised() as raised:
            return failed(effect, raised.message, error=raised.kind)
        case answer:
            returned = _sound(answer)
            if returned is None:
                return failed(effect, "the tool gave something that is not a result")
            parts = returned.parts or told(returned.fault)
            read, blob = readable(world.blobs, parts, effect.max_lines, effect.max_bytes)
            return ToolFinished(effect.id, read, returned.fault, blob)


def failed(effect: RunTool | RunChild, message: str, **fields: str) -> ToolFinished:
    """A failure that the model reads."""
    fault = Fault("tool.execution", message, {"tool": effect.name, **fields})
    return ToolFinished(effect.id, told(fault), fault)


def told(fault: Fault | None) -> tuple[Content, ...]:
    """What the model reads of a fault."""
    return () if fault is None else (Text(f"{fault.code}: {fault.message}"),)


def readable(
    blobs: Blobs, parts: tuple[Content, ...], max_lines: int, max_bytes: int
) -> tuple[tuple[Content, ...], str | None]:
    """What the model reads of a result, and the blob with all its text when that is not all."""
    whole = words(parts)
    encoded = whole.encode("utf-8", "replace")  # half of a surrogate pair is no text: no journal could hold it
    text = encoded.decode()
    cut = clipped(text, max_lines, max_bytes)
    if cut == whole:
        return parts, None
    first = next(index for index, part in enumerate(parts) if isinstance(part, Text))
    others = tuple(part for part in parts if not isinstance(part, Text))
    read = (*parts[:first], Text(cut), *others[first:])
    return read, None if cut == text else blobs.put(encoded)


def _sound(answer: object) -> Returned | None:
    """What a tool gave, if it is what the types say: tools are foreign code."""
    if not isinstance(answer, Returned):
        return None
    try:
        returned = convert(to_builtins(answer), Returned)
    except (TypeError, ValueError, RecursionError):
        return None
    return returned if returned.fault is None or is_sound(returned.fault) else None
