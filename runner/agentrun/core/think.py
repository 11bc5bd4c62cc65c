"""Asking the model: may it be asked, and what exactly?

Rule 1  The order before each request: turns, wrap-up message, hooks and policy, context, tokens and money.
Rule 2  A limit of n lets n pass and stops before n + 1.
Rule 3  A request for a summary counts as spending, not as a turn.
"""

from __future__ import annotations

from msgspec.structs import replace

from agentrun.core.arguments import hidden_tools, offered_tools
from agentrun.core.budget import estimated, input_estimate, overspent, reserved_cost
from agentrun.core.context import foldable, inconsistent, summed_up
from agentrun.core.effect_ids import Purpose, RequestId
from agentrun.core.effects import AskModel, ModelRequest
from agentrun.core.facts import AnswerReached, ModelTold
from agentrun.core.facts_base import Fault
from agentrun.core.gate import Open, Passage, Passed, Shut, is_guarded, pass_gate
from agentrun.core.messages import Assistant, Message, Transcript, User, said, words
from agentrun.core.package import Package
from agentrun.core.state import Gate, State
from agentrun.core.steps import Commit, Next, Perform
from agentrun.core.stop import fail

WRAP_UP = "{} turns are left. Wrap up: use what you have and give your answer."


def start(package: Package, state: State) -> Next:
    """Look at the input, then ask."""
    if state.started.earlier.messages and (fault := inconsistent(state.started.earlier.messages)):
        return fail(package, state, fault)
    at = len(state.started.earlier.messages)
    looked_at = state.conversation.transcript.since(at)[:1] if state.started.input else ()
    text = "".join(words(message.parts) for message in looked_at if isinstance(message, User))
    gate = state.gate if state.gate.subject == "input" else Gate("input")
    passage = Passage("input", "input", text, point="on_input", stage="input")
    passed = pass_gate(package, state, gate, passage)
    match passed:
        case Open():
            return think(package, state)
        case Shut(fault):
            return fail(package, state, fault)
        case _:
            return passed


def think(package: Package, state: State) -> Next:
    """Ask the model for the next step of the run."""
    if not state.in_turn:
        left = package.budgets.turns - state.turns
        if left <= 0:
            return _out_of_turns(package, state)
        grace = package.budgets.grace
        if grace is not None and left <= grace and not state.warned:
            return Commit((ModelTold("wrap_up", (said(WRAP_UP.format(left)),)),))
    passed = _pass_request(package, state)
    match passed:
        case Open():
            return _fit(package, state)
        case Shut(fault):
            return fail(package, state, fault)
        case _:
            return passed


def _out_of_turns(package: Package, state: State) -> Next:
    limit = package.budgets.turns
    if package.budgets.on_turns == "stop" and not state.ending.cut_short:
        return Commit((AnswerReached("budget.turns"),))
    fields = {"used": state.turns, "reserved": 1, "limit": limit}
    hint = "raise budgets.turns, or set budgets.on_turns: stop"
    return fail(package, state, Fault("budget.turns", f"the run has used its {limit} turns", fields, hint))


def _pass_request(package: Package, state: State) -> Passed:
    if not is_guarded(package, "before_model", "model_request"):
        return Open()
    new = state.conversation.transcript.since(state.conversation.looked_at)
    text = "\n\n".join(words(message.parts) for message in new if not isinstance(message, Assistant))
    gate = state.gate if state.gate.subject == "request" else Gate("request")
    passage = Passage(
        "request",
        "request",
        text,
        point="before_model",
        stage="model_request",
        instructions=state.conversation.instructions,
        messages=tuple(enumerate(new, start=state.conversation.looked_at)),
    )
    return pass_gate(package, state, gate, passage)


def _fit(package: Package, state: State) -> Next:
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
    size, window = input_estimate(request, state.conversation.estimate), request.route.context_window
    if state.compaction.overflow or (window is not None and size > window):
        return _overflow(package, state, size)
    return _ask(package, state, request, size, "answer", hidden)


def _ask(
    package: Package, state: State, request: ModelRequest, size: int, purpose: Purpose, hidden: tuple[str, ...] = ()
) -> Next:
    longest = request.settings.max_output_tokens or 0
    cost = reserved_cost(request.route.price, size, longest)
    if fault := overspent(package, state, size + longest, cost):
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


def _overflow(package: Package, state: State, size: int) -> Next:
    route = package.model.routes[state.requests.route]
    if package.context.overflow == "fail":
        message = f"the request has an estimated {size} tokens, and the model reads {route.context_window}"
        fields = {"context": route.context_window, "estimated": size}
        return fail(package, state, Fault("context.overflow", message, fields, "set context.overflow: compact"))
    if state.compaction.failures >= package.context.failures:
        message = f"{state.compaction.failures} summaries in a row gave nothing usable"
        return fail(package, state, Fault("context.failed", message, {"part": "history", "reason": "compaction"}))
    count = foldable_now(package, state)
    if not count:
        if state.compaction.overflow and state.requests.fault is not None:
            return fail(package, state, state.requests.fault)
        message = "there is nothing in the history that could be summed up"
        fields = {"context": route.context_window, "estimated": size}
        return fail(package, state, Fault("context.overflow", message, fields, "lower context.compaction.keep"))
    request = _summary_request(package, state, state.conversation.transcript.until(count))
    messages = sum(estimated(message) for message in request.messages)
    return _ask(package, state, request, input_estimate(request, messages), "compact")


def foldable_now(package: Package, state: State) -> int:
    """How many of the first messages a summary would replace."""
    request = _summary_request(package, state, ())
    window = request.route.context_window
    around = input_estimate(request, sum(estimated(message) for message in request.messages))
    return foldable(package, state, None if window is None else window - around)


def _summary_request(package: Package, state: State, messages: tuple[Message, ...]) -> ModelRequest:
    return ModelRequest(
        route=package.model.routes[state.requests.route],
        settings=package.model,
        instructions=state.conversation.instructions,
        messages=Transcript((*messages, said(state.started.prompts["compact"]))),
        output=None,
    )


def judge_summary(package: Package, state: State) -> Next:
    """Use the model's summary, or say why not."""
    return Commit((summed_up(state, foldable_now(package, state)),))
