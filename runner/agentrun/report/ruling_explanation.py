"""Why the policy made a ruling: each rule that names the target, its condition with values, and whether it matched.

Rule 1  The rules are tried again with the state before the ruling, by the function that made it.
Rule 2  Values are shown for what a condition reads, and for nothing else. They are masked and cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from agentrun.core.condition import CONDITION_VARIABLES
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.facts import Ruled
from agentrun.core.package import Package, Ruling
from agentrun.core.policy import RuleTrial, condition_variables, try_rules
from agentrun.core.state import GateState, State, find_call
from agentrun.spec.safe_text import json_text, short_text

_TEXT_LITERAL = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_READ = re.compile(rf"\b(?:{'|'.join(CONDITION_VARIABLES)})(?:\.[A-Za-z_]\w*)*")
_MAX_CONDITION = 300


class TriedRule(Struct, frozen=True, omit_defaults=True):
    id: str
    ruling: Ruling
    matched: bool
    decisive: bool
    """Whether the ruling names it."""
    condition: str | None = None
    values: tuple[tuple[str, str], ...] = ()
    """What the condition reads, and its values."""
    failure: str | None = None
    """Why the condition has no value."""
    reason: str | None = None


def explain_ruling(package: Package, state: State, fact: Ruled) -> tuple[TriedRule, ...]:
    """`state`: before the ruling."""
    variables = _variables(state, fact)
    gate = _gate(state, fact)
    trials = try_rules(
        package,
        fact.stage,
        _target(state, fact),
        variables,
        rewritten=gate.rewritten,
        now=state.now,
        lapsed=gate.lapsed,
    )
    return tuple(_describe(trial, fact, variables) for trial in trials)


def _describe(trial: RuleTrial, fact: Ruled, variables: Mapping[str, Any]) -> TriedRule:
    rule = trial.rule
    return TriedRule(
        id=short_text(rule.id),
        ruling=rule.ruling,
        matched=trial.matched,
        decisive=rule.id in fact.rules,
        condition=None if rule.when is None else short_text(rule.when, _MAX_CONDITION),
        values=() if rule.when is None else tuple(_values_read(rule.when, variables)),
        failure=None if trial.failure is None else short_text(trial.failure),
        reason=None if rule.reason is None else short_text(rule.reason, _MAX_CONDITION),
    )


def _values_read(condition: str, variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The variables that a condition names outside its texts, each with the value that it has."""
    for name in dict.fromkeys(_READ.findall(_TEXT_LITERAL.sub("''", condition))):
        value: Any = variables
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                yield name, "absent"
                break
            value = value[key]
        else:
            yield name, str(value) if name == "now" else json_text(value, name.rpartition(".")[2])


def _variables(state: State, fact: Ruled) -> dict[str, Any]:
    call = find_call(state, fact.subject)
    if call is None:
        return condition_variables(state)
    index = state.calls.index(call)
    return condition_variables(state, call.all_arguments, index + 1 if fact.stage == "tool_result" else index)


def _gate(state: State, fact: Ruled) -> GateState:
    call = find_call(state, fact.subject)
    if call is None:
        return state.gate_for(fact.subject)
    return call.result_gate if fact.stage == "tool_result" else call.gate


def _target(state: State, fact: Ruled) -> str:
    call = find_call(state, fact.subject)
    if call is not None:
        return call.tool
    effect = parse_effect_id(fact.subject)
    return effect.sink if isinstance(effect, DeliveryId) else fact.subject
