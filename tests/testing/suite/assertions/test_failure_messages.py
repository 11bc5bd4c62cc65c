"""Messages of failed assertions: expected and actual value, cut and masked."""

from typing import Any

import pytest

from agentrun.cassette.redaction import RunRedaction
from agentrun.core.package import RedactionRule as Rule

from .evidence import call, failed_assertion, make_evidence

KEY = "sk-ant-abcdefghijklmnop12345678"

FIRST = '{"amount":39.9,"to":{"name":"Ada","tags":["new",1]},"why":"Late"}'


def message_lines(written: dict[str, Any], **changes: Any) -> list[str]:
    wrong = failed_assertion(written, make_evidence(**changes))
    assert wrong is not None
    return [wrong.message, *wrong.detail.splitlines()]


@pytest.mark.parametrize(
    ("assertion", "expected"),
    [
        ({"type": "contains", "value": "Bob"}, ['the answer does not contain "Bob"; it is "Refunded: 39.90 to Ada."']),
        (
            {"type": "contains-all", "value": ["Ada", "Bob", "Eve"]},
            ['the answer does not contain "Bob", "Eve"; it is "Refunded: 39.90 to Ada."'],
        ),
        ({"type": "not-regex", "value": "[0-9.]+"}, ['the answer matches [0-9.]+ with "39.90"']),
        (
            {"type": "equals", "value": "Refunded: 39.90 to Ada.\n"},
            ['the answer differs only in leading or trailing whitespace; it is "Refunded: 39.90 to Ada."'],
        ),
        ({"type": "outcome", "value": "budget.*"}, ["the outcome is completed, not budget.*"]),
        ({"type": "tokens", "max": "1k"}, ["2,000 tokens used; expected: at most 1,000 tokens"]),
        ({"type": "cost", "max": 0.001}, ["$0.001089 spent; expected: at most $0.001"]),
        ({"type": "not-turns", "value": 4}, ["4 turns made; expected: not exactly 4 turns"]),
        (
            {"type": "step-status", "tool": "refund", "nth": 3, "value": "ok"},
            ["refund has no call 3; it was called 2 times"],
        ),
        (
            {"type": "approval", "value": "approved", "target": "look"},
            ["there is no answer to an approval about look"],
        ),
        (
            {"type": "ruling", "value": "deny", "target": "look"},
            [
                "the policy did not rule deny for look",
                "  look (tool_call): allow by reads",
                "  refund (tool_call): ask by big, always",
                "  output: allow by default",
                "  read/find (tool_call): deny by inner",
            ],
        ),
        (
            {"type": "tool-called", "value": "refund", "args": {"amount": {"gt": 200}}},
            [
                "no call of refund matches: amount is 39.9, which fails {gt: 200}",
                f"  refund {FIRST} → ok: amount is 39.9, which fails {{gt: 200}}",
                '  refund {"amount":120} → tool.denied: amount is 120, which fails {gt: 200}',
            ],
        ),
    ],
)
def test_message_of_each_assertion_type(assertion: dict[str, Any], expected: list[str]) -> None:
    assert message_lines(assertion) == expected


def test_expected_and_actual_calls_are_shown() -> None:
    calls = (call("look", {"id": "1"}), call("refund", {"amount": 9}, "tool.timeout"))
    wanted: list[Any] = ["look", {"tool": "refund", "args": {"amount": {"lte": 5}}, "status": "tool.*"}, "tell"]
    assert message_lines({"type": "tools-exact", "value": wanted}, calls=calls) == [
        "call 2, refund: amount is 9, which fails {lte: 5}",
        "expected:",
        "  1 look",
        '  2 refund {"amount":{"lte":5}} → tool.*',
        "  3 tell",
        "actual:",
        '  1 look {"id":"1"} → ok',
        '  2 refund {"amount":9} → tool.timeout',
    ]
    assert (
        message_lines({"type": "tools-exact", "value": ["look"]}, calls=calls)[0] == "call 2, refund, was not expected"
    )
    assert (
        message_lines({"type": "tools-exact", "value": ["look", wanted[1] | {"args": {}}, "tell"]}, calls=calls)[0]
        == "call 3, tell, was not made"
    )
    assert (
        message_lines({"type": "tools-exact", "value": ["tell", "refund"]}, calls=calls)[0]
        == "call 1 is look, not tell"
    )


def test_schema_mismatch_names_the_place() -> None:
    schema = {"properties": {"items": {"items": {"properties": {"price": {"type": "string"}}}}}}
    told = message_lines({"type": "json-schema", "value": schema}, output='{"items": [{"price": 1}]}')
    assert told[0].startswith("the answer does not match the schema")
    assert told[1].startswith("  /items/0/price: ")


def test_long_text_is_cut_and_control_characters_escaped() -> None:
    (told,) = message_lines({"type": "contains", "value": "x"}, output="\x1b[31m" + "y" * 5000)
    assert len(told) < 250
    assert "\\x1b[31m" in told


def test_long_list_of_calls_is_cut() -> None:
    told = message_lines({"type": "tools-exact", "value": []}, calls=tuple(call("a") for _ in range(100)))
    assert told[-1] == "  … and 60 more"


@pytest.mark.parametrize(
    "assertion",
    [
        {"type": "contains", "value": "nothing"},
        {"type": "not-contains", "value": "Ada"},
        {"type": "tool-called", "value": "look", "args": {"key": "x"}},
        {"type": "tools-exact", "value": []},
        {"type": "cel", "value": "output == 'x' && calls.size() == 0"},
        {"type": "not-jmespath", "value": "@"},
    ],
)
def test_secrets_are_not_quoted(assertion: dict[str, Any]) -> None:
    output = f'["Ada", "{KEY}"]'
    told = message_lines(assertion, output=output, calls=(call("look", {"key": KEY}),))
    assert KEY not in "\n".join(told)


class _Run:
    redaction = RunRedaction([Rule(name="email", path=None, pattern="[a-z]+@[a-z.]+")])


def test_values_redacted_by_the_spec_are_not_quoted() -> None:
    told = message_lines({"type": "contains", "value": "Bob"}, output="Written to ada@shop.example", runs=(_Run(),))
    assert told == ['the answer does not contain "Bob"; it is "Written to [redacted:email]"']
