"""How hooks, rulings and approvals change state. The rules of `evolve.py` apply here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.canonical_json import same_json
from agentrun.core import facts
from agentrun.core import model_texts as texts
from agentrun.core.budget import estimate_tokens
from agentrun.core.messages import Assistant, Message, Refusal, Text, ToolCall, Transcript, User, user_message
from agentrun.core.package import Ruling
from agentrun.core.state import NO_GATE, CallState, CallStatus, ConversationState, GateState, State, find_call
from agentrun.core.transitions import POINT_PHASE, STAGE_PHASE

STATUS_AFTER_RULING: Mapping[Ruling, CallStatus] = {
    "allow": "ready",
    "modify": "new",
    "ask": "asking",
    "defer": "deferred",
    "deny": "denied",
    "interrupt": "denied",
}


def evolve_gate(state: State, fact: facts.GateFact) -> State:
    if facts.is_about_call(fact):
        call = find_call(state, fact.subject)
        assert call is not None
        after = _evolve_result_gate(call, fact) if facts.is_about_result(fact) else _evolve_call_gate(call, fact)
        calls = tuple([after if each is call else each for each in state.calls])
        return replace(state, phase="acting", calls=calls, grants=_grants(state, call.gate, fact))
    before = state.gate_for(fact.subject)
    state = replace(state, gate=_evolve_gate_state(before, fact), grants=_grants(state, before, fact))
    match fact:
        case facts.HookAsked():
            return replace(state, phase=POINT_PHASE[fact.point])
        case facts.HookAnswered():
            return _apply_hook_answer(state, fact)
        case facts.Ruled():
            state = replace(state, phase=STAGE_PHASE[fact.stage])
            if fact.stage == "model_request":
                return replace(state, conversation=_mask_conversation(state.conversation, fact))
            if fact.stage == "output" and isinstance(fact.text, str):
                return replace(state, ending=replace(state.ending, answer=fact.text))
            return state
        case facts.ApprovalAsked() | facts.ApprovalAnswered():
            return state
        case _:
            assert_never(fact)


def _grants(state: State, gate: GateState, fact: facts.GateFact) -> tuple[str, ...]:
    if not isinstance(fact, facts.ApprovalAnswered) or fact.answer != "approved_for_session":
        return state.grants
    return tuple(sorted({*state.grants, gate.grant or ""}))


def _evolve_gate_state(gate: GateState, fact: facts.GateFact) -> GateState:
    match fact:
        case facts.Ruled():
            return replace(
                gate,
                ruling=fact.ruling,
                rules=fact.rules,
                reason=fact.reason,
                granted=fact.granted,
                rewritten=gate.rewritten or fact.ruling == "modify",
                text=gate.text if fact.text is UNSET or fact.stage != "delivery" else fact.text,
                until=None if fact.until is UNSET else fact.until,
                person=fact.person is True,
            )
        case facts.HookAsked():
            return replace(gate, hook=fact.effect)
        case facts.HookAnswered():
            after = replace(gate, hook=None, hooks_answered=gate.hooks_answered + 1, denial=None, by=None)
            reason = getattr(fact.answer, "reason", texts.HOOK_FAILED)
            return replace(after, denial=reason, by=fact.hook) if fact.closes else after
        case facts.ApprovalAsked():
            return replace(gate, question=fact.question, grant=fact.grant)
        case facts.ApprovalAnswered():
            reason = None if fact.reason is UNSET else fact.reason
            return replace(gate, answer=fact.answer, by=fact.by, answer_reason=reason)
        case _:
            assert_never(fact)


def clear_ruling(gate: GateState) -> GateState:
    return replace(gate, ruling=None, rules=(), reason=None, until=None, person=False)


def end_deferral(gate: GateState, now: int) -> GateState:
    """Without a deferral that a resume at this time ends: the rules are asked again."""
    if gate.ruling != "defer" or gate.person or (gate.until is not None and now < gate.until):
        return gate
    lapsed = gate.lapsed if gate.until is None else (*gate.lapsed, *gate.rules)
    return replace(clear_ruling(gate), lapsed=lapsed)


def forget_ruling(gate: GateState) -> GateState:
    """Without its rulings and the question about it."""
    gate = replace(clear_ruling(gate), granted=False, lapsed=())
    return replace(gate, question=None, grant=None, answer=None, answer_reason=None)


def _evolve_call_gate(call: CallState, fact: facts.GateFact) -> CallState:
    gate = _evolve_gate_state(call.gate, fact)
    match fact:
        case facts.Ruled():
            if fact.ruling == "modify" and isinstance(fact.arguments, dict):
                return replace(_rewrite_arguments(call, fact.arguments), gate=clear_ruling(gate), status="new")
            status = "ready" if fact.granted else STATUS_AFTER_RULING[fact.ruling]
            return replace(call, gate=gate, status=status, checked=True)
        case facts.HookAsked() | facts.ApprovalAsked():
            return replace(call, gate=gate, checked=True)
        case facts.HookAnswered():
            if isinstance(fact.answer, facts.Modify) and isinstance(fact.answer.value, dict):
                return replace(_rewrite_arguments(call, _without_defaults(call, fact.answer.value)), gate=gate)
            return replace(call, gate=gate, status="denied" if fact.closes else "new")
        case facts.ApprovalAnswered():
            return replace(call, gate=gate, status="ready" if fact.answer in facts.APPROVED_ANSWERS else "denied")
        case _:
            assert_never(fact)


def _rewrite_arguments(call: CallState, arguments: dict[str, Any]) -> CallState:
    """The call with other arguments, which are completed and checked again."""
    return replace(call, arguments=arguments, completed_arguments=None, checked=False)


def _without_defaults(call: CallState, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a hook returned. Those that it did not change are again as they were before defaults were
    filled in."""
    completed = call.completed_arguments or {}
    kept = {name for name, value in arguments.items() if name in completed and same_json(completed[name], value)}
    before = {name: value for name, value in (call.arguments or {}).items() if name in kept}
    return {**before, **{name: value for name, value in arguments.items() if name not in kept}}


def _evolve_result_gate(call: CallState, fact: facts.GateFact) -> CallState:
    call = replace(call, result_gate=_evolve_gate_state(call.result_gate, fact))
    if isinstance(fact, facts.HookAnswered) and isinstance(fact.answer, facts.Modify):
        return replace(call, parts=(Text(str(fact.answer.value)),))
    if isinstance(fact, facts.Ruled) and isinstance(fact.text, str):
        return replace(call, parts=(Text(fact.text),))
    return call


def _apply_hook_answer(state: State, fact: facts.HookAnswered) -> State:
    match fact.answer:
        case facts.Modify(value) if fact.point == "on_input":
            return _replace_input(state, str(value))
        case facts.Modify(value) if fact.point == "after_model":
            reply = replace(state.reply, message=_replace_text(state.reply.message, str(value)))
            return replace(state, replies=replace(state.replies, latest=reply))
        case facts.Modify(value):
            return replace(state, ending=replace(state.ending, answer=str(value)))
        case facts.Inject(text) if fact.point == "on_output":
            return start_next_turn(state, user_message(text))
        case facts.Inject(text):
            return add_messages(state, user_message(text))
    return state


def _mask_conversation(conversation: ConversationState, fact: facts.Ruled) -> ConversationState:
    conversation = replace(conversation, checked_messages=len(conversation.transcript))
    if fact.messages:
        messages = list(conversation.transcript)
        for each in fact.messages:
            messages[each.index] = each.message
        estimate = sum(map(estimate_tokens, messages))
        conversation = replace(conversation, transcript=Transcript(messages), estimate=estimate)
    return replace(conversation, instructions=fact.text) if isinstance(fact.text, str) else conversation


def add_messages(state: State, *messages: Message) -> State:
    return replace(state, conversation=extend_conversation(state.conversation, *messages))


def extend_conversation(conversation: ConversationState, *messages: Message) -> ConversationState:
    estimate = conversation.estimate + sum([estimate_tokens(message) for message in messages])
    return replace(conversation, transcript=conversation.transcript.plus(*messages), estimate=estimate)


def start_next_turn(state: State, *messages: User) -> State:
    """End a turn that is not the last. Its reply and the messages become part of the conversation."""
    latest = (state.replies.latest.message,) if state.in_turn and state.replies.latest else ()
    return replace(
        add_messages(state, *latest, *messages),
        phase="thinking",
        in_turn=False,
        attempt=0,
        replies=replace(state.replies, earlier_text="", truncations=0, cap=None),
        gate=NO_GATE,
        ending=replace(state.ending, answer=None, label=None, ended_by=None),
    )


def _replace_input(state: State, text: str) -> State:
    """The conversation with another input text. Attachments of the input and later messages stay."""
    if state.started.input is None:
        return add_messages(state, user_message(text))
    at = len(state.started.earlier.messages)
    before = state.conversation
    old, *rest = before.transcript.since(at)
    others = tuple(part for part in state.started.input.parts if not isinstance(part, Text))
    new = User((Text(text), *others))
    estimate = before.estimate - estimate_tokens(old) + estimate_tokens(new)
    transcript = Transcript((*before.transcript.until(at), new, *rest))
    return replace(state, conversation=replace(before, transcript=transcript, estimate=estimate))


def _replace_text(message: Assistant, text: str) -> Assistant:
    others = tuple(part for part in message.parts if not isinstance(part, Text | Refusal))
    border = len(others) - sum(isinstance(part, ToolCall) for part in others)
    return Assistant((*others[:border], Text(text), *others[border:]))
