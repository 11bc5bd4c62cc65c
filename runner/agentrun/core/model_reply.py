"""What becomes of a model's reply, or of the lack of one."""

from __future__ import annotations

from agentrun.core.compaction import use_summary
from agentrun.core.effects import Commit, NextStep
from agentrun.core.facts import ModelTold, ReplyDiscarded
from agentrun.core.gate import Allowed, Blocked, GateRequest, has_gate, pass_gate
from agentrun.core.guards import find_guard_fault
from agentrun.core.messages import user_message
from agentrun.core.package import Package
from agentrun.core.run_end import conclude, fail
from agentrun.core.state import GateState, State
from agentrun.core.tool_calls import advance_calls

CONTINUE_TEXT = "Your reply was cut off. Go on exactly where it stopped, without repeating anything."


def process_reply(package: Package, state: State) -> NextStep:
    """Hooks, truncation, guards; then its calls, or its answer."""
    if state.ending.ended_by is not None:
        return conclude(package, state)
    if state.requests.purpose == "compact":
        return use_summary(package, state)
    assert state.replies.latest is not None
    if not has_gate(package, "after_model", None):
        return _process_allowed_reply(package, state)
    gate = state.gate if state.gate.subject == "reply" else GateState("reply")
    passage = GateRequest("reply", "reply", state.replies.latest.message.text, point="after_model")
    passed = pass_gate(package, state, gate, passage)
    match passed:
        case Allowed():
            return _process_allowed_reply(package, state)
        case Blocked(fault):
            return fail(package, state, fault)
        case _:
            return passed


def _process_allowed_reply(package: Package, state: State) -> NextStep:
    assert state.replies.latest is not None
    if state.replies.latest.finish == "length" and (next := _continue_truncated(package, state)):
        return next
    if not state.calls:
        return conclude(package, state)
    if fault := find_guard_fault(package, state):
        return fail(package, state, fault)
    return advance_calls(package, state)


def _continue_truncated(package: Package, state: State) -> NextStep | None:
    """Ask for the rest, or again with more room. None: take the reply as it is."""
    if state.replies.truncations >= package.limits.truncations:
        return None
    if package.limits.on_truncated == "escalate":
        cap = state.replies.cap or package.model.max_output_tokens
        return None if cap is None else Commit((ReplyDiscarded(state.turns, 2 * cap),))
    return None if state.calls else Commit((ModelTold("continue", (user_message(CONTINUE_TEXT),)),))
