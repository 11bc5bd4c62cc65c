"""What a reader hears of hooks, rulings and people. A plain yes has no line."""

from __future__ import annotations

from typing import assert_never

from msgspec import UNSET

from agentrun.canon import compact
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.facts_gates import (
    Answer,
    ApprovalAnswered,
    ApprovalAsked,
    Continue,
    Deny,
    Failed,
    GateFact,
    HookAnswered,
    HookAsked,
    Inject,
    Modify,
    Ruled,
)
from agentrun.core.package import Package, Ruling
from agentrun.core.state import State
from agentrun.report.line import Line, Tone, gist, told
from agentrun.report.tell_calls import MANY, NAME, name_of
from agentrun.spec.text import short

SUBJECTS = {
    "input": "the input",
    "request": "the request",
    "reply": "the reply",
    "output": "the answer",
    "stop": "the end",
}
RULINGS: dict[Ruling, tuple[str, Tone]] = {
    "allow": ("allowed", "plain"),
    "modify": ("changed", "warn"),
    "ask": ("approved earlier in the session", "good"),
    "defer": ("put off", "warn"),
    "deny": ("denied", "bad"),
    "interrupt": ("stopped", "bad"),
}
ANSWERS: dict[Answer, tuple[str, Tone]] = {
    "approved": ("approved by {}", "good"),
    "approved_for_session": ("approved for the session by {}", "good"),
    "denied": ("denied by {}", "bad"),
    "timed_out": ("nobody answered in time", "bad"),
    "cancelled": ("the question was withdrawn by {}", "bad"),
    "unavailable": ("there is nobody to ask", "bad"),
}


def tell_gate(_: Package, state: State, fact: GateFact) -> tuple[Line, ...]:
    match fact:
        case HookAsked():
            return ()
        case HookAnswered():
            return _answered(state, fact)
        case Ruled():
            return _ruled(state, fact)
        case ApprovalAsked():
            why = _because(fact.rules, fact.reason)
            return (told(f"? {subject(state, fact.subject)}: needs approval {why}", "warn", 1),)
        case ApprovalAnswered():
            text, tone = ANSWERS[fact.answer]
            return (told(f"{subject(state, fact.subject)}: {text.format(short(fact.by, NAME))}", tone, 1),)
        case _:
            assert_never(fact)


def subject(state: State, name: str, *, after: bool = False) -> str:
    """What wants to pass. `after`: of a call, its result."""
    if name in SUBJECTS:
        return SUBJECTS[name]
    if isinstance(delivery := parse_effect_id(name), DeliveryId):
        return f"the delivery to {short(delivery.sink, NAME)}"
    named = name_of(state, name)
    return f"the result of {named}" if after else named


def _ruled(state: State, fact: Ruled) -> tuple[Line, ...]:
    if fact.ruling == "allow" or (fact.ruling == "ask" and not fact.granted):
        return ()  # what is asked of whom has a fact of its own
    word, tone = RULINGS[fact.ruling]
    what = subject(state, fact.subject, after=fact.stage == "tool_result")
    become = "" if fact.arguments is UNSET else f" → {short(compact(fact.arguments).decode(), MANY)}"
    return (told(f"{what}: {word} {_because(fact.rules, fact.reason)}{become}", tone, 1),)


def _because(rules: tuple[str, ...], reason: str | None) -> str:
    by = f"by {', '.join(short(rule, NAME) for rule in rules)}" if rules else "by default"
    return f"({by})" if reason is None else f"({by}: {short(reason)})"


def _answered(state: State, fact: HookAnswered) -> tuple[Line, ...]:
    what = subject(state, fact.subject, after=fact.point == "after_tool")
    hook = f"the hook {short(fact.hook, NAME)}"
    match fact.answer:
        case Continue():
            return ()
        case Deny(reason):
            return (told(f"{what}: denied by {hook}: {gist(reason)}", "bad", 1),)
        case Modify(dict() as value):
            return (told(f"{what}: changed by {hook} → {short(compact(value).decode(), MANY)}", "warn", 1),)
        case Modify():
            return (told(f"{what}: changed by {hook}", "warn", 1),)
        case Inject(text):
            return (told(f"{hook} tells the model: {gist(text)}", "warn", 1),)
        case Failed(fault):
            meaning = "which is a no" if fact.closes else "and the run goes on"
            why = f"{short(fault.code)}: {gist(fault.message)}"
            return (told(f"{what}: {hook} failed, {meaning}: {why}", "bad" if fact.closes else "warn", 1),)
        case _:
            assert_never(fact.answer)
