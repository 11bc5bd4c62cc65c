"""The gate: hooks, policy and approvals. It is the same for inputs, requests, calls, results, answers and deliveries.

Rule 1  Hooks come first, in their order. Then the policy. Then a person, if the policy says `ask`.
Rule 2  Without an explicit yes the answer is no.
Rule 3  A question is bound to the run, the package, the target, its value and the rules. Another value is another
        question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core import model_texts as texts
from agentrun.core.effect_ids import HookId
from agentrun.core.effects import AskHook, Commit, NextStep, Perform, Wait
from agentrun.core.facts import APPROVED_ANSWERS, ApprovalAsked, Fact, HookPoint, RewrittenMessage, Ruled
from agentrun.core.fault import Fault
from agentrun.core.hooks import hooks_at
from agentrun.core.messages import Assistant, Message, Text
from agentrun.core.outcome import Question
from agentrun.core.package import Package, Stage
from agentrun.core.policy import (
    PolicyDecision,
    condition_variables,
    evaluate_policy,
    has_rules,
    mask_patterns,
    reads_variables,
)
from agentrun.core.state import GateState, State


class GateRequest(Struct, frozen=True):
    """Something that has to pass the gate."""

    subject: str
    target: str
    value: Any
    """Arguments, or a text."""
    point: HookPoint | None = None
    stage: Stage | None = None
    arguments: Mapping[str, Any] | None = None
    """The `args` of conditions."""
    index: int | None = None
    """The index of a call. Conditions count the calls before it as if they had run."""
    instructions: str = ""
    """A rule on requests masks these too."""
    messages: tuple[tuple[int, Message], ...] = ()
    """A rule on requests masks these too. By index."""


class Allowed(Struct, frozen=True):
    """The subject may pass."""


class Blocked(Struct, frozen=True):
    fault: Fault


GateResult: TypeAlias = NextStep | Allowed | Blocked


def has_gate(package: Package, point: HookPoint, stage: Stage | None) -> bool:
    """Whether there is a hook or a rule to ask."""
    return point in [hook.at for hook in package.hooks] or (stage is not None and has_rules(package, stage))


def pass_gate(package: Package, state: State, gate: GateState, request: GateRequest) -> GateResult:
    """The next step at the gate, or its result."""
    hooks = hooks_at(package, request.point) if request.point else ()
    if gate.hook is not None:
        return Wait(inflight=(gate.hook,))
    if gate.denial is not None:
        return Blocked(_hook_fault(gate, request))
    if gate.hooks_answered < len(hooks):
        hook = hooks[gate.hooks_answered]
        id = str(HookId(hook.id, request.subject, state.turns))
        return Perform((AskHook(id, hook, hook.at, request.subject, request.target, request.value),))
    if request.stage is None or not has_rules(package, request.stage):
        return Allowed()
    if gate.ruling is None:
        return Commit((make_ruling(package, state, gate, request, request.stage),))
    return _after_ruling(state, gate, request)


def _after_ruling(state: State, gate: GateState, request: GateRequest) -> GateResult:
    match gate.ruling:
        case "allow" | "modify":
            return Allowed()
        case "ask" if gate.granted or gate.answer in APPROVED_ANSWERS:
            return Allowed()
        case "ask" if gate.answer is not None:
            return Blocked(_approval_fault(gate, request))
        case "ask" if gate.question is None:
            return Commit((ask_approval(state, gate, request),))
        case "ask":
            return Wait(questions=(pending_question(state, gate, request),))
        case "defer":
            return Wait(waits_for=(request.subject,))
        case _:
            return Blocked(_policy_fault(gate, request))


def make_ruling(package: Package, state: State, gate: GateState, request: GateRequest, stage: Stage) -> Ruled:
    variables = condition_variables(state, request.arguments, request.index) if reads_variables(package, stage) else {}
    decision = evaluate_policy(package, stage, request.target, variables, rewritten=gate.rewritten)
    fact = Ruled(request.subject, stage, decision.ruling, decision.rules, decision.reason)
    if decision.ruling == "ask":
        return replace(fact, granted=_grant_hash(state, request, decision.rules) in state.grants)
    if decision.ruling == "modify":
        return _apply_modification(fact, decision, request)
    return fact


def _apply_modification(fact: Ruled, decision: PolicyDecision, request: GateRequest) -> Ruled:
    if fact.stage == "tool_call":
        return replace(fact, arguments={**request.value, **decision.arguments})
    before = request.instructions if fact.stage == "model_request" else request.value
    text = mask_patterns(before, decision.masks)
    changed = ((index, message, _mask_message(message, decision.masks)) for index, message in request.messages)
    messages = tuple(RewrittenMessage(index, after) for index, message, after in changed if after != message)
    return replace(fact, text=UNSET if text == before else text, messages=messages)


def _mask_message(message: Message, masks: tuple[str, ...]) -> Message:
    if isinstance(message, Assistant):  # the provider wrote it, so masking it would hide nothing
        return message
    parts = tuple(Text(mask_patterns(part.text, masks)) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=parts)


def ask_approval(state: State, gate: GateState, request: GateRequest) -> Fact:
    """The fact that a person is asked."""
    grant = _grant_hash(state, request, gate.rules)
    question = data_hash(sorted_json([state.started.run, request.subject, grant]))
    return ApprovalAsked(request.subject, question, grant, request.target, gate.rules, gate.reason)


def pending_question(state: State, gate: GateState, request: GateRequest) -> Question:
    asked = gate.question or ""
    params = state.started.params
    return Question(request.subject, asked, request.target, request.value, gate.rules, gate.reason, params)


def _grant_hash(state: State, request: GateRequest, rules: tuple[str, ...]) -> str:
    return data_hash(sorted_json([state.package, request.target, request.value, rules]))


def _hook_fault(gate: GateState, request: GateRequest) -> Fault:
    message = texts.DENIED_BY_HOOK.format(gate.by or "", request.target, gate.denial or "")
    fields: dict[str, Any] = {"subject": request.subject, "target": request.target, "rules": [], "hook": gate.by}
    return Fault("policy.denied", message, fields)


def _policy_fault(gate: GateState, request: GateRequest) -> Fault:
    stops = gate.ruling == "interrupt"
    message = texts.denied_by_policy(gate.rules, request.target, gate.reason, stops=stops)
    fields = {"subject": request.subject, "target": request.target, "rules": list(gate.rules)}
    return Fault("policy.interrupted" if stops else "policy.denied", message, fields)


def _approval_fault(gate: GateState, request: GateRequest) -> Fault:
    fields = {"call": request.subject, "target": request.target, "rules": list(gate.rules), "by": gate.by}
    return Fault(f"approval.{gate.answer}", texts.not_approved(gate.answer, request.target), fields)
