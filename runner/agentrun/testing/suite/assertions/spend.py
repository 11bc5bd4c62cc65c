"""Assertions on the spend and the outcome of a run."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType

from agentrun.core.package import matches_pattern
from agentrun.report.formatting import format_dollars
from agentrun.spec.safe_text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.field_types import milliseconds, parse_count
from agentrun.testing.suite.evidence import AssertionResult, Evidence

MICRO_DOLLARS = 1_000_000

Amount: TypeAlias = Decimal | int
AmountRange: TypeAlias = tuple[Amount | None, Amount | None]


def check_tokens(assertion: types.TokensAssertion, evidence: Evidence) -> AssertionResult:
    limits = _limits(assertion, parse_count)
    return _check_range(evidence.tokens, limits, lambda amount: f"{amount:,} tokens", "used")


def check_cost(assertion: types.CostAssertion, evidence: Evidence) -> AssertionResult:
    """Compares exactly, also amounts that are not a whole number of micro-dollars."""
    limits = _limits(assertion, lambda amount: Decimal(str(amount)) * MICRO_DOLLARS)
    return _check_range(evidence.cost, limits, _format_dollars, "spent")


def check_turns(assertion: types.TurnsAssertion, evidence: Evidence) -> AssertionResult:
    return check_count(evidence.turns, assertion, "turn", "made")


def check_time(assertion: types.TimeAssertion, evidence: Evidence) -> AssertionResult:
    limits = _limits(assertion, milliseconds)
    return _check_range(evidence.time, limits, lambda amount: f"{amount:,} ms", "taken, by the clock of the run")


def check_count(
    actual: int, assertion: types.TurnsAssertion | types.ToolCalls, noun: str, verb: str
) -> AssertionResult:
    exactly = assertion.value
    limits = _limits(assertion, int) if isinstance(exactly, UnsetType) else (exactly, exactly)
    return _check_range(actual, limits, lambda amount: plural(int(amount), noun), verb)


def _limits(assertion: Any, read: Callable[[Any], Amount]) -> AmountRange:
    least, most = (None if limit is UNSET else read(limit) for limit in (assertion.min, assertion.max))
    return least, most


def _check_range(actual: int, limits: AmountRange, write: Callable[[Amount], str], verb: str) -> AssertionResult:
    least, most = limits
    holds = (least is None or actual >= least) and (most is None or actual <= most)

    def describe() -> str:
        parts = [("at least", least), ("at most", most)] if least != most else [("exactly", least)]
        expected = " and ".join(f"{how} {write(limit)}" for how, limit in parts if limit is not None)
        return f"{write(actual)} {verb}; expected: {'not ' if holds else ''}{expected}"

    return AssertionResult(holds, describe)


def _format_dollars(micro: Amount) -> str:
    return format_dollars(int(micro)) if micro == int(micro) else f"${(Decimal(micro) / MICRO_DOLLARS).normalize():f}"


def check_outcome(assertion: types.OutcomeIs, evidence: Evidence) -> AssertionResult:
    holds = matches_pattern(assertion.value, evidence.outcome)
    more = "" if holds else f", not {assertion.value}"
    return AssertionResult(holds, lambda: f"the outcome is {evidence.outcome}{more}")
