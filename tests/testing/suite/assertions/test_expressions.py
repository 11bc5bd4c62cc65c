"""CEL assertions: expressions that cannot be evaluated fail with and without `not-`."""

from typing import Any

import pytest

from agentrun.canonical_json import sorted_json
from agentrun.testing.suite.evidence import Evidence

from .evidence import call, failed_assertion, make_evidence, negated

JSON = make_evidence('{"total": 3, "big": 123456789012345678901234567890}')
NESTED_EXISTS = "json.exists(x, json.exists(y, x + y < 0))"
BUILDS = "json.all(x, json.all(y, x + y != ''))"
FAILED_RUN = make_evidence(None, outcome="budget.turns")


@pytest.mark.parametrize(
    ("assertion", "evidence", "why"),
    [
        ({"type": "cel", "value": "json.missing == 1"}, JSON, "missing"),
        ({"type": "cel", "value": "json.total == 1"}, make_evidence("no JSON"), "cannot be evaluated"),
        ({"type": "cel", "value": "output == 'x'"}, FAILED_RUN, "there is no answer: the outcome is budget.turns"),
        ({"type": "cel", "value": "calls[9].tool == 'x'"}, JSON, "Index error"),
        ({"type": "cel", "value": "1 / 0 == 1"}, JSON, "divide by zero"),
        ({"type": "cel", "value": "json.total"}, JSON, "neither true nor false"),
        ({"type": "cel", "value": NESTED_EXISTS}, make_evidence(str(list(range(200)))), "Iteration budget exceeded"),
        (
            {"type": "cel", "value": BUILDS},
            make_evidence(sorted_json(["x" * 100_000] * 100).decode()),
            "could build more than",
        ),
        ({"type": "jmespath", "value": "length(total)"}, JSON, "the expression does not fit the answer"),
    ],
)
def test_expression_that_cannot_be_evaluated_fails_both_ways(
    assertion: dict[str, Any], evidence: Evidence, why: str
) -> None:
    for each in (assertion, negated(assertion)):
        wrong = failed_assertion(each, evidence)
        assert wrong is not None
        assert wrong.assertion == each["type"]
        assert "cannot be evaluated" in wrong.message
        assert why in wrong.message


def test_unneeded_operand_may_be_missing() -> None:
    assert failed_assertion({"type": "cel", "value": "outcome == 'budget.turns' || output == 'x'"}, FAILED_RUN) is None


def test_large_numbers_are_compared_as_floats() -> None:
    assert failed_assertion({"type": "cel", "value": "json.big > 1e29"}, JSON) is None


def test_calls_variable_has_all_fields_of_a_call() -> None:
    made = (call("pay", {"amount": 5, "to": ["a", None]}, "tool.denied", "no"),)
    assertion = (
        "calls[0] == {'id': 'c1.0', 'tool': 'pay', 'args': {'amount': 5, 'to': ['a', null]}, "
        "'status': 'tool.denied', 'result': 'no', 'turn': 1}"
    )
    assert failed_assertion({"type": "cel", "value": assertion}, make_evidence(calls=made)) is None


def test_false_expression_shows_its_variables() -> None:
    wrong = failed_assertion({"type": "cel", "value": "spend.tokens < 5 && outcome == 'x'"}, make_evidence())
    assert wrong is not None
    assert wrong.message == "spend.tokens < 5 && outcome == 'x' is false"
    assert wrong.detail.splitlines() == [
        '  spend: {"cost":1089,"time":1500,"tokens":2000,"turns":4}',
        '  outcome: "completed"',
    ]
