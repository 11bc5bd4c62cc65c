"""Each type of assertion: when it passes and fails, and the same with `not-`."""

from typing import Any, get_args

import pytest

from agentrun.spec.v1.assertions import Assertion
from agentrun.testing.suite.evidence import Evidence

from .evidence import failed_assertion, make_evidence, negated

TEXT = make_evidence()
JSON = make_evidence('{"total": 3, "items": [{"price": 1.0}], "none": null, "ok": true}')
FAILED_RUN = make_evidence(None, outcome="budget.turns", calls=(), rulings=(), approvals=())
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
STRICT = {"type": "object", "properties": {"total": {"maximum": 2}}}

DENIED = {"tool": "refund", "status": "tool.denied"}

Row = tuple[str, dict[str, Any], Evidence, bool]

ROWS: list[Row] = [
    ("equals", {"value": "Refunded: 39.90 to Ada."}, TEXT, True),
    ("equals", {"value": "Refunded: 39.90 to Ada.\n"}, TEXT, False),
    ("equals", {"value": "x"}, FAILED_RUN, False),
    ("equals", {"value": {"total": 3.0, "items": [{"price": 1}], "none": None, "ok": True}}, JSON, True),
    ("equals", {"value": {"total": 3}}, JSON, False),
    ("equals", {"value": {"total": 3, "items": [{"price": 1}], "none": None, "ok": 1}}, JSON, False),
    ("equals", {"value": 7}, TEXT, False),
    ("contains", {"value": "39.90"}, TEXT, True),
    ("contains", {"value": "refunded"}, TEXT, False),
    ("contains", {"value": "x"}, FAILED_RUN, False),
    ("contains-all", {"value": ["Ada", "39"]}, TEXT, True),
    ("contains-all", {"value": ["Ada", "ada"]}, TEXT, False),
    ("contains-any", {"value": ["ada", "Ada"]}, TEXT, True),
    ("contains-any", {"value": ["ada", "bob"]}, TEXT, False),
    ("contains-any", {"value": ["ada"]}, FAILED_RUN, False),
    ("icontains", {"value": "REFUNDED"}, TEXT, True),
    ("icontains", {"value": "denied"}, TEXT, False),
    ("icontains", {"value": "STRASSE"}, make_evidence("Lange Straße"), True),
    ("icontains-all", {"value": ["ADA", "refunded"]}, TEXT, True),
    ("icontains-all", {"value": ["ADA", "bob"]}, TEXT, False),
    ("icontains-any", {"value": ["BOB", "ADA"]}, TEXT, True),
    ("icontains-any", {"value": ["BOB"]}, TEXT, False),
    ("regex", {"value": r"\d+\.\d{2} to"}, TEXT, True),
    ("regex", {"value": r"^\d"}, TEXT, False),
    ("regex", {"value": "Ada.$"}, TEXT, True),
    ("regex", {"value": "."}, FAILED_RUN, False),
    ("starts-with", {"value": "Refunded"}, TEXT, True),
    ("starts-with", {"value": "refunded"}, TEXT, False),
    ("starts-with", {"value": "x"}, FAILED_RUN, False),
    ("is-json", {}, JSON, True),
    ("is-json", {}, TEXT, False),
    ("is-json", {}, FAILED_RUN, False),
    ("is-json", {}, make_evidence('{"a": 1, "a": 2}'), False),
    ("is-json", {}, make_evidence('```json\n{"a": 1}\n```'), False),
    ("is-json", {"value": SCHEMA}, JSON, True),
    ("is-json", {"value": STRICT}, JSON, False),
    ("json-schema", {"value": SCHEMA}, JSON, True),
    ("json-schema", {"value": STRICT}, JSON, False),
    ("json-schema", {"value": SCHEMA}, TEXT, False),
    (
        "json-schema",
        {"value": {"$defs": {"t": {"const": 3}}, "properties": {"total": {"$ref": "#/$defs/t"}}}},
        JSON,
        True,
    ),
    ("jmespath", {"value": "items[0].price"}, JSON, True),
    ("jmespath", {"value": "missing"}, JSON, False),
    ("jmespath", {"value": "none"}, JSON, False),
    ("jmespath", {"value": "items[?price > `5`]"}, JSON, False),
    ("jmespath", {"value": "`0`"}, JSON, True),
    ("jmespath", {"value": "total", "expected": 3.0}, JSON, True),
    ("jmespath", {"value": "ok", "expected": 1}, JSON, False),
    ("jmespath", {"value": "missing", "expected": None}, JSON, True),
    ("jmespath", {"value": "@"}, TEXT, False),
    ("jmespath", {"value": "@"}, FAILED_RUN, False),
    ("cel", {"value": "output.contains('Ada') && json == null"}, TEXT, True),
    ("cel", {"value": "json.total > 3"}, JSON, False),
    ("cel", {"value": "json.items.all(i, i.price == 1)"}, JSON, True),
    ("cel", {"value": "params.order == '1042' && outcome == 'completed'"}, TEXT, True),
    ("cel", {"value": "calls.filter(c, c.tool == 'refund' && c.status == 'ok').size() == 1"}, TEXT, True),
    ("cel", {"value": "calls.exists(c, has(c.args.amount) && c.args.amount > 200)"}, TEXT, False),
    ("cel", {"value": "rulings.exists(r, r.ruling == 'ask' && 'big' in r.rules)"}, TEXT, True),
    ("cel", {"value": "approvals.exists(a, a.target == 'refund' && a.answer == 'approved')"}, TEXT, False),
    (
        "cel",
        {"value": "spend.tokens == 2000 && spend.cost == 1089 && spend.turns == 4 && spend.time == 1500"},
        TEXT,
        True,
    ),
    ("cel", {"value": "outcome.startsWith('budget.')"}, FAILED_RUN, True),
    ("tools-exact", {"value": ["look", "refund", DENIED, "read"]}, TEXT, True),
    ("tools-exact", {"value": ["look", "refund", DENIED]}, TEXT, False),
    ("tools-exact", {"value": ["look", "refund", DENIED, "read", "read"]}, TEXT, False),
    ("tools-exact", {"value": ["look", "refund", DENIED, "read", "read/find"]}, TEXT, True),
    ("tools-exact", {"value": ["look", "re*", {"tool": "refund", "status": "tool.*"}, "read"]}, TEXT, True),
    ("tools-exact", {"value": ["look", {"tool": "refund", "args": {"amount": 40}}, "refund", "read"]}, TEXT, False),
    ("tools-exact", {"value": []}, FAILED_RUN, True),
    ("tools-exact", {"value": []}, TEXT, False),
    ("tools-in-order", {"value": ["look", "read"]}, TEXT, True),
    ("tools-in-order", {"value": ["read", "look"]}, TEXT, False),
    ("tools-in-order", {"value": ["refund", "refund", "refund"]}, TEXT, False),
    ("tools-in-order", {"value": ["refund", "read/*"]}, TEXT, True),
    ("tools-in-order", {"value": ["*"]}, FAILED_RUN, False),
    ("tools-any-order", {"value": ["read", "look"]}, TEXT, True),
    ("tools-any-order", {"value": [DENIED, {"tool": "refund", "args": {"amount": 39.9}}]}, TEXT, True),
    ("tools-any-order", {"value": ["refund", "refund", "refund"]}, TEXT, False),
    ("tools-any-order", {"value": ["look", "look"]}, TEXT, False),
    ("tool-called", {"value": "refund"}, TEXT, True),
    ("tool-called", {"value": "ref*", "args": {"amount": {"lte": 50}}, "status": "ok"}, TEXT, True),
    ("tool-called", {"value": "refund", "args": {"amount": {"lte": 50}}, "status": "tool.denied"}, TEXT, False),
    ("tool-called", {"value": "find"}, TEXT, False),
    ("tool-called", {"value": "*find"}, TEXT, False),
    ("tool-called", {"value": "read/find"}, TEXT, True),
    ("tool-called", {"value": "*/find"}, TEXT, True),
    ("tool-calls", {"value": 4}, TEXT, True),
    ("tool-calls", {"value": 5}, TEXT, False),
    ("tool-calls", {"tool": "refund", "value": 2}, TEXT, True),
    ("tool-calls", {"tool": "refund", "min": 3}, TEXT, False),
    ("tool-calls", {"tool": "refund", "min": 2, "max": 2}, TEXT, True),
    ("tool-calls", {"tool": "refund", "max": 1}, TEXT, False),
    ("tool-calls", {"tool": "read/*", "value": 1}, TEXT, True),
    ("tool-calls", {"tool": "look", "value": 0}, FAILED_RUN, True),
    ("step-status", {"tool": "look", "value": "ok"}, TEXT, True),
    ("step-status", {"tool": "refund", "value": "ok"}, TEXT, False),
    ("step-status", {"tool": "refund", "nth": 1, "value": "ok"}, TEXT, True),
    ("step-status", {"tool": "refund", "nth": 2, "value": "tool.*"}, TEXT, True),
    ("step-status", {"tool": "refund", "nth": 3, "value": "ok"}, TEXT, False),
    ("step-status", {"tool": "escalate", "value": "*"}, TEXT, False),
    ("ruling", {"value": "ask"}, TEXT, True),
    ("ruling", {"value": "interrupt"}, TEXT, False),
    ("ruling", {"value": "ask", "target": "refund", "rule": "always", "stage": "tool_call"}, TEXT, True),
    ("ruling", {"value": "ask", "target": "look"}, TEXT, False),
    ("ruling", {"value": "ask", "rule": "reads"}, TEXT, False),
    ("ruling", {"value": "ask", "stage": "output"}, TEXT, False),
    ("ruling", {"value": "allow", "target": "output"}, TEXT, True),
    ("ruling", {"value": "deny"}, TEXT, False),
    ("ruling", {"value": "deny", "target": "read/*"}, TEXT, True),
    ("approval", {"value": "denied"}, TEXT, True),
    ("approval", {"value": "denied", "target": "refund"}, TEXT, True),
    ("approval", {"value": "approved"}, TEXT, False),
    ("approval", {"value": "approved", "target": "read/find"}, TEXT, True),
    ("approval", {"value": "denied"}, FAILED_RUN, False),
    ("tokens", {"max": 2000}, TEXT, True),
    ("tokens", {"max": 1999}, TEXT, False),
    ("tokens", {"min": "2k", "max": "2k"}, TEXT, True),
    ("tokens", {"min": 2001}, TEXT, False),
    ("cost", {"max": 0.001089}, TEXT, True),
    ("cost", {"max": 0.001088}, TEXT, False),
    ("cost", {"max": 0.0010885}, TEXT, False),
    ("cost", {"min": 0.001089, "max": 1}, TEXT, True),
    ("cost", {"min": 0.0010891}, TEXT, False),
    ("turns", {"value": 4}, TEXT, True),
    ("turns", {"value": 3}, TEXT, False),
    ("turns", {"min": 5}, TEXT, False),
    ("turns", {"min": 4, "max": 4}, TEXT, True),
    ("time", {"max": "1500ms"}, TEXT, True),
    ("time", {"max": "1499ms"}, TEXT, False),
    ("time", {"min": "1s", "max": "2s"}, TEXT, True),
    ("time", {"min": "2s"}, TEXT, False),
    ("outcome", {"value": "completed"}, TEXT, True),
    ("outcome", {"value": "budget.*"}, FAILED_RUN, True),
    ("outcome", {"value": "budget.turns"}, TEXT, False),
]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda number: f"{ROWS[number][0]}-{number}")
def test_assertion_passes_or_fails_and_not_inverts_it(number: int) -> None:
    kind, keys, evidence, holds = ROWS[number]
    written = {"type": kind, **keys}
    plain, other = failed_assertion(written, evidence), failed_assertion(negated(written), evidence)
    wrong, name = (other, f"not-{kind}") if holds else (plain, kind)
    assert (plain is None, other is None) == (holds, not holds)
    assert wrong is not None
    assert wrong.assertion == name
    assert wrong.message.strip()
    assert len(wrong.message) < 500
    assert "\n" not in wrong.message


def test_every_assertion_type_passes_and_fails_once() -> None:
    tags = {str(each.__struct_config__.tag) for each in get_args(Assertion)}
    elsewhere = {"python", "journal-snapshot"}  # test_functions.py, and the tests of snapshots
    assert {kind for kind, _, _, holds in ROWS if holds} == tags - elsewhere
    assert {kind for kind, _, _, holds in ROWS if not holds} == tags - elsewhere
