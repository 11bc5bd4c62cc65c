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

from agentrun.canon import compact, data_hash
from agentrun.core.effect_ids import HookId
from agentrun.core.effects import AskHook
from agentrun.core.evolve_gates import APPROVED
from agentrun.core.facts import Fact
from agentrun.core.facts_base import Fault
from agentrun.core.facts_gates import ApprovalAsked, Point, Rewritten, Ruled
from agentrun.core.hooks import hooks_at
from agentrun.core.messages import Assistant, Message, Text
from agentrun.core.outcome import Question
from agentrun.core.package import Package, Stage
from agentrun.core.policy import Verdict, has_rules, masked, reads_variables, rule_on, variables_of
from agentrun.core.state import Gate, State
from agentrun.core.steps import Commit, Next, Perform, Wait


class Passage(Struct, frozen=True):
    """Something that has to pass."""

    subject: str
    target: str
    value: Any
    """Arguments, or a text."""
    point: Point | None = None
    stage: Stage | None = None
    arguments: Mapping[str, Any] | None = None
    """What conditions see as `args`."""
    index: int | None = None
    """Of a call: conditions see the calls before it as if they ran."""
    instructions: str = ""
    """What else a rule on requests masks."""
    messages: tuple[tuple[int, Message], ...] = ()
    """What else a rule on requests masks, by index."""


class Open(Struct, frozen=True):
    """It may pass."""


class Shut(Struct, frozen=True):
    """It may not."""

    fault: Fault


Passed: TypeAlias = Next | Open | Shut


def is_guarded(package: Package, point: Point, stage: Stage | None) -> bool:
    """Whether anything stands in the way at all."""
    return point in [hook.at for hook in package.hooks] or (stage is not None and has_rules(package, stage))


def pass_gate(package: Package, state: State, gate: Gate, passage: Passage) -> Passed:
    """The next step of something on its way, or where it stands in the end."""
    hooks = hooks_at(package, passage.point) if passage.point else ()
    if gate.hook is not None:
        return Wait(inflight=(gate.hook,))
    if gate.denial is not None:
        return Shut(_by_hook(gate, passage))
    if gate.hooked < len(hooks):
        hook = hooks[gate.hooked]
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
        return Open()
    if gate.ruling is None:
        return Commit((ruled(package, state, gate, passage, passage.stage),))
    return _after_ruling(state, gate, passage)


def _after_ruling(state: State, gate: Gate, passage: Passage) -> Passed:
    match gate.ruling:
        case "allow" | "modify":
            return Open()
        case "ask" if gate.granted or gate.answer in APPROVED:
            return Open()
        case "ask" if gate.answer is not None:
            return Shut(_by_person(gate, passage))
        case "ask" if gate.question is None:
            return Commit((question_fact(state, gate, passage),))
        case "ask":
            return Wait(questions=(question_of(state, gate, passage),))
        case "defer":
            return Wait(waits_for=(passage.subject,))
        case _:
            return Shut(_by_rule(gate, passage))


def ruled(package: Package, state: State, gate: Gate, passage: Passage, stage: Stage) -> Ruled:
    """What the policy rules."""
    variables = variables_of(state, passage.arguments, passage.index) if reads_variables(package, stage) else {}
    verdict = rule_on(package, stage, passage.target, variables, rewritten=gate.rewritten)
    fact = Ruled(passage.subject, stage, verdict.ruling, verdict.rules, verdict.reason)
    if verdict.ruling == "ask":
        grant = _hash(state, passage, verdict.rules)
        return replace(fact, granted=grant in state.grants)
    if verdict.ruling == "modify":
        return _rewritten(fact, verdict, passage)
    return fact


def _rewritten(fact: Ruled, verdict: Verdict, passage: Passage) -> Ruled:
    if fact.stage == "tool_call":
        return replace(fact, arguments={**passage.value, **_set(verdict)})
    before = passage.instructions if fact.stage == "model_request" else passage.value
    text = masked(before, verdict.masks)
    changed = ((index, message, _masked(message, verdict.masks)) for index, message in passage.messages)
    messages = tuple(Rewritten(index, after) for index, message, after in changed if after != message)
    return replace(fact, text=UNSET if text == before else text, messages=messages)


def _masked(message: Message, masks: tuple[str, ...]) -> Message:
    if isinstance(message, Assistant):  # the provider has its own words already
        return message
    parts = tuple(Text(masked(part.text, masks)) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=parts)


def _set(verdict: Verdict) -> dict[str, Any]:
    return {} if isinstance(verdict.arguments, UnsetType) else verdict.arguments


def question_fact(state: State, gate: Gate, passage: Passage) -> Fact:
    """A person is to be asked."""
    grant = _hash(state, passage, gate.rules)
    question = data_hash(compact([state.started.run, passage.subject, grant]))
    return ApprovalAsked(passage.subject, question, grant, passage.target, gate.rules, gate.reason)


def question_of(state: State, gate: Gate, passage: Passage) -> Question:
    return Question(
        passage.subject,
        gate.question or "",
        passage.target,
        passage.value,
        gate.rules,
        gate.reason,
        state.started.params,
    )


def _hash(state: State, passage: Passage, rules: tuple[str, ...]) -> str:
    return data_hash(compact([state.package, passage.target, passage.value, rules]))


def _by_hook(gate: Gate, passage: Passage) -> Fault:
    fields: dict[str, Any] = {"subject": passage.subject, "target": passage.target, "rules": [], "hook": gate.by}
    return Fault("policy.denied", f"the hook {gate.by} denies {passage.target}: {gate.denial}", fields)


def _by_rule(gate: Gate, passage: Passage) -> Fault:
    code, does = (
        ("policy.interrupted", "stops the run over") if gate.ruling == "interrupt" else ("policy.denied", "denies")
    )
    who = f"the policy ({', '.join(gate.rules)})" if gate.rules else "the policy's default"
    reason = f": {gate.reason}" if gate.reason else ""
    fields = {"subject": passage.subject, "target": passage.target, "rules": list(gate.rules)}
    return Fault(code, f"{who} {does} {passage.target}{reason}", fields)


def _by_person(gate: Gate, passage: Passage) -> Fault:
    said = {
        "denied": "a person denied",
        "timed_out": "nobody answered in time about",
        "cancelled": "the question was taken back about",
    }
    words = said.get(gate.answer or "", "nobody can be asked about")
    fields = {"call": passage.subject, "target": passage.target, "rules": list(gate.rules), "by": gate.by}
    return Fault(f"approval.{gate.answer}", f"{words} {passage.target}", fields)
