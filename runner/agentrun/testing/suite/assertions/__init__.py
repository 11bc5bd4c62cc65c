"""Check assertions.

Rule 1  An assertion about something that did not happen is false, so its `not-` form is true: a call that was not made,
        an answer that is missing or not JSON.
Rule 2  An assertion that cannot be evaluated fails, with and without `not-`: an invalid expression, a function that
        raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.assertions import Assertion
from agentrun.testing.suite.assertions import functions, output, trajectory
from agentrun.testing.suite.evidence import AssertionResult, CannotEvaluate, Evidence
from agentrun.testing.suite.replay import CompiledAgent
from agentrun.testing.suite.verdict import CaseFailure

_CHECKS: dict[type, Callable[[Any, Evidence], AssertionResult]] = {
    types.Equals: output.check_equals,
    types.Contains: partial(output.check_contains, enough=all),
    types.ContainsAll: partial(output.check_contains, enough=all),
    types.ContainsAny: partial(output.check_contains, enough=any),
    types.IContains: partial(output.check_contains, enough=all, fold=str.casefold),
    types.IContainsAll: partial(output.check_contains, enough=all, fold=str.casefold),
    types.IContainsAny: partial(output.check_contains, enough=any, fold=str.casefold),
    types.Regex: output.check_regex,
    types.StartsWith: output.check_starts_with,
    types.IsJson: output.check_json,
    types.JsonSchemaAssertion: output.check_json,
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
    types.TokensAssertion: output.check_tokens,
    types.CostAssertion: output.check_cost,
    types.TurnsAssertion: output.check_turns,
    types.TimeAssertion: output.check_time,
    types.OutcomeIs: output.check_outcome,
}
"""The check of each type. Not here: `python`, which needs the project, and `journal-snapshot`, which needs files."""


def check_assertion(
    assertion: Assertion, evidence: Evidence, agent: CompiledAgent, *, may_reach: bool = False
) -> CaseFailure | None:
    """Check an assertion. None: it passes. Not for journal-snapshot.

    `may_reach`: whether a function may use the network without `network: true`.
    """
    try:
        if isinstance(assertion, types.PythonAssertion):
            result = functions.check_function(assertion, evidence, agent.spec.project, may_reach=may_reach)
        else:
            result = _CHECKS[type(assertion)](assertion, evidence)
    except CannotEvaluate as error:
        return _failure(assertion, error.message, error.hint)
    return None if result.holds is not assertion.negated else _failure(assertion, result.describe())


def assertion_name(assertion: Assertion) -> str:
    """The type as written in a case."""
    tag = str(type(assertion).__struct_config__.tag)
    return f"not-{tag}" if assertion.negated else tag


def _failure(assertion: Assertion, words: str, hint: str | None = None) -> CaseFailure:
    message, _, detail = words.partition("\n")
    return CaseFailure(assertion=assertion_name(assertion), message=message, detail=detail, hint=hint)
