"""Assertions on the spend and the outcome of a run."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from agentrun.core.package_lookup import matches_pattern
from agentrun.report.formatting import format_dollars
from agentrun.spec.safe_text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.field_types import milliseconds, parse_count
from agentrun.testing.suite.assertions.result import AssertionResult
from agentrun.testing.suite.evidence import Evidence

MICRO_DOLLARS = 1_000_000

Amount: TypeAlias = Decimal | int


def check_tokens(assertion: types.TokensAssertion, evidence: Evidence) -> AssertionResult:
    least = None if isinstance(assertion.min, UnsetType) else parse_count(assertion.min)
    most = None if isinstance(assertion.max, UnsetType) else parse_count(assertion.max)
    return _check_range(evidence.tokens, least, most, lambda amount: f"{amount:,} tokens", "used")


def check_cost(assertion: types.CostAssertion, evidence: Evidence) -> AssertionResult:
    """Compares exactly, also amounts that are not a whole number of micro-dollars."""
    least, most = _micro_dollars(assertion.min), _micro_dollars(assertion.max)
    return _check_range(evidence.cost, least, most, _format_dollars, "spent")


def check_turns(assertion: types.TurnsAssertion, evidence: Evidence) -> AssertionResult:
    return check_count(evidence.turns, assertion, "turn", "made")


def check_time(assertion: types.TimeAssertion, evidence: Evidence) -> AssertionResult:
    least = None if isinstance(assertion.min, UnsetType) else milliseconds(assertion.min)
    most = None if isinstance(assertion.max, UnsetType) else milliseconds(assertion.max)
    return _check_range(evidence.time, least, most, lambda amount: f"{amount:,} ms", "taken, by the clock of the run")


def check_count(
    actual: int, assertion: types.TurnsAssertion | types.ToolCalls, noun: str, verb: str
) -> AssertionResult:
    least = assertion.min if assertion.value is UNSET else assertion.value
    most = assertion.max if assertion.value is UNSET else assertion.value
    return _check_range(
        actual,
        None if isinstance(least, UnsetType) else least,
        None if isinstance(most, UnsetType) else most,
        lambda amount: plural(int(amount), noun),
        verb,
    )


def _check_range(
    actual: int, least: Amount | None, most: Amount | None, write: Callable[[Amount], str], verb: str
) -> AssertionResult:
    holds = (least is None or actual >= least) and (most is None or actual <= most)

    def describe() -> str:
        parts = [("at least", least), ("at most", most)] if least != most else [("exactly", least)]
        limits = " and ".join(f"{how} {write(limit)}" for how, limit in parts if limit is not None)
        return f"{write(actual)} {verb}; expected: {'not ' if holds else ''}{limits}"

    return AssertionResult(holds, describe)


def _micro_dollars(amount: float | UnsetType) -> Decimal | None:
    return None if isinstance(amount, UnsetType) else Decimal(str(amount)) * MICRO_DOLLARS


def _format_dollars(micro: Amount) -> str:
    return format_dollars(int(micro)) if micro == int(micro) else f"${(Decimal(micro) / MICRO_DOLLARS).normalize():f}"


def check_outcome(assertion: types.OutcomeIs, evidence: Evidence) -> AssertionResult:
    holds = matches_pattern(assertion.value, evidence.outcome)
    more = "" if holds else f", not {assertion.value}"
    return AssertionResult(holds, lambda: f"the outcome is {evidence.outcome}{more}")
