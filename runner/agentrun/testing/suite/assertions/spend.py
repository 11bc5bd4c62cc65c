"""Claims about what a run spent, and how it ended."""

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


def check_tokens(claim: types.TokensAssertion, evidence: Evidence) -> AssertionResult:
    least = None if isinstance(claim.min, UnsetType) else parse_count(claim.min)
    most = None if isinstance(claim.max, UnsetType) else parse_count(claim.max)
    return _check_range(evidence.tokens, least, most, lambda amount: f"{amount:,} tokens", "used")


def check_cost(claim: types.CostAssertion, evidence: Evidence) -> AssertionResult:
    """Dollars are compared exactly, also those that are no whole number of micro-dollars."""
    return _check_range(evidence.cost, _micro_dollars(claim.min), _micro_dollars(claim.max), _format_dollars, "spent")


def check_turns(claim: types.TurnsAssertion, evidence: Evidence) -> AssertionResult:
    return check_count(evidence.turns, claim, "turn", "made")


def check_time(claim: types.TimeAssertion, evidence: Evidence) -> AssertionResult:
    least = None if isinstance(claim.min, UnsetType) else milliseconds(claim.min)
    most = None if isinstance(claim.max, UnsetType) else milliseconds(claim.max)
    return _check_range(
        evidence.time, least, most, lambda amount: f"{amount:,} ms", "taken, by the clock of the recording"
    )


def check_count(found: int, claim: types.TurnsAssertion | types.ToolCalls, noun: str, verb: str) -> AssertionResult:
    """A count that is exactly, at least, or at most something."""
    least = claim.min if claim.value is UNSET else claim.value
    most = claim.max if claim.value is UNSET else claim.value
    return _check_range(
        found,
        None if isinstance(least, UnsetType) else least,
        None if isinstance(most, UnsetType) else most,
        lambda amount: plural(int(amount), noun),
        verb,
    )


def _check_range(
    found: int, least: Amount | None, most: Amount | None, write: Callable[[Amount], str], verb: str
) -> AssertionResult:
    holds = (least is None or found >= least) and (most is None or found <= most)

    def says() -> str:
        parts = [("at least", least), ("at most", most)] if least != most else [("exactly", least)]
        limits = " and ".join(f"{how} {write(limit)}" for how, limit in parts if limit is not None)
        return f"{write(found)} {verb}; wanted: {'not ' if holds else ''}{limits}"

    return AssertionResult(holds, says)


def _micro_dollars(amount: float | UnsetType) -> Decimal | None:
    return None if isinstance(amount, UnsetType) else Decimal(str(amount)) * MICRO_DOLLARS


def _format_dollars(micro: Amount) -> str:
    return format_dollars(int(micro)) if micro == int(micro) else f"${(Decimal(micro) / MICRO_DOLLARS).normalize():f}"


def check_outcome(claim: types.OutcomeIs, evidence: Evidence) -> AssertionResult:
    holds = matches_pattern(claim.value, evidence.outcome)
    if holds:
        return AssertionResult(True, lambda: f"the outcome is {evidence.outcome}")
    return AssertionResult(False, lambda: f"the outcome is {evidence.outcome}, not {claim.value}")
