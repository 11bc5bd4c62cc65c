"""What happens when the conversation no longer fits, and what a conversation must look like to be sent.

Rule 1  Summing up replaces the first messages and keeps the latest ones. Calls and their results stay together.
Rule 2  What is summed up must itself fit the window: as many of the first messages as do.
Rule 3  A summary that is not shorter than what it replaces is no summary.
"""

from __future__ import annotations

from agentrun.core.budget import estimate_request, estimate_tokens
from agentrun.core.effects import Commit, ModelRequest, NextStep
from agentrun.core.facts import CompactionFailed, ContextCompacted
from agentrun.core.messages import Message, ToolResult, Transcript, user_message
from agentrun.core.package import Package
from agentrun.core.state import State

SUMMARY_PREFIX = "Summary of the conversation so far:\n\n"


def count_fitting_messages(package: Package, state: State, room: int | None) -> int:
    """How many of the first messages can be summed up in a request with so much room. None: any number."""
    messages = tuple(state.conversation.transcript)
    end = max(len(messages) - package.context.keep, 0)
    used, best = 0, 0
    for index in range(end):
        used += estimate_tokens(messages[index])
        if room is not None and used > room:
            break
        if index + 1 == len(messages) or not isinstance(messages[index + 1], ToolResult):
            best = index + 1
    return best


def apply_summary(state: State, count: int) -> ContextCompacted | CompactionFailed:
    """What is made of a model's summary of the first messages."""
    assert state.compaction.summary is not None
    message = state.compaction.summary.message
    failures = state.compaction.failures + 1
    if message.calls:
        return CompactionFailed("calls", failures)
    if not message.text.strip():
        return CompactionFailed("empty", failures)
    summary = user_message(SUMMARY_PREFIX + message.text)
    before, after = (
        sum(estimate_tokens(each) for each in state.conversation.transcript.until(count)),
        estimate_tokens(summary),
    )
    if after >= before:
        return CompactionFailed("not_smaller", failures)
    return ContextCompacted(count, summary, before, after)


def count_messages_to_summarize(package: Package, state: State) -> int:
    """How many of the first messages a summary would replace."""
    request = summary_request(package, state, ())
    window = request.route.context_window
    around = estimate_request(request, sum(estimate_tokens(message) for message in request.messages))
    return count_fitting_messages(package, state, None if window is None else window - around)


def summary_request(package: Package, state: State, messages: tuple[Message, ...]) -> ModelRequest:
    return ModelRequest(
        route=package.model.routes[state.requests.route],
        settings=package.model,
        instructions=state.conversation.instructions,
        messages=Transcript((*messages, user_message(state.started.prompts["compact"]))),
        output=None,
    )


def use_summary(package: Package, state: State) -> NextStep:
    """Use the model's summary, or say why not."""
    return Commit((apply_summary(state, count_messages_to_summarize(package, state)),))
