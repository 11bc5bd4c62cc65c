"""`agentrun test` in CI: JUnit XML, annotations and the step summary."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agentrun.cli.suite_ci import error_annotations, junit_xml, summary_markdown
from agentrun.cli.suite_result import SuiteResult
from agentrun.testing.suite.runner import CaseResult
from agentrun.testing.suite.verdict import CaseChange, CaseFailure, CaseStatus, CaseVerdict

from .suite_project import CASES, DEFAULT_CASE, FAILS, MISSES, SNAPSHOT_CASE, Suite

HOSTILE = "a|b\n::error::x\r<script>alert('1')</script> `code` @octocat [x](y) \x1b[2J\x00 100%"


def suite_result(*failures: str, status: CaseStatus = "failed", id: str = "specs/a.cases.yaml::one") -> SuiteResult:
    wrong = tuple(CaseFailure(assertion="contains", message=text, detail=text, hint=text) for text in failures)
    changes = tuple(CaseChange(title=text, text=text) for text in failures)
    verdict = CaseVerdict(id=id, file="specs/a.cases.yaml", line=3, status=status, failures=wrong, changes=changes)
    return SuiteResult(paths=(".",), results=[CaseResult(verdict=verdict)], cases=1)


def test_junit_has_all_cases_with_their_verdicts(suite: Suite) -> None:
    suite.write(
        DEFAULT_CASE, FAILS, MISSES, "  - {name: later, skip: not today}\n", SNAPSHOT_CASE.replace("default", "kept")
    )
    (suite.root / "specs/bad.cases.yaml").write_text("agentrun: 2\n", encoding="utf-8")
    assert suite.test("--junit", "reports/deep/junit.xml").code == 1
    root = ET.parse(suite.root / "reports/deep/junit.xml").getroot()  # noqa: S314  # our own file
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("6", "1", "3")
    bad, desk = root
    assert (bad.get("name"), bad.get("errors")) == ("specs/bad.cases.yaml", "1")
    assert (desk.get("name"), desk.get("tests"), desk.get("skipped")) == (CASES, "5", "1")
    found = {case.get("name"): [each.tag for each in case] for case in desk.iter("testcase")}
    assert found == {
        "default": ["system-out"],
        "fails": ["failure", "system-out"],
        "misses": ["error", "system-out"],
        "later": ["skipped"],
        "kept": ["error", "system-out"],
    }
    failure = desk.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "contains"
    assert (failure.text or "").startswith(f"{CASES}:4\n")
    assert all(re.fullmatch(r"\d+\.\d{3}", case.get("time", "")) for case in desk.iter("testcase"))


def test_junit_option_replaces_only_report_files(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    assert suite.test("--junit", "junit.xml").code == 0
    assert suite.test("--junit", "junit.xml").code == 0
    ran = suite.test("--junit", "specs/desk.yaml")
    assert ran.code == 2
    assert "exists and is another kind of file" in ran.err
    assert (suite.root / "specs/desk.yaml").read_text(encoding="utf-8").startswith("agentrun:")


def test_junit_escapes_hostile_text() -> None:
    root = ET.fromstring(junit_xml(suite_result(HOSTILE), "1"))  # noqa: S314  # our own text
    failure = root.find(".//failure")
    assert failure is not None
    assert "<script>" in (failure.get("message") or "")
    assert "\x1b" not in ET.tostring(root, encoding="unicode")


def test_junit_reports_unused_snapshots_as_failures() -> None:
    over = suite_result(status="passed")
    over.unused_snapshots = ["specs/__snapshots__/a/gone.journal"]
    root = ET.fromstring(junit_xml(over, "1"))  # noqa: S314  # our own text
    assert (root.get("tests"), root.get("failures")) == ("2", "1")


def test_failed_case_gives_a_github_annotation(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    suite.setenv(GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(suite.root.parent))
    ran = suite.test()
    (line,) = [each for each in ran.out.splitlines() if each.startswith("::error")]
    assert line.startswith(f"::error file=desk/{CASES},line=4,title=failed%3A fails::contains: ")
    assert not [each for each in suite.test("-k", "default").out.splitlines() if each.startswith("::error")]


@pytest.mark.parametrize("value", ["", "false", "1"])
def test_no_annotations_outside_github_actions(suite: Suite, value: str) -> None:
    suite.write(FAILS)
    suite.setenv(GITHUB_ACTIONS=value)
    assert "::error" not in suite.test().out


def test_output_cannot_issue_github_commands(suite: Suite) -> None:
    suite.write(FAILS.replace("nowhere", "'::warning::hello'"))
    suite.setenv(GITHUB_ACTIONS="true")
    lines = suite.test().out.splitlines()
    stop = re.fullmatch("::stop-commands::([0-9a-f]{32})", lines[0])
    assert stop is not None
    end = lines.index(f"::{stop[1]}::")
    assert [each for each in lines[end + 1 :] if not each.startswith("::error ")] == []
    assert any("1 failed" in each for each in lines[1:end])


def test_annotations_are_on_stderr_with_json(suite: Suite) -> None:
    suite.write(FAILS)
    suite.setenv(GITHUB_ACTIONS="true")
    ran = suite.test("--json")
    assert ran.statuses() == {"fails": "failed"}
    assert ran.err.startswith("::error ")


def test_annotation_escapes_hostile_text_into_one_line() -> None:
    (line,) = error_annotations(suite_result(HOSTILE, id="specs/a.cases.yaml::a,b:c"), {})
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line
    assert ",title=failed%3A a%2Cb%3Ac::" in line
    assert "100%25" in line


def test_step_summary_is_appended(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, FAILS)
    file = suite.root / "summary.md"
    file.write_text("before\n", encoding="utf-8")
    suite.setenv(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(file))
    suite.test()
    text = file.read_text(encoding="utf-8")
    assert text.startswith("before\n### agentrun test\n\n1 passed, 1 failed\n")
    assert "| case | verdict | why |" in text


def test_step_summary_that_cannot_be_written_is_an_error(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    suite.setenv(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(suite.root))
    ran = suite.test()
    assert ran.code == 7
    assert "cannot be written: Is a directory" in ran.err


def test_step_summary_escapes_hostile_text() -> None:
    text = summary_markdown(suite_result(HOSTILE))
    (row,) = [line for line in text.splitlines() if line.startswith("| specs")]
    assert row.count("|") == 4
    for sign in ("<", "`", "@", "[x]", "::", "\x1b"):
        assert sign not in row


def test_step_summary_shows_at_most_200_cases() -> None:
    over = suite_result("x")
    over.results *= 500
    assert summary_markdown(over).count("| failed |") == 200
    assert "300 more" in summary_markdown(over)


def test_junit_file_that_cannot_be_written_is_an_error(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    Path("file").write_text("", encoding="utf-8")
    ran = suite.test("--junit", "file/junit.xml")
    assert ran.code == 7
    assert ran.out == "1 passed\n"  # what came of the suite is not lost with it
