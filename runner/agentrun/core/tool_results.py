"""What the model reads of a tool result, and of a sub-agent.

Rule 1  A result with too many lines or bytes is cut to its beginning and its end, and a line between them says so.
Rule 2  A cut never splits a character. The cut text is never longer than the limit plus that line.
"""

from __future__ import annotations

from msgspec.structs import replace

from agentrun.core import model_texts as texts
from agentrun.core.effects import RunChild
from agentrun.core.facts import ChildSuspended, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, Text, text_of
from agentrun.core.outcome import Outcome
from agentrun.core.spend import ChildSpend


def clip_parts(parts: tuple[Content, ...], max_lines: int, max_bytes: int) -> tuple[tuple[Content, ...], bytes | None]:
    """What the model reads of a result. Also the whole text, if it was cut."""
    whole = text_of(parts)
    encoded = whole.encode("utf-8", "replace")  # a journal cannot store half of a surrogate pair
    text = encoded.decode()
    cut = clip_text(text, max_lines, max_bytes)
    if cut == whole:
        return parts, None
    first = next(index for index, part in enumerate(parts) if isinstance(part, Text))
    others = tuple(part for part in parts if not isinstance(part, Text))
    return (*parts[:first], Text(cut), *others[first:]), None if cut == text else encoded


def fault_parts(fault: Fault) -> tuple[Content, ...]:
    return (Text(texts.with_code(fault.code, fault.message)),)


def clip_text(text: str, max_lines: int, max_bytes: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(text.splitlines()) <= max_lines and len(data) <= max_bytes:
        return text
    head = _decode(data[: -(-max_bytes // 2)]).splitlines(keepends=True)[: -(-max_lines // 2)]
    tail = _decode(data[max(len(data) - max_bytes // 2, 0) :]).splitlines(keepends=True)
    first, last = "".join(head), "".join(tail[max(len(tail) - max_lines // 2, 0) :])
    hidden = len(data) - len((first + last).encode())
    border = "\n" if first[-1:].splitlines() == [first[-1:]] else ""
    return f"{first}{border}{texts.OMITTED.format(hidden, len(data))}\n{last}"


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "ignore")


def child_refused(effect: RunChild, code: str, message: str) -> ToolFinished:
    fault = Fault("tool.execution", texts.with_code(code, message), {"tool": effect.name, "code": code})
    return ToolFinished(effect.id, fault_parts(fault), fault)


def child_suspended(effect: RunChild, ended: Outcome) -> ChildSuspended:
    return ChildSuspended(effect.id, (*(question.subject for question in ended.questions), *ended.waits_for))


def child_finished(effect: RunChild, outcome: Outcome) -> tuple[ToolFinished, bytes | None]:
    """The sub-agent finished. Also its whole answer, if it was cut: the fact does not have the blob of it yet."""
    if outcome.fault is not None:
        return _failed_run(effect, outcome, outcome.fault), None
    parts, whole = clip_parts((Text(outcome.answer or ""),), effect.max_lines, effect.max_bytes)
    return ToolFinished(effect.id, parts, None, None, _child_spend(outcome)), whole


def child_failed(effect: RunChild, outcome: Outcome, fault: Fault) -> ToolFinished:
    return ToolFinished(effect.id, fault_parts(fault), fault, None, _child_spend(outcome))


def _child_spend(outcome: Outcome) -> ChildSpend:
    amounts = {name: getattr(outcome, name) for name in ChildSpend.__struct_fields__}
    return ChildSpend(**{name: amount for name, amount in amounts.items() if amount})


def _failed_run(effect: RunChild, outcome: Outcome, fault: Fault) -> ToolFinished:
    """The run of the sub-agent failed. If it used up the time of its call, the call timed out, as for any tool."""
    if fault.code.startswith("cassette."):
        return child_failed(effect, outcome, fault)
    limit = effect.parent.share.time
    if fault.code == "budget.time" and fault.fields.get("limit") == limit:
        fields = {"tool": effect.name, "limit": limit}
        return child_failed(effect, outcome, Fault("tool.timeout", texts.CHILD_TIMED_OUT.format(limit), fields))
    message = f"the sub-agent failed: {texts.with_code(fault.code, fault.message)}"
    failed = child_failed(effect, outcome, Fault("tool.execution", message, {"tool": effect.name, "code": fault.code}))
    read = texts.with_code("tool.execution", texts.child_failed_text(fault.code, fault.message))
    return replace(failed, parts=(Text(read),))
