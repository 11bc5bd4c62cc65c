"""Ask the model: whether it may be asked, and the request.

Rule 1  The order before each request: turns, wrap-up message, hooks and policy, context window, tokens and cost.
Rule 2  A limit of n allows n and stops before n + 1.
Rule 3  A request for a summary counts as spending, not as a turn.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from agentrun.core import model_texts as texts
from agentrun.core.budget import budget_fault, estimate_request, estimate_tokens, reserved_cost, spending_fault
from agentrun.core.call_validation import hidden_tools, offered_tools
from agentrun.core.compaction import count_messages_to_summarize, summary_request
from agentrun.core.effect_ids import Purpose, RequestId
from agentrun.core.effects import AskModel, Commit, ModelRequest, NextStep, Perform
from agentrun.core.facts import AnswerReached, ModelTold
from agentrun.core.fault import Fault
from agentrun.core.gate import GateRequest, has_gate
from agentrun.core.messages import Assistant, Message, ToolResult, User, text_of, user_message
from agentrun.core.package import Package
from agentrun.core.run_end import fail, pass_or_fail
from agentrun.core.state import State


def check_input(package: Package, state: State) -> NextStep:
    if state.started.earlier.messages and (fault := find_history_fault(state.started.earlier.messages)):
        return fail(package, state, fault)
    at = len(state.started.earlier.messages)
    checked = state.conversation.transcript.since(at)[:1] if state.started.input else ()
    text = "".join(text_of(message.parts) for message in checked if isinstance(message, User))
    request = GateRequest("input", "input", text, point="on_input", stage="input")
    return pass_or_fail(package, state, request, request_reply)


def request_reply(package: Package, state: State) -> NextStep:
    if not state.in_turn:
        left = package.budgets.turns - state.turns
        if left <= 0:
            return _out_of_turns(package, state)
        grace = package.budgets.grace
        if grace is not None and left <= grace and not state.warned:
            return Commit((ModelTold("wrap_up", (user_message(texts.wrap_up(left)),)),))
    if not has_gate(package, "before_model", "model_request"):
        return _send_or_compact(package, state)
    new = state.conversation.transcript.since(state.conversation.checked_messages)
    text = "\n\n".join(text_of(message.parts) for message in new if not isinstance(message, Assistant))
    request = GateRequest(
        "request",
        "request",
        text,
        point="before_model",
        stage="model_request",
        instructions=state.conversation.instructions,
        messages=tuple(enumerate(new, start=state.conversation.checked_messages)),
    )
    return pass_or_fail(package, state, request, _send_or_compact)


def _out_of_turns(package: Package, state: State) -> NextStep:
    if package.budgets.on_turns == "stop" and not state.ending.cut_short:
        return Commit((AnswerReached("budget.turns"),))
    return fail(package, state, budget_fault("turns", state.turns, 1, package.budgets.turns))


def _send_or_compact(package: Package, state: State) -> NextStep:
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
        message = texts.context_too_large(size, route.context_window)
        fields = {"context": route.context_window, "estimated": size}
        return fail(package, state, Fault("context.overflow", message, fields, "set context.overflow: compact"))
    if state.compaction.failures >= package.context.failures:
        message = texts.summaries_failed(state.compaction.failures)
        return fail(package, state, Fault("context.failed", message, {"part": "history", "reason": "compaction"}))
    count = count_messages_to_summarize(package, state)
    if not count:
        if state.compaction.overflow and state.requests.fault is not None:
            return fail(package, state, state.requests.fault)
        fields = {"context": route.context_window, "estimated": size}
        hint = "lower context.compaction.keep"
        return fail(package, state, Fault("context.overflow", texts.NOTHING_TO_SUMMARIZE, fields, hint))
    request = summary_request(package, state, state.conversation.transcript.until(count))
    size = estimate_request(request, sum(map(estimate_tokens, request.messages)))
    return _send(package, state, request, size, "compact")


def find_history_fault(messages: Iterable[Message]) -> Fault | None:
    """Why a conversation from outside cannot be sent: a result is missing, duplicated or in the wrong place."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            if message.call not in open_calls:
                return _history_fault(f"the result of {message.call} is duplicated or misplaced", [message.call])
            open_calls.remove(message.call)
        elif open_calls:
            break
        elif isinstance(message, Assistant):
            open_calls = [call.id for call in message.calls]
    return _history_fault(f"the result of {open_calls[0]} is missing", open_calls) if open_calls else None


def _history_fault(message: str, calls: list[str]) -> Fault:
    hint = "give each call of the history exactly one result, right after the message that asks for the call"
    return Fault("provider.inconsistent_history", message, {"calls": calls}, hint)
