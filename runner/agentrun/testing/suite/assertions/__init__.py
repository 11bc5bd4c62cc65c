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
from agentrun.testing.suite.assertions import functions, output, spend, trajectory
from agentrun.testing.suite.assertions.result import AssertionResult, CannotEvaluate
from agentrun.testing.suite.evidence import Evidence
from agentrun.testing.suite.replay import CompiledAgent
from agentrun.testing.suite.verdict import Complaint

_CHECKS: dict[type, Callable[[Any, Evidence], AssertionResult]] = {
    types.Equals: output.check_equals,
    types.Contains: output.check_contains,
    types.ContainsAll: output.check_contains_all,
    types.ContainsAny: output.check_contains_any,
    types.IContains: output.check_icontains,
    types.IContainsAll: output.check_icontains_all,
    types.IContainsAny: output.check_icontains_any,
    types.Regex: output.check_regex,
    types.StartsWith: output.check_starts_with,
    types.IsJson: output.check_is_json,
    types.JsonSchemaAssertion: output.check_json_schema,
    types.JmespathAssertion: output.check_jmespath,
    types.CelAssertion: output.check_cel,
    types.ToolsExact: trajectory.check_tools_exact,
    types.ToolsInOrder: trajectory.check_tools_in_order,
    types.ToolsAnyOrder: trajectory.check_tools_any_order,
    types.ToolCalled: trajectory.check_tool_called,
    types.ToolCalls: trajectory.check_tool_calls,
    types.StepStatus: trajectory.check_step_status,
    types.RulingIs: trajectory.check_ruling,
    types.ApprovalIs: trajectory.check_approval,
    types.TokensAssertion: spend.check_tokens,
    types.CostAssertion: spend.check_cost,
    types.TurnsAssertion: spend.check_turns,
    types.TimeAssertion: spend.check_time,
    types.OutcomeIs: spend.check_outcome,
}
"""How each type is judged. `python` needs the project, and `journal-snapshot` more than evidence."""


def check_assertion(
    claim: Assertion, evidence: Evidence, prepared: CompiledAgent, *, may_reach: bool = False
) -> Complaint | None:
    """What is wrong with a claim. None: it holds. Not for journal-snapshot.

    `may_reach`: whether a function has the network without saying `network: true`.
    """
    try:
        finding = (
            functions.check_function(claim, evidence, prepared.spec.project, may_reach=may_reach)
            if isinstance(claim, types.PythonAssertion)
            else _CHECKS[type(claim)](claim, evidence)
        )
    except CannotEvaluate as why:
        return _complaint(claim, why.message, why.hint)
    return None if finding.holds is not claim.negated else _complaint(claim, finding.describe())


def assertion_name(claim: Assertion) -> str:
    """The type as it is written."""
    tag = str(type(claim).__struct_config__.tag)
    return f"not-{tag}" if claim.negated else tag


def _complaint(claim: Assertion, words: str, hint: str | None = None) -> Complaint:
    message, _, detail = words.partition("\n")
    return Complaint(claim=assertion_name(claim), message=message, detail=detail, hint=hint)
