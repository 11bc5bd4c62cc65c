"""What becomes of a model's reply, or of the lack of one."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.effects import route_name
from agentrun.core.facts import ModelTold, ReplyDiscarded, RetryPlanned, RouteSwitched
from agentrun.core.facts_calls import CallRefused
from agentrun.core.finish import conclude
from agentrun.core.gate import Open, Passage, Shut, is_guarded, pass_gate
from agentrun.core.guards import tripped
from agentrun.core.messages import said
from agentrun.core.package import Package
from agentrun.core.retry import delay, may_fall_back
from agentrun.core.state import Gate, State
from agentrun.core.steps import Commit, Next
from agentrun.core.stop import fail
from agentrun.core.think import judge_summary, think
from agentrun.core.tool_calls import act

GO_ON = "Your reply was cut off. Go on exactly where it stopped, without repeating anything."


def failed(package: Package, state: State) -> Next:
    """Try again, on this route or the next, or give up."""
    assert state.requests.fault is not None
    fault = state.requests.fault
    if state.compaction.overflow and state.requests.purpose == "answer" and package.context.overflow == "compact":
        return think(package, state)
    started = state.started
    seed = f"{started.run if started.seed is UNSET else started.seed}/{state.turns}/{state.attempt}"
    wait = delay(package.retry, fault, tries=state.requests.tries, waited=state.requests.waited, seed=seed)
    if wait is not None:
        return Commit((RetryPlanned(state.turns, wait, state.now + wait),))
    routes = package.model.routes
    if state.requests.route + 1 < len(routes) and may_fall_back(fault):
        here, there = routes[state.requests.route], routes[state.requests.route + 1]
        return Commit((RouteSwitched(state.turns, route_name(here), route_name(there), fault),))
    fields = {**fault.fields, "turn": state.turns, "attempts": state.requests.tries}
    return fail(package, state, replace(fault, fields=fields))


def judge(package: Package, state: State) -> Next:
    """Hooks, truncation, guards; then its calls, or its answer."""
    if state.ending.ended_by is not None:
        return conclude(package, state)
    if state.requests.purpose == "compact":
        return judge_summary(package, state)
    assert state.replies.latest is not None
    if not is_guarded(package, "after_model", None):
        return _judge(package, state)
    gate = state.gate if state.gate.subject == "reply" else Gate("reply")
    passage = Passage("reply", "reply", state.replies.latest.message.text, point="after_model")
    passed = pass_gate(package, state, gate, passage)
    match passed:
        case Open():
            return _judge(package, state)
        case Shut(fault):
            return fail(package, state, fault)
        case _:
            return passed


def _judge(package: Package, state: State) -> Next:
    assert state.replies.latest is not None
    if state.replies.latest.finish == "length" and (next := _truncated(package, state)):
        return next
    if not state.calls:
        return conclude(package, state)
    if fault := tripped(package, state):
        return fail(package, state, fault)
    return go_on(package, state)


def go_on(package: Package, state: State) -> Next:
    """The next step of the calls, after those that are too many are refused."""
    if len(state.calls) > package.limits.parallel_tools and (next := _oversize(package, state)):
        return next
    return act(package, state)


def _truncated(package: Package, state: State) -> Next | None:
    """Ask for the rest, or again with more room. None: take the reply as it is."""
    if state.replies.truncations >= package.limits.truncations:
        return None
    if package.limits.on_truncated == "escalate":
        cap = state.replies.cap or package.model.max_output_tokens
        return None if cap is None else Commit((ReplyDiscarded(state.turns, 2 * cap),))
    return None if state.calls else Commit((ModelTold("continue", (said(GO_ON),)),))


def _oversize(package: Package, state: State) -> Next | None:
    limit, count = package.limits.parallel_tools, len(state.calls)
    first = 0 if package.limits.on_oversize_batch == "reject_all" else limit
    told = f"tool.invalid_call: a reply may ask for {limit} calls at most, this one asks for {count}"
    fields = {"reason": "parallel_tools", "count": count, "limit": limit}
    refused = tuple(
        CallRefused(call.call.id, "tool.invalid_call", told, {"tool": call.call.tool, **fields})
        for call in state.calls[first:]
        if call.status == "new"
    )
    return Commit(refused) if refused else None
