"""The policy: a table lookup that returns a ruling and its reason.

Rule 1  The most restrictive matching rule wins, in any order of rules: interrupt, deny, defer, ask, modify, allow.
Rule 2  A condition that cannot be evaluated counts against the target: an allow or modify rule does not match, any
        other rule does. The reason of the ruling contains the error.
Rule 3  Without a matching rule, a tool call gets the default of the policy. Everything else is allowed.
Rule 4  A rule that defers until a time does not match from then on. One that defers for a while defers a subject once.
        If several rules defer, the latest time counts, and a person is asked after that.
Rule 5  The time is that of the last record, so that an audit makes the same ruling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import re2
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from agentrun.core import model_texts as texts
from agentrun.core.budget import used_budgets
from agentrun.core.condition import FailedEvaluation, evaluate_condition, to_timestamp
from agentrun.core.package import RULINGS, Package, PolicyRule, Ruling, Stage, matches_pattern
from agentrun.core.state import State


class PolicyDecision(Struct, frozen=True):
    ruling: Ruling
    rules: tuple[str, ...]
    reason: str | None
    arguments: dict[str, Any] = {}
    masks: tuple[str, ...] = ()
    until: int | UnsetType = UNSET
    person: bool | UnsetType = UNSET


class RuleTrial(Struct, frozen=True):
    """A rule that names the target at this stage, and whether it matched."""

    rule: PolicyRule
    matched: bool
    failure: str | None = None
    """Why the condition has no value."""


def has_rules(package: Package, stage: Stage) -> bool:
    return stage == "tool_call" or stage in [rule.on for rule in package.policy.rules]


def evaluate_policy(
    package: Package,
    stage: Stage,
    target: str,
    variables: Mapping[str, Any],
    *,
    rewritten: bool = False,
    now: int = 0,
    lapsed: Collection[str] = (),
) -> PolicyDecision:
    """The ruling on a target. A target that was rewritten already is not rewritten again. `lapsed`: the rules that have
    deferred it for a time that is over."""
    trials = try_rules(package, stage, target, variables, rewritten=rewritten, now=now, lapsed=lapsed)
    matched = [trial.rule for trial in trials if trial.matched]
    failures = [
        texts.CONDITION_FAILED.format(trial.rule.id, trial.failure) for trial in trials if trial.failure is not None
    ]
    if not matched:
        default: Ruling = package.policy.default if stage == "tool_call" else "allow"
        return PolicyDecision(default, (), _reason([], failures))
    ruling = matched[0].ruling if len(matched) == 1 else max((rule.ruling for rule in matched), key=RULINGS.index)
    decisive = [rule for rule in matched if rule.ruling == ruling]
    if ruling == "modify":
        return _combine_modifications(decisive, failures)
    if ruling == "defer":
        return _combine_deferrals(decisive, failures, now)
    return PolicyDecision(ruling, _ids(decisive), _reason(decisive, failures))


def try_rules(
    package: Package,
    stage: Stage,
    target: str,
    variables: Mapping[str, Any],
    *,
    rewritten: bool = False,
    now: int = 0,
    lapsed: Collection[str] = (),
) -> tuple[RuleTrial, ...]:
    """Every rule that applies to a target, in the order of the policy. The arguments are those of `evaluate_policy`."""
    trials: list[RuleTrial] = []
    for rule in package.policy.rules:
        if rule.on != stage or (rewritten and rule.ruling == "modify") or _is_over(rule, now, lapsed):
            continue
        if not any(matches_pattern(name, target) for name in rule.targets):
            continue
        value = True if rule.when is None else evaluate_condition(rule.when, variables)
        if isinstance(value, FailedEvaluation):
            trials.append(RuleTrial(rule, rule.ruling not in ("allow", "modify"), value.reason))
        else:
            trials.append(RuleTrial(rule, value))
    return tuple(trials)


def _combine_modifications(rules: list[PolicyRule], failures: list[str]) -> PolicyDecision:
    names = [name for rule in rules for name in rule.set]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        involved = [rule for rule in rules if not set(doubled).isdisjoint(rule.set)]
        return PolicyDecision("deny", _ids(involved), texts.ARGUMENT_SET_TWICE.format(doubled[0]))
    merged = {name: value for rule in rules for name, value in rule.set.items()}
    masks = tuple(pattern for rule in rules for pattern in rule.mask)
    return PolicyDecision("modify", _ids(rules), _reason(rules, failures), merged, masks)


def _is_over(rule: PolicyRule, now: int, lapsed: Collection[str]) -> bool:
    return (rule.until is not UNSET and now >= rule.until) or (rule.wait is not UNSET and rule.id in lapsed)


def _combine_deferrals(rules: list[PolicyRule], failures: list[str], now: int) -> PolicyDecision:
    decisive = [rule for rule in rules if not rule.person] or rules
    times = [rule.until for rule in decisive if rule.until is not UNSET]
    times += [now + rule.wait for rule in decisive if rule.wait is not UNSET]
    until, person = max(times) if times else UNSET, decisive[0].person or UNSET
    return PolicyDecision("defer", _ids(decisive), _reason(decisive, failures), until=until, person=person)


def _ids(rules: list[PolicyRule]) -> tuple[str, ...]:
    return tuple(sorted(rule.id for rule in rules))


def _reason(rules: list[PolicyRule], failures: list[str]) -> str | None:
    return "; ".join([*(rule.reason for rule in rules if rule.reason), *failures]) or None


def split_reason(reason: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The reasons that the rules of a ruling have, and the conditions that could not be evaluated, with the errors."""
    before, after, _ = texts.CONDITION_FAILED.split("{}")
    found: list[list[str]] = [[]]
    for part in reason.split("; ") if reason is not None else ():
        if part.startswith(before) and after in part:
            found.append([])
        found[-1].append(part)
    own, *failures = map("; ".join, found)
    return own or None, tuple(failures)


def mask_patterns(text: str, patterns: tuple[str, ...]) -> str:
    for pattern in patterns:
        text = compile_mask(pattern).sub("***", text)
    return text


@lru_cache(maxsize=1024)
def compile_mask(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False  # it would write to standard error
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # RE2 has no types


def condition_variables(
    state: State, arguments: Mapping[str, Any] | None = None, index: int | None = None
) -> dict[str, Any]:
    """With the index of a call, the allowed calls of its batch count as if they had run: calls are ruled on in their
    order, so these are the calls before it. Only a deferred call also counts later ones."""
    meter, earlier = state.meter if index is None else state.meter_at_batch_start, state.started.earlier
    batch = () if index is None else (*state.calls[:index], *state.calls[index + 1 :])
    others = [call for call in batch if call.gate.ruling in ("allow", "ask")]
    calls = dict(meter.calls)
    for call in others:
        calls[call.tool] = calls.get(call.tool, 0) + 1
    return {
        "args": {} if arguments is None else arguments,
        "params": state.started.params,
        "spend": used_budgets(state, replace(meter, tool_calls=meter.tool_calls + len(others))),
        "calls": calls,
        "session": {"runs": earlier.runs, "turns": earlier.turns},
        "now": to_timestamp(state.now),
    }
