"""What a reply of the model leads to: a summary, the rest of a reply that was cut off, tool calls, or an answer."""

from __future__ import annotations

from agentrun.core import model_texts as texts
from agentrun.core.compaction import use_summary
from agentrun.core.effects import Commit, NextStep
from agentrun.core.facts import ModelTold, ReplyDiscarded
from agentrun.core.gate import GateRequest, has_gate
from agentrun.core.guards import find_guard_fault
from agentrun.core.messages import user_message
from agentrun.core.package import Package
from agentrun.core.run_end import conclude, fail, pass_or_fail
from agentrun.core.state import State
from agentrun.core.tool_calls import advance_calls


def process_reply(package: Package, state: State) -> NextStep:
    if state.ending.ended_by is not None:
        return conclude(package, state)
    if state.requests.purpose == "compact":
        return use_summary(package, state)
    if not has_gate(package, "after_model", None):
        return _process_allowed_reply(package, state)
    request = GateRequest("reply", "reply", state.reply.message.text, point="after_model")
    return pass_or_fail(package, state, request, _process_allowed_reply)


def _process_allowed_reply(package: Package, state: State) -> NextStep:
    if state.reply.finish == "length" and (next := _continue_truncated(package, state)):
        return next
    if not state.calls:
        return conclude(package, state)
    if fault := find_guard_fault(package, state):
        return fail(package, state, fault)
    return advance_calls(package, state)


def _continue_truncated(package: Package, state: State) -> NextStep | None:
    """Ask for the rest of a reply, or ask again with a larger cap. None: use the reply as it is."""
    if state.replies.truncations >= package.limits.truncations:
        return None
    if package.limits.on_truncated == "escalate":
        cap = state.replies.cap or package.model.max_output_tokens
        return None if cap is None else Commit((ReplyDiscarded(state.turns, 2 * cap),))
    return None if state.calls else Commit((ModelTold("continue", (user_message(texts.CONTINUE),)),))
