"""The text of a failed case."""

from __future__ import annotations

import pytest

from agentrun.credentials import hidden_secrets
from agentrun.testing.suite.failure_text import render_failure
from agentrun.testing.suite.verdict import CaseFailure, CaseVerdict


def verdict(*failures: CaseFailure, steps: str = "") -> CaseVerdict:
    return CaseVerdict(id="a::b", file="a", line=3, status="failed", failures=failures, steps=steps)


def test_text_has_assertions_run_and_difference_in_order() -> None:
    text = render_failure(
        verdict(
            CaseFailure(assertion="contains", message='no "x" in it'),
            CaseFailure(assertion="journal-snapshot", message="it is another", detail="-a\n\n+b", hint="accept it"),
            steps="turn 1\n  → look",
        )
    )
    assert text.split("\n") == [
        'contains: no "x" in it',
        "journal-snapshot: it is another",
        "  → accept it",
        "",
        "The run:",
        "  turn 1",
        "    → look",
        "",
        "journal-snapshot:",
        "  -a",
        "",
        "  +b",
    ]


def test_single_failure_is_one_line() -> None:
    assert render_failure(verdict(CaseFailure(assertion="outcome", message="it failed"))) == "outcome: it failed"


def test_message_and_hint_lines_are_indented() -> None:
    text = render_failure(verdict(CaseFailure(assertion="contains", message="one\ntwo", hint="a\nb")))
    assert text == "contains: one\n  two\n  → a\n  → b"


@pytest.mark.parametrize("place", ["message", "detail", "hint", "steps"])
def test_credentials_and_control_characters_are_not_shown(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "tulip-garden-9917")
    hidden_secrets.read_environment()
    foreign = "a tulip-garden-9917 \x1b[31m sk-proj-abcdefghij0123456789ABCDEFGHIJ z tulip-ga…"
    given = {"message": "m", "detail": "d", "hint": "h"}
    steps = foreign if place == "steps" else "s"
    given |= {} if place == "steps" else {place: foreign}
    failure = CaseFailure(assertion="contains", message=given["message"], detail=given["detail"], hint=given["hint"])
    try:
        text = render_failure(verdict(failure, steps=steps))
    finally:
        hidden_secrets.ignore_environment()
    assert "tulip" not in text
    assert "\x1b" not in text
    assert "abcdefghij0123456789" not in text
    assert "a [redacted:SHOP_TOKEN] \\x1b[31m *** z …" in text
