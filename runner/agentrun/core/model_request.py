"""Asking the model: may it be asked, and what exactly?

Rule 1  The order before each request: turns, wrap-up message, hooks and policy, context, tokens and money.
Rule 2  A limit of n lets n pass and stops before n + 1.
Rule 3  A request for a summary counts as spending, not as a turn.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from agentrun.core.budget import estimate_request, estimate_tokens, reserved_cost, spending_fault
from agentrun.core.call_validation import hidden_tools, offered_tools
from agentrun.core.compaction import count_messages_to_summarize, summary_request
from agentrun.core.effect_ids import Purpose, RequestId
from agentrun.core.effects import AskModel, Commit, ModelRequest, NextStep, Perform
from agentrun.core.facts import AnswerReached, ModelTold
from agentrun.core.fault import Fault
from agentrun.core.gate import Allowed, Blocked, GateRequest, GateResult, has_gate, pass_gate
from agentrun.core.messages import Assistant, Message, ToolResult, User, user_message, words
from agentrun.core.package import Package
from agentrun.core.run_end import fail
from agentrun.core.state import GateState, State

WRAP_UP_TEXT = "{} turns are left. Wrap up: use what you have and give your answer."


def check_input(package: Package, state: State) -> NextStep:
    """Look at the input, then ask."""
    if state.started.earlier.messages and (fault := find_history_fault(state.started.earlier.messages)):
        return fail(package, state, fault)
    at = len(state.started.earlier.messages)
    looked_at = state.conversation.transcript.since(at)[:1] if state.started.input else ()
    text = "".join(words(message.parts) for message in looked_at if isinstance(message, User))
    gate = state.gate if state.gate.subject == "input" else GateState("input")
    passage = GateRequest("input", "input", text, point="on_input", stage="input")
    passed = pass_gate(package, state, gate, passage)
    match passed:
        case Allowed():
            return request_reply(package, state)
        case Blocked(fault):
            return fail(package, state, fault)
        case _:
            return passed


def request_reply(package: Package, state: State) -> NextStep:
    """Ask the model for the next step of the run."""
    if not state.in_turn:
        left = package.budgets.turns - state.turns
        if left <= 0:
            return _out_of_turns(package, state)
        grace = package.budgets.grace
        if grace is not None and left <= grace and not state.warned:
            return Commit((ModelTold("wrap_up", (user_message(WRAP_UP_TEXT.format(left)),)),))
    passed = _pass_request(package, state)
    match passed:
        case Allowed():
            return _send_or_compact(package, state)
        case Blocked(fault):
            return fail(package, state, fault)
        case _:
            return passed


def _out_of_turns(package: Package, state: State) -> NextStep:
    limit = package.budgets.turns
    if package.budgets.on_turns == "stop" and not state.ending.cut_short:
        return Commit((AnswerReached("budget.turns"),))
    fields = {"used": state.turns, "reserved": 1, "limit": limit}
    hint = "raise budgets.turns, or set budgets.on_turns: stop"
    return fail(package, state, Fault("budget.turns", f"the run has used its {limit} turns", fields, hint))


def _pass_request(package: Package, state: State) -> GateResult:
    if not has_gate(package, "before_model", "model_request"):
        return Allowed()
    new = state.conversation.transcript.since(state.conversation.checked_messages)
    text = "\n\n".join(words(message.parts) for message in new if not isinstance(message, Assistant))
    gate = state.gate if state.gate.subject == "request" else GateState("request")
    passage = GateRequest(
        "request",
        "request",
        text,
        point="before_model",
        stage="model_request",
        instructions=state.conversation.instructions,
        messages=tuple(enumerate(new, start=state.conversation.checked_messages)),
    )
    return pass_gate(package, state, gate, passage)


def _send_or_compact(package: Package, state: State) -> NextStep:
    """Send the request if it fits, else make it fit or stop."""
    hidden, cap = hidden_tools(package, state), state.replies.cap
    request = ModelRequest(
        route=package.model.routes[state.requests.route],
        settings=package.model if cap is None else replace(package.model, max_output_tokens=cap),
        instructions=state.conversation.instructions,
        messages=state.conversation.transcript,
        output=package.output.schema,
        tools=offered_tools(package, hidden),
    )
    size, window = estimate_request(request, state.conversation.estimate), request.route.context_window
    if state.compaction.overflow or (window is not None and size > window):
        return _compact_or_fail(package, state, size)
    return _send(package, state, request, size, "answer", hidden)


def _send(
    package: Package, state: State, request: ModelRequest, size: int, purpose: Purpose, hidden: tuple[str, ...] = ()
) -> NextStep:
    longest = request.settings.max_output_tokens or 0
    cost = reserved_cost(request.route.price, size, longest)
    if fault := spending_fault(package, state, size + longest, cost):
        return fail(package, state, fault)
    turn, attempt = state.turns if state.in_turn else state.turns + 1, state.attempt + 1
    effect = AskModel(
        id=str(RequestId(purpose, turn, attempt)),
        turn=turn,
        attempt=attempt,
        reserved=size + longest,
        cost=cost,
        request=request,
        purpose=purpose,
        hidden=hidden,
        gap=package.limits.stream_gap,
        time=package.limits.call_time,
    )
    return Perform((effect,))


def _compact_or_fail(package: Package, state: State, size: int) -> NextStep:
    route = package.model.routes[state.requests.route]
    if package.context.overflow == "fail":
        message = f"the request has an estimated {size} tokens, and the model reads {route.context_window}"
        fields = {"context": route.context_window, "estimated": size}
        return fail(package, state, Fault("context.overflow", message, fields, "set context.overflow: compact"))
    if state.compaction.failures >= package.context.failures:
        message = f"{state.compaction.failures} summaries in a row gave nothing usable"
        return fail(package, state, Fault("context.failed", message, {"part": "history", "reason": "compaction"}))
    count = count_messages_to_summarize(package, state)
    if not count:
        if state.compaction.overflow and state.requests.fault is not None:
            return fail(package, state, state.requests.fault)
        message = "there is nothing in the history that could be summed up"
        fields = {"context": route.context_window, "estimated": size}
        return fail(package, state, Fault("context.overflow", message, fields, "lower context.compaction.keep"))
    request = summary_request(package, state, state.conversation.transcript.until(count))
    messages = sum(estimate_tokens(message) for message in request.messages)
    return _send(package, state, request, estimate_request(request, messages), "compact")


def find_history_fault(messages: Iterable[Message]) -> Fault | None:
    """What is wrong with a conversation from outside: a result missing, doubled or out of place."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            if message.call not in open_calls:
                return _history_fault(f"the result of {message.call} is doubled or out of place", [message.call])
            open_calls.remove(message.call)
        elif open_calls:
            break
        elif isinstance(message, Assistant):
            open_calls = [call.id for call in message.calls]
    return _history_fault(f"the result of {open_calls[0]} is missing", open_calls) if open_calls else None


def _history_fault(message: str, calls: list[str]) -> Fault:
    hint = "give every call of the history exactly one result, right after the message that asks for it"
    return Fault("provider.inconsistent_history", message, {"calls": calls}, hint)
