"""Whether assertions hold."""

from __future__ import annotations

from agentrun.core.names import matches
from agentrun.spec.v1.assertions import Assertion, OutcomeIs
from agentrun.testing.suite.evidence import Evidence
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.verdict import Complaint


def judged(claim: Assertion, evidence: Evidence, prepared: Prepared) -> Complaint | None:  # noqa: ARG001
    """What is wrong with a claim. None: it holds. Not for journal-snapshot, which needs more than evidence."""
    if not isinstance(claim, OutcomeIs) or matches(claim.value, evidence.outcome) is not claim.negated:
        return None
    return Complaint(claim="outcome", message=f"the outcome is {evidence.outcome}, not {claim.value}")
