"""Cases are grouped by cause."""

from __future__ import annotations

from agentrun.testing.suite.causes import group_by_cause
from agentrun.testing.suite.verdict import CaseChange, CaseFailure, CaseStatus, CaseVerdict

FILE = "specs/a.cases.yaml"


def verdict(
    name: str, *failures: CaseFailure, changes: tuple[CaseChange, ...] = (), status: CaseStatus = "failed"
) -> CaseVerdict:
    return CaseVerdict(id=f"{FILE}::{name}", file=FILE, line=1, status=status, failures=failures, changes=changes)


def failure(message: str, line: int | None = 3, assertion: str = "contains", hint: str | None = None) -> CaseFailure:
    return CaseFailure(assertion=assertion, message=message, hint=hint, file=None if line is None else FILE, line=line)


def change(text: str, line: int | None = None, was: str | None = None, now: str | None = None) -> CaseChange:
    file = None if line is None else "prompt.md"
    return CaseChange(title=text, text=text, file=file, line=line, recorded_line=was, current_line=now)


def headings(*verdicts: CaseVerdict) -> list[str]:
    return [cause.heading for cause in group_by_cause(verdicts)]


def test_cause_of_more_cases_comes_first() -> None:
    one, two = failure("a", 3), failure("b", 4)
    assert headings(verdict("x", one), verdict("y", two), verdict("z", two)) == [
        f"2 cases: contains: b  ({FILE}:4)",
        f"1 case: contains: a  ({FILE}:3)",
    ]


def test_two_failures_on_one_line_are_two_causes() -> None:
    both = failure("a"), failure("b")
    assert headings(verdict("x", *both), verdict("y", *both)) == [
        f"2 cases: contains: a  ({FILE}:3)",
        f"2 cases: contains: b  ({FILE}:3)",
    ]


def test_failures_without_a_line_are_one_cause_if_they_are_equal() -> None:
    assert headings(verdict("x", failure("a", None)), verdict("y", failure("a", None), failure("b", None))) == [
        "2 cases: contains: a",
        "1 case: contains: b",
    ]


def test_first_rendering_of_a_template_line_is_shown() -> None:
    changes = change("line 5 changed", 5, "a", "b"), change("line 6 changed", 5, "c", "d")
    (cause,) = group_by_cause([verdict("x", changes=changes, status="missed")])
    assert (cause.title, cause.lines) == ("line 5 changed", ("recorded: a", "now:      b"))


def test_changes_explain_a_miss_and_a_snapshot_but_no_other_assertion() -> None:
    failures = [failure("x", None, "cassette.miss"), failure("y", 4, "journal-snapshot"), failure("z", 5)]
    found = verdict("x", *failures, changes=(change("the reply changed"),))
    assert headings(found) == [f"1 case: contains: z  ({FILE}:5)", "1 case: the reply changed"]
    assert len(headings(verdict("x", *failures))) == 3


def test_advice_about_a_staged_cassette_is_no_cause() -> None:
    staged = failure("the new one is elsewhere", None, "record")
    assert headings(verdict("x", failure("a"), staged)) == [f"1 case: contains: a  ({FILE}:3)"]
    assert headings(verdict("x", staged)) == ["1 case: record: the new one is elsewhere"]


def test_hint_is_kept_if_all_cases_have_it() -> None:
    same = [verdict(name, failure("a", hint="do it")) for name in "xy"]
    assert [cause.hint for cause in group_by_cause(same)] == ["do it"]
    other = verdict("z", failure("a", hint="do that"))
    assert [cause.hint for cause in group_by_cause([*same, other])] == [None]


def test_cases_that_passed_have_no_cause() -> None:
    for status in ("passed", "skipped", "xfailed"):
        assert headings(verdict("x", failure("a"), changes=(change("b"),), status=status)) == []


def test_many_names_are_cut() -> None:
    (cause,) = group_by_cause(verdict(f"n{number}", failure("a")) for number in range(25))
    (line,) = cause.case_lines
    assert line.startswith(f"{FILE}: n0, n1, ")
    assert line.endswith("n19, and 5 more")
