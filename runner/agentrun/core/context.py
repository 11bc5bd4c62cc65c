"""What happens when the conversation no longer fits, and what a conversation must look like to be sent.

Rule 1  Summing up replaces the first messages and keeps the latest ones. Calls and their results stay together.
Rule 2  What is summed up must itself fit the window: as many of the first messages as do.
Rule 3  A summary that is not shorter than what it replaces is no summary.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentrun.core.budget import estimated
from agentrun.core.facts import CompactionFailed, ContextCompacted
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Assistant, Message, ToolResult, said
from agentrun.core.package import Package
from agentrun.core.state import State

SUMMARY = "Summary of the conversation so far:\n\n"


def foldable(package: Package, state: State, room: int | None) -> int:
    """How many of the first messages can be summed up in a request with so much room. None: any number."""
    messages = tuple(state.conversation.transcript)
    end = max(len(messages) - package.context.keep, 0)
    used, best = 0, 0
    for index in range(end):
        used += estimated(messages[index])
        if room is not None and used > room:
            break
        if index + 1 == len(messages) or not isinstance(messages[index + 1], ToolResult):
            best = index + 1
    return best


def summed_up(state: State, count: int) -> ContextCompacted | CompactionFailed:
    """What is made of a model's summary of the first messages."""
    assert state.compaction.summary is not None
    message = state.compaction.summary.message
    failures = state.compaction.failures + 1
    if message.calls:
        return CompactionFailed("calls", failures)
    if not message.text.strip():
        return CompactionFailed("empty", failures)
    summary = said(SUMMARY + message.text)
    before, after = sum(estimated(each) for each in state.conversation.transcript.until(count)), estimated(summary)
    if after >= before:
        return CompactionFailed("not_smaller", failures)
    return ContextCompacted(count, summary, before, after)


def inconsistent(messages: Iterable[Message]) -> Fault | None:
    """What is wrong with a conversation from outside: a result missing, doubled or out of place."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            if message.call not in open_calls:
                return _fault(f"the result of {message.call} is doubled or out of place", [message.call])
            open_calls.remove(message.call)
        elif open_calls:
            break
        elif isinstance(message, Assistant):
            open_calls = [call.id for call in message.calls]
    return _fault(f"the result of {open_calls[0]} is missing", open_calls) if open_calls else None


def _fault(message: str, calls: list[str]) -> Fault:
    hint = "give every call of the history exactly one result, right after the message that asks for it"
    return Fault("provider.inconsistent_history", message, {"calls": calls}, hint)
