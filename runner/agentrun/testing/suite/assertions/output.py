"""Claims about the answer.

Rule 1  Texts are compared as they are, with every space. Upper and lower case are the same only where the type says so.
Rule 2  JSON is the whole answer or none of it, read as strictly as an output contract is.
Rule 3  Values of JSON are equal as in JSON: 1 is 1.0, true is not 1, the order of keys is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import re2
from msgspec import UnsetType
from msgspec.structs import asdict

from agentrun.canonical_json import sorted_json
from agentrun.compiler.conditions import UndecidedExpression, evaluate_assertion_expression
from agentrun.compiler.external_schemas import with_exact_numbers
from agentrun.compiler.jmespath import UnusableJmespath, evaluate_jmespath
from agentrun.core.json_validation import Invalid, Valid, schema_validator
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.assertions.result import (
    AssertionResult,
    CannotEvaluate,
    indent_list,
    no_answer_text,
    sorted_json_text,
)
from agentrun.testing.suite.evidence import Evidence, parse_answer

MAX_SCHEMA_ERRORS = 5
"""Errors of a schema that are told."""


def equals_as_json(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(equals_as_json(value, other[key]) for key, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(equals_as_json, one, other))
    return bool(one == other)


def check_equals(claim: types.Equals, evidence: Evidence) -> AssertionResult:
    answer, wanted = evidence.output, claim.value
    if answer is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    if isinstance(wanted, str):
        return AssertionResult(answer == wanted, lambda: _describe_texts(evidence, answer, wanted))
    found = parse_answer(answer)
    if not isinstance(found, Valid):
        return AssertionResult(False, lambda: no_json_text(evidence))
    holds = equals_as_json(found.value, wanted)
    shown = f"the answer is {'' if holds else 'not '}"
    return AssertionResult(
        holds, lambda: f"{shown}{evidence.quoted(sorted_json_text(wanted))}{_answer_suffix(evidence, holds)}"
    )


def _describe_texts(evidence: Evidence, answer: str, wanted: str) -> str:
    if answer == wanted:
        return f"the answer is {evidence.in_quotes(wanted)}"
    if answer.strip() == wanted.strip():
        return f"the answer differs only in the spaces or line ends around it{_answer_suffix(evidence)}"
    return f"the answer is not {evidence.in_quotes(wanted)}{_answer_suffix(evidence)}"


def _answer_suffix(evidence: Evidence, holds: bool = False) -> str:
    return "" if holds else f"; it is {evidence.in_quotes(evidence.output or '')}"


# --- texts in it ------------------------------------------------------------------------------------------------------


def check_contains(claim: types.Contains, evidence: Evidence) -> AssertionResult:
    return _check_texts(evidence, [claim.value], all)


def check_contains_all(claim: types.ContainsAll, evidence: Evidence) -> AssertionResult:
    return _check_texts(evidence, claim.value, all)


def check_contains_any(claim: types.ContainsAny, evidence: Evidence) -> AssertionResult:
    return _check_texts(evidence, claim.value, any)


def check_icontains(claim: types.IContains, evidence: Evidence) -> AssertionResult:
    return _check_texts(evidence, [claim.value], all, str.casefold)


def check_icontains_all(claim: types.IContainsAll, evidence: Evidence) -> AssertionResult:
    return _check_texts(evidence, claim.value, all, str.casefold)


def check_icontains_any(claim: types.IContainsAny, evidence: Evidence) -> AssertionResult:
    return _check_texts(evidence, claim.value, any, str.casefold)


def _check_texts(
    evidence: Evidence,
    texts: Sequence[str],
    enough: Callable[[Sequence[bool]], bool],
    read: Callable[[str], str] = lambda text: text,
) -> AssertionResult:
    """Whether all, or any, of some texts are in the answer."""
    if evidence.output is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    answer = read(evidence.output)
    found = [read(text) in answer for text in texts]
    holds = enough(found)

    def says() -> str:
        named = [text for text, is_there in zip(texts, found, strict=True) if is_there is holds]
        shown = ", ".join(evidence.in_quotes(text) for text in named[:5])
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        return f"the answer {'contains' if holds else 'does not contain'} {shown}{more}{_answer_suffix(evidence)}"

    return AssertionResult(holds, says)


def check_starts_with(claim: types.StartsWith, evidence: Evidence) -> AssertionResult:
    if evidence.output is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    holds = evidence.output.startswith(claim.value)
    does = "begins" if holds else "does not begin"
    return AssertionResult(
        holds, lambda: f"the answer {does} with {evidence.in_quotes(claim.value)}{_answer_suffix(evidence)}"
    )


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> Any:
    """A regular expression; the file of cases was checked before, so it is one."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # re2 has no types


def check_regex(claim: types.Regex, evidence: Evidence) -> AssertionResult:
    if evidence.output is None:
        return AssertionResult(False, lambda: no_answer_text(evidence))
    found = compile_regex(claim.value).search(evidence.output)

    def says() -> str:
        pattern = evidence.quoted(claim.value)
        if found is None:
            return f"nothing in the answer matches {pattern}{_answer_suffix(evidence)}"
        return f"{evidence.in_quotes(found[0])} in the answer matches {pattern}"

    return AssertionResult(found is not None, says)


# --- the whole as JSON ------------------------------------------------------------------------------------------------


def check_is_json(claim: types.IsJson, evidence: Evidence) -> AssertionResult:
    return _check_json(evidence, claim.value if isinstance(claim.value, dict) else None)


def check_json_schema(claim: types.JsonSchemaAssertion, evidence: Evidence) -> AssertionResult:
    return _check_json(evidence, claim.value)


def _check_json(evidence: Evidence, schema: dict[str, Any] | None) -> AssertionResult:
    found = parse_answer(evidence.output)
    if not isinstance(found, Valid):
        return AssertionResult(False, lambda: no_json_text(evidence))
    if schema is None:
        return AssertionResult(True, lambda: f"the answer is JSON: {evidence.quoted(evidence.output or '')}")
    judge = schema_validator(sorted_json(schema))
    if judge.is_valid(found.value):
        return AssertionResult(True, lambda: f"the answer fits the schema{_answer_suffix(evidence)}")
    return AssertionResult(False, lambda: _describe_schema_errors(evidence, judge, found.value))


def _describe_schema_errors(evidence: Evidence, judge: Any, value: Any) -> str:
    errors = [
        evidence.quoted(f"{_pointer(error.instance_path)}: {error.message}", 200)
        for error in islice(judge.iter_errors(value), MAX_SCHEMA_ERRORS + 1)
    ]
    more = ["…"] if len(errors) > MAX_SCHEMA_ERRORS else []
    listed = indent_list([*sorted(errors[:MAX_SCHEMA_ERRORS]), *more])
    return f"the answer does not fit the schema{_answer_suffix(evidence)}\n{listed}"


def _pointer(path: Sequence[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path) or "the whole"


def no_json_text(evidence: Evidence) -> str:
    """Why there is no JSON."""
    found = parse_answer(evidence.output)
    return (
        f"{evidence.quoted(found.errors[0])}{_answer_suffix(evidence)}"
        if isinstance(found, Invalid)
        else no_answer_text(evidence)
    )


# --- claims that are expressions: JMESPath over the answer, CEL over all that is known of a run ---------------


_EMPTY_VALUES: tuple[Any, ...] = (None, False, "", [], {})


def check_jmespath(claim: types.JmespathAssertion, evidence: Evidence) -> AssertionResult:
    found = parse_answer(evidence.output)
    if not isinstance(found, Valid):
        return AssertionResult(False, lambda: no_json_text(evidence))
    try:
        value = evaluate_jmespath(claim.value, found.value)
    except UnusableJmespath as why:
        message = why.message.replace("the reply", "the answer")
        raise CannotEvaluate(f"{evidence.quoted(claim.value)} cannot be evaluated: {message}") from None
    wanted = claim.expected
    holds = (
        not any(equals_as_json(value, empty) for empty in _EMPTY_VALUES)
        if isinstance(wanted, UnsetType)
        else equals_as_json(value, wanted)
    )

    def says() -> str:
        line = f"{evidence.quoted(claim.value)} finds {evidence.quoted(sorted_json_text(value))}"
        if holds:
            return line
        return (
            f"{line}, not {'anything' if isinstance(wanted, UnsetType) else evidence.quoted(sorted_json_text(wanted))}"
        )

    return AssertionResult(holds, says)


def check_cel(claim: types.CelAssertion, evidence: Evidence) -> AssertionResult:
    variables = _cel_variables(claim.value, evidence)
    try:
        holds = evaluate_assertion_expression(claim.value, variables)
    except UndecidedExpression as why:
        reason = no_answer_text(evidence) if 'name "output"' in str(why) else str(why)
        raise CannotEvaluate(f"{evidence.quoted(claim.value)} cannot be evaluated: {evidence.quoted(reason)}") from None

    def says() -> str:
        shown = [evidence.quoted(f"  {name}: {sorted_json_text(value)}", 200) for name, value in variables.items()]
        return "\n".join([f"{evidence.quoted(claim.value)} is {'true' if holds else 'false'}", *shown])

    return AssertionResult(holds, says)


def _cel_variables(expression: str, evidence: Evidence) -> dict[str, Any]:
    """What an expression may read; only what it names is made."""
    found: dict[str, Any] = {}
    if "output" in expression and evidence.output is not None:
        found["output"] = evidence.output
    if "json" in expression:
        read = parse_answer(evidence.output)
        found["json"] = with_exact_numbers(read.value) if isinstance(read, Valid) else None
    if "params" in expression:
        found["params"] = with_exact_numbers(evidence.params)
    for name in ("calls", "rulings", "approvals"):
        if name in expression:
            found[name] = [with_exact_numbers(_plain_step(each)) for each in getattr(evidence, name)]
    if "spend" in expression:
        found["spend"] = {name: getattr(evidence, name) for name in ("tokens", "cost", "turns", "time")}
    if "outcome" in expression:
        found["outcome"] = evidence.outcome
    return found


def _plain_step(step: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(step).items()}
