"""The gate: hooks, policy and approvals. It is the same for inputs, requests, calls, results, answers and deliveries.

Rule 1  Hooks come first, in their order. Then the policy. Then a person, if the policy says `ask`.
        A rule that defers until a person lifts it asks that person too, but the run does not wait for the answer.
Rule 2  Without an explicit yes the answer is no.
Rule 3  A question is bound to the run, the package, the target, its value and the rules. Another value is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core import model_texts as texts
from agentrun.core import policy
from agentrun.core.effect_ids import HookId
from agentrun.core.effects import AskHook, Commit, NextStep, Perform, Wait
from agentrun.core.facts import APPROVED_ANSWERS, ApprovalAsked, RewrittenMessage, Ruled
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Message, Text
from agentrun.core.outcome import Question
from agentrun.core.package import HookPoint, Package, Stage, hooks_at
from agentrun.core.state import GateState, State


class GateRequest(Struct, frozen=True):
    subject: str
    target: str
    value: Any
    """The arguments of a call, including defaults, or a text."""
    point: HookPoint | None = None
    stage: Stage | None = None
    arguments: Mapping[str, Any] | None = None
    """The `args` of conditions."""
    index: int | None = None
    """The index of a call. Conditions count the calls before it as if they had run."""
    instructions: str = ""
    value_without_defaults: dict[str, Any] | None = None
    """The arguments of a call without the defaults that were filled in. None: there were none to fill in."""
    messages: tuple[tuple[int, Message], ...] = ()
    """Messages by their index. A rule on requests masks these and the instructions."""


class Allowed(Struct, frozen=True):
    """The subject may pass."""


class Blocked(Struct, frozen=True):
    fault: Fault


GateResult: TypeAlias = NextStep | Allowed | Blocked


def has_gate(package: Package, point: HookPoint, stage: Stage | None) -> bool:
    return point in [hook.at for hook in package.hooks] or (stage is not None and policy.has_rules(package, stage))


def pass_gate(package: Package, state: State, gate: GateState, request: GateRequest) -> GateResult:
    hooks = hooks_at(package, request.point) if request.point else ()
    if gate.hook is not None:
        return Wait(inflight=(gate.hook,))
    if gate.denial is not None:
        message = texts.DENIED_BY_HOOK.format(gate.by or "", request.target, gate.denial)
        denied: dict[str, Any] = {"subject": request.subject, "target": request.target, "rules": [], "hook": gate.by}
        return Blocked(Fault("policy.denied", message, denied))
    if gate.hooks_answered < len(hooks):
        hook = hooks[gate.hooks_answered]
        id = str(HookId(hook.id, request.subject, state.turns))
        values = (request.value, request.value_without_defaults)
        return Perform((AskHook(id, hook, hook.at, request.subject, request.target, *values),))
    if request.stage is None or not policy.has_rules(package, request.stage):
        return Allowed()
    if gate.ruling is None:
        return Commit((make_ruling(package, state, gate, request, request.stage),))
    return _after_ruling(state, gate, request)


def _after_ruling(state: State, gate: GateState, request: GateRequest) -> GateResult:
    match gate.ruling:
        case "allow" | "modify":
            return Allowed()
        case "ask" | "defer" if gate.granted or gate.answer in APPROVED_ANSWERS:
            return Allowed()
        case "ask" | "defer" if gate.answer is not None:
            fields = {"call": request.subject, "target": request.target, "rules": list(gate.rules), "by": gate.by}
            fields |= {} if gate.answer_reason is None else {"answer_reason": gate.answer_reason}
            message = texts.not_approved(gate.answer, request.target, gate.answer_reason)
            return Blocked(Fault(f"approval.{gate.answer}", message, fields))
        case "defer" if not gate.person:
            return Wait(waits_for=(request.subject,))
        case "ask" | "defer" if gate.question is None:
            grant = _grant_hash(state, request.target, request.value, gate.rules)
            question = _question_hash(state, request.subject, grant)
            return Commit((ApprovalAsked(request.subject, question, grant, request.target, gate.rules, gate.reason),))
        case "ask" | "defer" as ruling:
            about = (gate.question or "", request.target, request.value, gate.rules, gate.reason, state.started.params)
            is_deferred = ruling == "defer"
            questions = (Question(request.subject, *about, request.value_without_defaults, is_deferred),)
            return Wait(questions=questions, waits_for=(request.subject,) if is_deferred else ())
        case _:
            stops = gate.ruling == "interrupt"
            message = texts.denied_by_policy(gate.rules, request.target, gate.reason, stops=stops)
            fields = {"subject": request.subject, "target": request.target, "rules": list(gate.rules)}
            return Blocked(Fault("policy.interrupted" if stops else "policy.denied", message, fields))


def make_ruling(package: Package, state: State, gate: GateState, request: GateRequest, stage: Stage) -> Ruled:
    reads = any(rule.on == stage and rule.when is not None for rule in package.policy.rules)
    variables = policy.condition_variables(state, request.arguments, request.index) if reads else {}
    decision = policy.evaluate_policy(
        package, stage, request.target, variables, rewritten=gate.rewritten, now=state.now, lapsed=gate.lapsed
    )
    fact = Ruled(
        request.subject,
        stage,
        decision.ruling,
        decision.rules,
        decision.reason,
        until=decision.until,
        person=decision.person,
    )
    if decision.ruling == "ask" or decision.person is True:
        return replace(fact, granted=_grant_hash(state, request.target, request.value, decision.rules) in state.grants)
    if decision.ruling == "modify":
        return _apply_modification(fact, decision, request)
    return fact


def _apply_modification(fact: Ruled, decision: policy.PolicyDecision, request: GateRequest) -> Ruled:
    if fact.stage == "tool_call":
        before = request.value if request.value_without_defaults is None else request.value_without_defaults
        return replace(fact, arguments={**before, **decision.arguments})
    before = request.instructions if fact.stage == "model_request" else request.value
    text = policy.mask_patterns(before, decision.masks)
    changed = ((index, message, _mask_message(message, decision.masks)) for index, message in request.messages)
    messages = tuple(RewrittenMessage(index, after) for index, message, after in changed if after != message)
    return replace(fact, text=UNSET if text == before else text, messages=messages)


def _mask_message(message: Message, masks: tuple[str, ...]) -> Message:
    if isinstance(message, Assistant):  # the provider wrote it, so masking it would hide nothing
        return message
    mask = policy.mask_patterns
    parts = tuple(Text(mask(part.text, masks)) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=parts)


def matches_its_hash(state: State, question: Question) -> bool:
    """Whether a question is about the target, the value and the rules that its hash is made of."""
    try:
        grant = _grant_hash(state, question.target, question.value, question.rules)
    except (TypeError, ValueError, OverflowError, RecursionError):  # the value is not one that a run asks about
        return False
    return question.question == _question_hash(state, question.subject, grant)


def _grant_hash(state: State, target: str, value: Any, rules: tuple[str, ...]) -> str:
    return data_hash(sorted_json([state.package, target, value, rules]))


def _question_hash(state: State, subject: str, grant: str) -> str:
    return data_hash(sorted_json([state.started.run, subject, grant]))
