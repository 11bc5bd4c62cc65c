"""What a parent is told of a child: the facts of its calls, without the world that the child ran in.

Rule 1  However a child fails, the model of its parent reads it as the result of the call. A cassette that does not fit
        is the exception: it is no failure of the child.
Rule 2  What a child used is counted in its parent once, with the result of the call.
"""

from __future__ import annotations

from msgspec import UNSET

from agentrun.core.effects import RunChild
from agentrun.core.facts_base import Fault
from agentrun.core.facts_calls import ChildSuspended, Spent, ToolFinished
from agentrun.core.messages import Text
from agentrun.core.outcome import Outcome, Suspended
from agentrun.core.results import clip_parts, fault_parts


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
        return child_failed(effect, outcome, _readable_fault(effect, outcome.fault)), None
    parts, whole = clip_parts((Text(outcome.answer or ""),), effect.max_lines, effect.max_bytes)
    return ToolFinished(effect.id, parts, None, None, _spent(outcome)), whole


def child_failed(effect: RunChild, outcome: Outcome, fault: Fault) -> ToolFinished:
    """The child is over, and its answer is a fault."""
    return ToolFinished(effect.id, fault_parts(fault), fault, None, _spent(outcome))


def _spent(outcome: Outcome) -> Spent:
    return Spent(outcome.tokens, outcome.cost, outcome.tool_calls, outcome.runs or UNSET)


def _readable_fault(effect: RunChild, fault: Fault) -> Fault:
    """The fault as the model of the parent reads it. A child that used up the time of its call is late, as any tool."""
    if fault.code.startswith("cassette."):
        return fault
    limit = effect.parent.share.time
    if fault.code == "budget.time" and fault.fields.get("limit") == limit:
        message = f"the agent took longer than {limit} ms and was stopped"
        return Fault("tool.timeout", message, {"tool": effect.name, "limit": limit})
    message = f"agent failed: {fault.code}: {fault.message}"
    return Fault("tool.execution", message, {"tool": effect.name, "code": fault.code})
