"""How much of a tool's result the model reads.

Rule 1  More than so many lines or bytes is cut to its head and its tail, with a line between them that says so.
Rule 2  What is cut never splits a character, and is never longer than the limit and that line.
Rule 3  Head and tail have one half of the limit each: what one of them does not need is not given to the other.
"""

from __future__ import annotations

from msgspec import UNSET

from agentrun.core.effects import RunChild
from agentrun.core.facts import ChildSpend, ChildSuspended, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, Text, words
from agentrun.core.outcome import Outcome, Suspended


def clip_parts(parts: tuple[Content, ...], max_lines: int, max_bytes: int) -> tuple[tuple[Content, ...], bytes | None]:
    """What the model reads of a result, and all its text when that is not all."""
    whole = words(parts)
    encoded = whole.encode("utf-8", "replace")  # half of a surrogate pair is no text: no journal could hold it
    text = encoded.decode()
    cut = clip_text(text, max_lines, max_bytes)
    if cut == whole:
        return parts, None
    first = next(index for index, part in enumerate(parts) if isinstance(part, Text))
    others = tuple(part for part in parts if not isinstance(part, Text))
    return (*parts[:first], Text(cut), *others[first:]), None if cut == text else encoded


def fault_parts(fault: Fault) -> tuple[Content, ...]:
    """What the model reads of a fault."""
    return (Text(f"{fault.code}: {fault.message}"),)


def clip_text(text: str, max_lines: int, max_bytes: int) -> str:
    """The text, or as much of its beginning and end as is allowed."""
    data = text.encode("utf-8", "replace")
    if len(text.splitlines()) <= max_lines and len(data) <= max_bytes:
        return text
    head = _decode(data[: -(-max_bytes // 2)]).splitlines(keepends=True)[: -(-max_lines // 2)]
    tail = _decode(data[max(len(data) - max_bytes // 2, 0) :]).splitlines(keepends=True)
    first, last = "".join(head), "".join(tail[max(len(tail) - max_lines // 2, 0) :])
    hidden = len(data) - len((first + last).encode())
    border = "\n" if first[-1:].splitlines() == [first[-1:]] else ""
    return f"{first}{border}[… {hidden} of {len(data)} bytes left out …]\n{last}"


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "ignore")


# --- what a parent is told of a child: the facts of its calls, without the world that the child ran in --------


def child_refused(effect: RunChild, code: str, message: str) -> ToolFinished:
    """The child was not started."""
    fault = Fault("tool.execution", f"{code}: {message}", {"tool": effect.name, "code": code})
    return ToolFinished(effect.id, fault_parts(fault), fault)


def child_suspended(effect: RunChild, ended: Suspended) -> ChildSuspended:
    """The child waits for somebody outside."""
    return ChildSuspended(effect.id, (*(question.subject for question in ended.questions), *ended.waits_for))


def child_finished(effect: RunChild, outcome: Outcome) -> tuple[ToolFinished, bytes | None]:
    """The child is over. Also its whole answer, when the model reads only a part of it: the fact is still without the
    blob of that text."""
    if outcome.fault is not None:
        return child_failed(effect, outcome, _fault_for_parent(effect, outcome.fault)), None
    parts, whole = clip_parts((Text(outcome.answer or ""),), effect.max_lines, effect.max_bytes)
    return ToolFinished(effect.id, parts, None, None, _child_spend(outcome)), whole


def child_failed(effect: RunChild, outcome: Outcome, fault: Fault) -> ToolFinished:
    """The child is over, and its answer is a fault."""
    return ToolFinished(effect.id, fault_parts(fault), fault, None, _child_spend(outcome))


def _child_spend(outcome: Outcome) -> ChildSpend:
    return ChildSpend(outcome.tokens, outcome.cost, outcome.tool_calls, outcome.runs or UNSET)


def _fault_for_parent(effect: RunChild, fault: Fault) -> Fault:
    """The fault as the model of the parent reads it. A child that used up the time of its call is late, as any tool."""
    if fault.code.startswith("cassette."):
        return fault
    limit = effect.parent.share.time
    if fault.code == "budget.time" and fault.fields.get("limit") == limit:
        message = f"the agent took longer than {limit} ms and was stopped"
        return Fault("tool.timeout", message, {"tool": effect.name, "limit": limit})
    message = f"agent failed: {fault.code}: {fault.message}"
    return Fault("tool.execution", message, {"tool": effect.name, "code": fault.code})
