"""Assertions on the answer (texts, JSON, schemas, JMESPath and CEL expressions), the outcome and the spend.

Rule 1  Texts are compared exactly, including whitespace. Case is ignored only if the type says so.
Rule 2  JSON means that the whole answer is JSON, parsed as strictly as a structured output.
Rule 3  JSON values are equal as in JSON: 1 equals 1.0, true does not equal 1, and the order of keys does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import re2
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from agentrun.canonical_json import same_json, sorted_json
from agentrun.compiler.conditions import UndecidedExpression, evaluate_assertion_expression
from agentrun.compiler.jmespath import UnusableJmespath, evaluate_jmespath
from agentrun.compiler.lock_file import with_exact_numbers
from agentrun.core.json_validation import Invalid, Valid, json_pointer, schema_validator
from agentrun.core.package import matches_pattern
from agentrun.report.formatting import format_dollars
from agentrun.spec.safe_text import plural
from agentrun.spec.v1 import assertions as types
from agentrun.spec.v1.field_types import milliseconds, parse_count
from agentrun.testing.suite.evidence import (
    AssertionResult,
    CannotEvaluate,
    Evidence,
    indent_list,
    no_answer_text,
    parse_answer,
    sorted_json_text,
)

MAX_SCHEMA_ERRORS = 5
_EMPTY_VALUES: tuple[Any, ...] = (None, False, "", [], {})


def check_equals(assertion: types.Equals, evidence: Evidence) -> AssertionResult:
    answer, wanted = evidence.output, assertion.value
    if answer is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    if isinstance(wanted, str):
        return AssertionResult(answer == wanted, lambda: _describe_texts(evidence, answer, wanted))
    parsed = parse_answer(answer)
    if not isinstance(parsed, Valid):
        return AssertionResult(False, lambda: no_json_text(evidence))
    holds = same_json(parsed.value, wanted)
    verb, suffix = ("is", "") if holds else ("is not", _answer_suffix(evidence))
    return AssertionResult(holds, lambda: f"the answer {verb} {evidence.quoted(sorted_json_text(wanted))}{suffix}")


def _describe_texts(evidence: Evidence, answer: str, wanted: str) -> str:
    if answer == wanted:
        return f"the answer is {evidence.in_quotes(wanted)}"
    if answer.strip() == wanted.strip():
        return f"the answer differs only in leading or trailing whitespace{_answer_suffix(evidence)}"
    return f"the answer is not {evidence.in_quotes(wanted)}{_answer_suffix(evidence)}"


def _answer_suffix(evidence: Evidence) -> str:
    return f"; it is {evidence.in_quotes(evidence.output or '')}"


def check_contains(
    assertion: types.Contains | types.ContainsAll,
    evidence: Evidence,
    enough: Callable[[Sequence[bool]], bool],
    fold: Callable[[str], str] = str,
) -> AssertionResult:
    if evidence.output is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    texts = [assertion.value] if isinstance(assertion.value, str) else assertion.value
    answer = fold(evidence.output)
    contained = [fold(text) in answer for text in texts]
    holds = enough(contained)

    def describe() -> str:
        named = [text for text, is_there in zip(texts, contained, strict=True) if is_there is holds]
        listed = ", ".join(evidence.in_quotes(text) for text in named[:5])
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        return f"the answer {'contains' if holds else 'does not contain'} {listed}{more}{_answer_suffix(evidence)}"

    return AssertionResult(holds, describe)


def check_starts_with(assertion: types.StartsWith, evidence: Evidence) -> AssertionResult:
    if evidence.output is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    holds = evidence.output.startswith(assertion.value)
    verb = "starts" if holds else "does not start"
    return AssertionResult(
        holds, lambda: f"the answer {verb} with {evidence.in_quotes(assertion.value)}{_answer_suffix(evidence)}"
    )


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> Any:
    """Compile a pattern, which was checked with the case file."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # re2 has no types


def check_regex(assertion: types.Regex, evidence: Evidence) -> AssertionResult:
    if evidence.output is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    match = compile_regex(assertion.value).search(evidence.output)

    def describe() -> str:
        pattern = evidence.quoted(assertion.value)
        if match is None:
            return f"the answer does not match {pattern}{_answer_suffix(evidence)}"
        return f"the answer matches {pattern} with {evidence.in_quotes(match[0])}"

    return AssertionResult(match is not None, describe)


def check_json(assertion: types.IsJson | types.JsonSchemaAssertion, evidence: Evidence) -> AssertionResult:
    parsed = parse_answer(evidence.output)
    if not isinstance(parsed, Valid):
        return AssertionResult(False, lambda: no_json_text(evidence))
    if isinstance(assertion.value, UnsetType):
        return AssertionResult(True, lambda: f"the answer is JSON: {evidence.quoted(evidence.output or '')}")
    validator = schema_validator(sorted_json(assertion.value))
    if validator.is_valid(parsed.value):
        return AssertionResult(True, lambda: f"the answer matches the schema{_answer_suffix(evidence)}")
    return AssertionResult(False, lambda: _describe_schema_errors(evidence, validator, parsed.value))


def _describe_schema_errors(evidence: Evidence, validator: Any, value: Any) -> str:
    errors = [
        evidence.quoted(f"{json_pointer(error.instance_path) or 'the answer'}: {error.message}", 200)
        for error in islice(validator.iter_errors(value), MAX_SCHEMA_ERRORS + 1)
    ]
    more = ["…"] if len(errors) > MAX_SCHEMA_ERRORS else []
    listed = indent_list([*sorted(errors[:MAX_SCHEMA_ERRORS]), *more])
    return f"the answer does not match the schema{_answer_suffix(evidence)}\n{listed}"


def no_json_text(evidence: Evidence) -> str:
    parsed = parse_answer(evidence.output)
    if not isinstance(parsed, Invalid):
        return no_answer_text(evidence)
    return f"{evidence.quoted(parsed.errors[0])}{_answer_suffix(evidence)}"


def check_jmespath(assertion: types.JmespathAssertion, evidence: Evidence) -> AssertionResult:
    parsed = parse_answer(evidence.output)
    if not isinstance(parsed, Valid):
        return AssertionResult(False, lambda: no_json_text(evidence))
    try:
        value = evaluate_jmespath(assertion.value, parsed.value)
    except UnusableJmespath as error:
        message = error.message.replace("the reply", "the answer")
        raise CannotEvaluate(f"{evidence.quoted(assertion.value)} cannot be evaluated: {message}") from None
    wanted = assertion.expected
    if isinstance(wanted, UnsetType):
        holds = not any(same_json(value, empty) for empty in _EMPTY_VALUES)
    else:
        holds = same_json(value, wanted)

    def describe() -> str:
        line = f"{evidence.quoted(assertion.value)} is {evidence.quoted(sorted_json_text(value))}"
        if holds:
            return line
        if isinstance(wanted, UnsetType):
            return f"{line}, which counts as false"
        return f"{line}, not {evidence.quoted(sorted_json_text(wanted))}"

    return AssertionResult(holds, describe)


def check_cel(assertion: types.CelAssertion, evidence: Evidence) -> AssertionResult:
    variables = _cel_variables(assertion.value, evidence)
    try:
        holds = evaluate_assertion_expression(assertion.value, variables)
    except UndecidedExpression as error:
        reason = evidence.quoted(no_answer_text(evidence) if 'name "output"' in str(error) else str(error))
        raise CannotEvaluate(f"{evidence.quoted(assertion.value)} cannot be evaluated: {reason}") from None

    def describe() -> str:
        lines = [evidence.quoted(f"  {name}: {sorted_json_text(value)}", 200) for name, value in variables.items()]
        return "\n".join([f"{evidence.quoted(assertion.value)} is {'true' if holds else 'false'}", *lines])

    return AssertionResult(holds, describe)


def _cel_variables(expression: str, evidence: Evidence) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if "output" in expression and evidence.output is not None:
        variables["output"] = evidence.output
    if "json" in expression:
        parsed = parse_answer(evidence.output)
        variables["json"] = with_exact_numbers(parsed.value) if isinstance(parsed, Valid) else None
    if "params" in expression:
        variables["params"] = with_exact_numbers(evidence.params)
    for name in ("calls", "rulings", "approvals"):
        if name in expression:
            variables[name] = [with_exact_numbers(_plain_step(each)) for each in getattr(evidence, name)]
    if "spend" in expression:
        variables["spend"] = {name: getattr(evidence, name) for name in ("tokens", "cost", "turns", "time")}
    if "outcome" in expression:
        variables["outcome"] = evidence.outcome
    return variables


def _plain_step(step: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(step).items()}


# --- outcome and spend ------------------------------------------------------------------------------------------------

MICRO_DOLLARS = 1_000_000
Amount: TypeAlias = Decimal | int
AmountRange: TypeAlias = tuple[Amount | None, Amount | None]


def check_tokens(assertion: types.TokensAssertion, evidence: Evidence) -> AssertionResult:
    limits = _limits(assertion, parse_count)
    return _check_range(evidence.tokens, limits, lambda amount: f"{amount:,} tokens", "used")


def check_cost(assertion: types.CostAssertion, evidence: Evidence) -> AssertionResult:
    """Compares exactly, even amounts that are not a whole number of micro-dollars."""
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
