"""The way past hooks, policy and people, the same for everything that has to go it.

Rule 1  Hooks first, in their order, then the policy, then a person if the policy asks for one.
Rule 2  A missing piece means no: what is not opened is shut.
Rule 3  A question is bound to what would happen: the run, the package, the target, its value and the rules. Another
        value is another question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
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
    """Something that has to pass."""

    subject: str
    target: str
    value: Any
    """Arguments, or a text."""
    point: HookPoint | None = None
    stage: Stage | None = None
    arguments: Mapping[str, Any] | None = None
    """What conditions see as `args`."""
    index: int | None = None
    """Of a call: conditions see the calls before it as if they ran."""
    instructions: str = ""
    """What else a rule on requests masks."""
    messages: tuple[tuple[int, Message], ...] = ()
    """What else a rule on requests masks, by index."""


class Allowed(Struct, frozen=True):
    """It may pass."""


class Blocked(Struct, frozen=True):
    """It may not."""

    fault: Fault


GateResult: TypeAlias = NextStep | Allowed | Blocked


def has_gate(package: Package, point: HookPoint, stage: Stage | None) -> bool:
    """Whether anything stands in the way at all."""
    return point in [hook.at for hook in package.hooks] or (stage is not None and has_rules(package, stage))


def pass_gate(package: Package, state: State, gate: GateState, passage: GateRequest) -> GateResult:
    """The next step of something on its way, or where it stands in the end."""
    hooks = hooks_at(package, passage.point) if passage.point else ()
    if gate.hook is not None:
        return Wait(inflight=(gate.hook,))
    if gate.denial is not None:
        return Blocked(_hook_fault(gate, passage))
    if gate.hooks_answered < len(hooks):
        hook = hooks[gate.hooks_answered]
        effect = AskHook(
            str(HookId(hook.id, passage.subject, state.turns)),
            hook,
            hook.at,
            passage.subject,
            passage.target,
            passage.value,
        )
        return Perform((effect,))
    if passage.stage is None or not has_rules(package, passage.stage):
        return Allowed()
    if gate.ruling is None:
        return Commit((make_ruling(package, state, gate, passage, passage.stage),))
    return _after_ruling(state, gate, passage)


def _after_ruling(state: State, gate: GateState, passage: GateRequest) -> GateResult:
    match gate.ruling:
        case "allow" | "modify":
            return Allowed()
        case "ask" if gate.granted or gate.answer in APPROVED_ANSWERS:
            return Allowed()
        case "ask" if gate.answer is not None:
            return Blocked(_approval_fault(gate, passage))
        case "ask" if gate.question is None:
            return Commit((ask_approval(state, gate, passage),))
        case "ask":
            return Wait(questions=(pending_question(state, gate, passage),))
        case "defer":
            return Wait(waits_for=(passage.subject,))
        case _:
            return Blocked(_policy_fault(gate, passage))


def make_ruling(package: Package, state: State, gate: GateState, passage: GateRequest, stage: Stage) -> Ruled:
    """What the policy rules."""
    variables = condition_variables(state, passage.arguments, passage.index) if reads_variables(package, stage) else {}
    verdict = evaluate_policy(package, stage, passage.target, variables, rewritten=gate.rewritten)
    fact = Ruled(passage.subject, stage, verdict.ruling, verdict.rules, verdict.reason)
    if verdict.ruling == "ask":
        grant = _grant_hash(state, passage, verdict.rules)
        return replace(fact, granted=grant in state.grants)
    if verdict.ruling == "modify":
        return _apply_modification(fact, verdict, passage)
    return fact


def _apply_modification(fact: Ruled, verdict: PolicyDecision, passage: GateRequest) -> Ruled:
    if fact.stage == "tool_call":
        return replace(fact, arguments={**passage.value, **_arguments_to_set(verdict)})
    before = passage.instructions if fact.stage == "model_request" else passage.value
    text = mask_patterns(before, verdict.masks)
    changed = ((index, message, _mask_message(message, verdict.masks)) for index, message in passage.messages)
    messages = tuple(RewrittenMessage(index, after) for index, message, after in changed if after != message)
    return replace(fact, text=UNSET if text == before else text, messages=messages)


def _mask_message(message: Message, masks: tuple[str, ...]) -> Message:
    if isinstance(message, Assistant):  # the provider has its own words already
        return message
    parts = tuple(Text(mask_patterns(part.text, masks)) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=parts)


def _arguments_to_set(verdict: PolicyDecision) -> dict[str, Any]:
    return {} if isinstance(verdict.arguments, UnsetType) else verdict.arguments


def ask_approval(state: State, gate: GateState, passage: GateRequest) -> Fact:
    """A person is to be asked."""
    grant = _grant_hash(state, passage, gate.rules)
    question = data_hash(sorted_json([state.started.run, passage.subject, grant]))
    return ApprovalAsked(passage.subject, question, grant, passage.target, gate.rules, gate.reason)


def pending_question(state: State, gate: GateState, passage: GateRequest) -> Question:
    return Question(
        passage.subject,
        gate.question or "",
        passage.target,
        passage.value,
        gate.rules,
        gate.reason,
        state.started.params,
    )


def _grant_hash(state: State, passage: GateRequest, rules: tuple[str, ...]) -> str:
    return data_hash(sorted_json([state.package, passage.target, passage.value, rules]))


def _hook_fault(gate: GateState, passage: GateRequest) -> Fault:
    fields: dict[str, Any] = {"subject": passage.subject, "target": passage.target, "rules": [], "hook": gate.by}
    return Fault("policy.denied", f"the hook {gate.by} denies {passage.target}: {gate.denial}", fields)


def _policy_fault(gate: GateState, passage: GateRequest) -> Fault:
    code, does = (
        ("policy.interrupted", "stops the run over") if gate.ruling == "interrupt" else ("policy.denied", "denies")
    )
    who = f"the policy ({', '.join(gate.rules)})" if gate.rules else "the policy's default"
    reason = f": {gate.reason}" if gate.reason else ""
    fields = {"subject": passage.subject, "target": passage.target, "rules": list(gate.rules)}
    return Fault(code, f"{who} {does} {passage.target}{reason}", fields)


def _approval_fault(gate: GateState, passage: GateRequest) -> Fault:
    said = {
        "denied": "a person denied",
        "timed_out": "nobody answered in time about",
        "cancelled": "the question was taken back about",
    }
    words = said.get(gate.answer or "", "nobody can be asked about")
    fields = {"call": passage.subject, "target": passage.target, "rules": list(gate.rules), "by": gate.by}
    return Fault(f"approval.{gate.answer}", f"{words} {passage.target}", fields)
