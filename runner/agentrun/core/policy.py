"""Which ruling holds: a table lookup that returns its reason.

Rule 1  The most restrictive matching rule wins, whatever the order: interrupt, deny, defer, ask, modify, allow.
Rule 2  A condition that cannot be evaluated counts against what is ruled on: an allow or modify rule does not match,
        any other rule does. The reason of the ruling says so, with the error.
Rule 3  Without a matching rule a call gets the policy's default; everything else goes ahead.
Rule 4  Two rules that rewrite one argument deny.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import re2
from msgspec import UNSET, Struct, UnsetType

from agentrun.core.condition import FailedEvaluation, evaluate_condition
from agentrun.core.package import RULINGS, Package, PolicyRule, Ruling, Stage
from agentrun.core.package_lookup import matches_pattern
from agentrun.core.state import State

_MASK = "***"


class PolicyDecision(Struct, frozen=True):
    """A ruling, and why."""

    ruling: Ruling
    rules: tuple[str, ...]
    reason: str | None
    arguments: dict[str, Any] | UnsetType = UNSET
    """With modify on a call: what is set."""
    masks: tuple[str, ...] = ()
    """With modify on a text: what is masked."""


def has_rules(package: Package, stage: Stage) -> bool:
    """Whether the policy has anything to say at a stage."""
    return stage == "tool_call" or stage in [rule.on for rule in package.policy.rules]


def evaluate_policy(
    package: Package, stage: Stage, target: str, variables: Mapping[str, Any], *, rewritten: bool = False
) -> PolicyDecision:
    """The ruling on a target. What was rewritten already is not rewritten again."""
    values = [
        (rule, True if rule.when is None else evaluate_condition(rule.when, variables))
        for rule in package.policy.rules
        if rule.on == stage
        and not (rewritten and rule.ruling == "modify")
        and any(matches_pattern(name, target) for name in rule.targets)
    ]
    matched = [rule for rule, value in values if _applies(rule, value)]
    failures = [
        f"the condition of {rule.id} cannot be evaluated: {value.reason}"
        for rule, value in values
        if isinstance(value, FailedEvaluation)
    ]
    if not matched:
        default: Ruling = package.policy.default if stage == "tool_call" else "allow"
        return PolicyDecision(default, (), _reason([], failures))
    ruling = matched[0].ruling if len(matched) == 1 else max((rule.ruling for rule in matched), key=RULINGS.index)
    decisive = [rule for rule in matched if rule.ruling == ruling]
    if ruling == "modify":
        return _combine_modifications(decisive, failures)
    return PolicyDecision(ruling, _ids(decisive), _reason(decisive, failures))


def reads_variables(package: Package, stage: Stage) -> bool:
    """Whether a rule of a stage has a condition."""
    return any(rule.on == stage and rule.when is not None for rule in package.policy.rules)


def _applies(rule: PolicyRule, value: bool | FailedEvaluation) -> bool:
    return rule.ruling not in ("allow", "modify") if isinstance(value, FailedEvaluation) else value


def _combine_modifications(rules: list[PolicyRule], failures: list[str]) -> PolicyDecision:
    names = [name for rule in rules for name in rule.set]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        involved = [rule for rule in rules if not set(doubled).isdisjoint(rule.set)]
        return PolicyDecision("deny", _ids(involved), f"two rules set {doubled[0]}")
    merged = {name: value for rule in rules for name, value in rule.set.items()}
    masks = tuple(pattern for rule in rules for pattern in rule.mask)
    return PolicyDecision("modify", _ids(rules), _reason(rules, failures), merged, masks)


def _ids(rules: list[PolicyRule]) -> tuple[str, ...]:
    return tuple(sorted(rule.id for rule in rules))


def _reason(rules: list[PolicyRule], failures: list[str]) -> str | None:
    return "; ".join([*(rule.reason for rule in rules if rule.reason), *failures]) or None


def mask_patterns(text: str, patterns: tuple[str, ...]) -> str:
    """A text without what patterns find in it."""
    for pattern in patterns:
        text = compile_mask(pattern).sub(_MASK, text)
    return text


@lru_cache(maxsize=1024)
def compile_mask(pattern: str) -> Any:
    """A pattern, ready to be searched for."""
    options = re2.Options()
    options.log_errors = False  # it would write to standard error
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # RE2 has no types


def condition_variables(
    state: State, arguments: Mapping[str, Any] | None = None, index: int | None = None
) -> dict[str, Any]:
    """What a condition sees. With the index of a call, the others of its batch that may run count as if they ran.

    Calls are ruled on in their order, so these are the ones before it; after it only for one that was deferred.
    """
    meter, earlier = state.meter if index is None else state.meter_at_batch_start, state.started.earlier
    batch = () if index is None else (*state.calls[:index], *state.calls[index + 1 :])
    others = [call for call in batch if call.gate.ruling in ("allow", "ask")]
    calls = dict(meter.calls)
    for call in others:
        calls[call.call.tool] = calls.get(call.call.tool, 0) + 1
    return {
        "args": {} if arguments is None else arguments,
        "params": state.started.params,
        "spend": {
            "turns": state.turns,
            "tokens": meter.tokens,
            "cost": meter.cost,
            "time": state.elapsed,
            "tool_calls": meter.tool_calls + len(others),
        },
        "calls": calls,
        "session": {"runs": earlier.runs, "turns": earlier.turns},
    }
