"""Whether assertions hold.

Rule 1  A claim about something that did not happen does not hold, so its `not-` does: a call that was not made, an
        answer that is not there or is no JSON.
Rule 2  What cannot be told is never a pass, with `not-` or without: an expression that cannot be evaluated, a function
        that breaks.
Rule 3  A complaint says what was found. What is quoted in it was rid of secrets and cut.

output        texts, JSON, schemas
expressions   JMESPath and CEL
functions     functions of the project
trajectory    calls: which, in which order, with which arguments and end
gates         rulings and answers of people
spend         tokens, cost, turns, time; the outcome
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import Assertion
from agentrun.testing.suite.claims import expressions, functions, gates, output, spend, trajectory
from agentrun.testing.suite.claims.finding import CannotTell, Finding
from agentrun.testing.suite.evidence import Evidence
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.verdict import Complaint

_JUDGES: dict[type, Callable[[Any, Evidence], Finding]] = {
    types.Equals: output.equals,
    types.Contains: output.contains,
    types.ContainsAll: output.contains_all,
    types.ContainsAny: output.contains_any,
    types.IContains: output.icontains,
    types.IContainsAll: output.icontains_all,
    types.IContainsAny: output.icontains_any,
    types.Regex: output.regex,
    types.StartsWith: output.starts_with,
    types.IsJson: output.is_json,
    types.FitsSchema: output.fits_schema,
    types.Jmespath: expressions.jmespath,
    types.Cel: expressions.cel,
    types.ToolsExact: trajectory.exact,
    types.ToolsInOrder: trajectory.in_order,
    types.ToolsAnyOrder: trajectory.any_order,
    types.ToolCalled: trajectory.called,
    types.ToolCalls: trajectory.counted,
    types.StepStatus: trajectory.ended,
    types.RulingIs: gates.ruling,
    types.ApprovalIs: gates.approval,
    types.Tokens: spend.tokens,
    types.Cost: spend.cost,
    types.Turns: spend.turns,
    types.Time: spend.time,
    types.OutcomeIs: spend.outcome,
}
"""How each type is judged. `python` needs the project, and `journal-snapshot` more than evidence."""


def judged(claim: Assertion, evidence: Evidence, prepared: Prepared, *, may_reach: bool = False) -> Complaint | None:
    """What is wrong with a claim. None: it holds. Not for journal-snapshot.

    `may_reach`: whether a function has the network without saying `network: true`.
    """
    try:
        finding = (
            functions.judged(claim, evidence, prepared.spec.project, may_reach=may_reach)
            if isinstance(claim, types.Python)
            else _JUDGES[type(claim)](claim, evidence)
        )
    except CannotTell as why:
        return _complaint(claim, why.words, why.hint)
    return None if finding.holds is not claim.negated else _complaint(claim, finding.says())


def name_of(claim: Assertion) -> str:
    """The type as it is written."""
    tag = str(type(claim).__struct_config__.tag)
    return f"not-{tag}" if claim.negated else tag


def _complaint(claim: Assertion, words: str, hint: str | None = None) -> Complaint:
    message, _, detail = words.partition("\n")
    return Complaint(claim=name_of(claim), message=message, detail=detail, hint=hint)
