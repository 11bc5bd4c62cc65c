"""Claims about the policy and about people."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.claims.finding import Finding, is_meant, listed
from agentrun.testing.suite.evidence import Evidence
from agentrun.testing.suite.trail import ApprovalSeen, RulingSeen


def ruling(claim: types.RulingIs, evidence: Evidence) -> Finding:
    """The policy ruled so, at least once."""
    fits = [each for each in evidence.rulings if _is_claimed(claim, each)]

    def says() -> str:
        about = f"{claim.value} for {'anything' if claim.target == '*' else claim.target}"
        stage = "" if claim.stage is UNSET else f" on {claim.stage}"
        rule = "" if claim.rule is UNSET else f" by rule {evidence.quoted(claim.rule)}"
        if fits:
            return f"the policy ruled {about}{stage}{rule}\n{_rulings(evidence, fits)}"
        there = evidence.rulings
        return f"the policy did not rule {about}{stage}{rule}\n{_rulings(evidence, there) or '  it ruled on nothing'}"

    return Finding(bool(fits), says)


def _is_claimed(claim: types.RulingIs, seen: RulingSeen) -> bool:
    return (
        seen.ruling == claim.value
        and is_meant(claim.target, seen.target)
        and (claim.stage is UNSET or seen.stage == claim.stage)
        and (claim.rule is UNSET or claim.rule in seen.rules)
    )


def _rulings(evidence: Evidence, rulings: Iterable[RulingSeen]) -> str:
    return listed(
        evidence.quoted(
            f"{seen.target} ({seen.stage}): {seen.ruling} by {', '.join(seen.rules) or 'default'}"
            if seen.target != seen.stage
            else f"{seen.target}: {seen.ruling} by {', '.join(seen.rules) or 'default'}"
        )
        for seen in rulings
    )


def approval(claim: types.ApprovalIs, evidence: Evidence) -> Finding:
    """A person was asked and answered so, at least once."""
    about = [each for each in evidence.approvals if is_meant(claim.target, each.target)]
    fits = [each for each in about if each.answer == claim.value]

    def says() -> str:
        target = "" if claim.target == "*" else f" about {claim.target}"
        if fits:
            return f"the answer{target} is {claim.value}\n{_answers(evidence, fits)}"
        if not about:
            return f"nobody was asked{target}, or nobody answered"
        return f"no answer{target} is {claim.value}\n{_answers(evidence, about)}"

    return Finding(bool(fits), says)


def _answers(evidence: Evidence, answers: Iterable[ApprovalSeen]) -> str:
    return listed(evidence.quoted(f"{seen.target}: {seen.answer} by {seen.by}") for seen in answers)
