"""Compaction: replace the beginning of a conversation that no longer fits by a summary.

Rule 1  A summary replaces the first messages and keeps the latest ones. A call and its result stay together.
Rule 2  The request for the summary must itself fit the context window: it has as many of the first messages as fit.
"""

from __future__ import annotations

from agentrun.core import model_texts as texts
from agentrun.core.budget import estimate_request, estimate_tokens
from agentrun.core.effects import Commit, ModelRequest, NextStep
from agentrun.core.facts import CompactionFailed, ContextCompacted
from agentrun.core.messages import Message, ToolResult, Transcript, user_message
from agentrun.core.package import Package
from agentrun.core.state import State


def count_fitting_messages(package: Package, state: State, room: int | None) -> int:
    """How many of the first messages fit a request with so much room, in tokens. None: no limit."""
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


def use_summary(package: Package, state: State) -> NextStep:
    assert state.compaction.summary is not None
    message = state.compaction.summary.message
    failures = state.compaction.failures + 1
    if message.calls:
        return Commit((CompactionFailed("calls", failures),))
    if not message.text.strip():
        return Commit((CompactionFailed("empty", failures),))
    summary = user_message(texts.SUMMARY_PREFIX + message.text)
    count = count_messages_to_summarize(package, state)
    before = sum(map(estimate_tokens, state.conversation.transcript.until(count)))
    after = estimate_tokens(summary)
    if after >= before:
        return Commit((CompactionFailed("not_smaller", failures),))
    return Commit((ContextCompacted(count, summary, before, after),))


def count_messages_to_summarize(package: Package, state: State) -> int:
    request = summary_request(package, state, ())
    window = request.route.context_window
    around = estimate_request(request, sum(map(estimate_tokens, request.messages)))
    return count_fitting_messages(package, state, None if window is None else window - around)


def summary_request(package: Package, state: State, messages: tuple[Message, ...]) -> ModelRequest:
    return ModelRequest(
        route=package.model.routes[state.requests.route],
        settings=package.model,
        instructions=state.conversation.instructions,
        messages=Transcript((*messages, user_message(state.started.prompts["compact"]))),
        output=None,
    )
