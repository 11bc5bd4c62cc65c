"""Claims about what a run spent, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from agentrun.compiler.quantities import count, milliseconds
from agentrun.core.names import matches
from agentrun.report.amounts import dollars
from agentrun.spec.text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.claims.finding import Finding
from agentrun.testing.suite.evidence import Evidence

MICRO = 1_000_000

Amount: TypeAlias = Decimal | int


def tokens(claim: types.Tokens, evidence: Evidence) -> Finding:
    least = None if isinstance(claim.min, UnsetType) else count(claim.min)
    most = None if isinstance(claim.max, UnsetType) else count(claim.max)
    return _between(evidence.tokens, least, most, lambda amount: f"{amount:,} tokens", "used")


def cost(claim: types.Cost, evidence: Evidence) -> Finding:
    """Dollars are compared exactly, also those that are no whole number of micro-dollars."""
    return _between(evidence.cost, _micro(claim.min), _micro(claim.max), _dollars, "spent")


def turns(claim: types.Turns, evidence: Evidence) -> Finding:
    return in_number(evidence.turns, claim, "turn", "made")


def time(claim: types.Time, evidence: Evidence) -> Finding:
    least = None if isinstance(claim.min, UnsetType) else milliseconds(claim.min)
    most = None if isinstance(claim.max, UnsetType) else milliseconds(claim.max)
    return _between(evidence.time, least, most, lambda amount: f"{amount:,} ms", "taken, by the clock of the recording")


def in_number(found: int, claim: types.Turns | types.ToolCalls, noun: str, verb: str) -> Finding:
    """A count that is exactly, at least, or at most something."""
    least = claim.min if claim.value is UNSET else claim.value
    most = claim.max if claim.value is UNSET else claim.value
    return _between(
        found,
        None if isinstance(least, UnsetType) else least,
        None if isinstance(most, UnsetType) else most,
        lambda amount: plural(int(amount), noun),
        verb,
    )


def _between(
    found: int, least: Amount | None, most: Amount | None, write: Callable[[Amount], str], verb: str
) -> Finding:
    holds = (least is None or found >= least) and (most is None or found <= most)

    def says() -> str:
        parts = [("at least", least), ("at most", most)] if least != most else [("exactly", least)]
        limits = " and ".join(f"{how} {write(limit)}" for how, limit in parts if limit is not None)
        return f"{write(found)} {verb}; wanted: {'not ' if holds else ''}{limits}"

    return Finding(holds, says)


def _micro(amount: float | UnsetType) -> Decimal | None:
    return None if isinstance(amount, UnsetType) else Decimal(str(amount)) * MICRO


def _dollars(micro: Amount) -> str:
    return dollars(int(micro)) if micro == int(micro) else f"${(Decimal(micro) / MICRO).normalize():f}"


def outcome(claim: types.OutcomeIs, evidence: Evidence) -> Finding:
    holds = matches(claim.value, evidence.outcome)
    if holds:
        return Finding(True, lambda: f"the outcome is {evidence.outcome}")
    return Finding(False, lambda: f"the outcome is {evidence.outcome}, not {claim.value}")
