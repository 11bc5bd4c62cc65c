"""Verdicts of cases in pytest are those of `agentrun test`."""

from __future__ import annotations

import re

import pytest

from .projects import Project

BAD = "assert: [{type: contains, value: absent}]"


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    """What `-rA` says of each case."""
    said = re.findall(r"^(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR) .*::(\S+)", result.stdout.str(), re.MULTILINE)
    return {name: word for word, name in said}


def test_verdicts_are_those_of_the_suite(project: Project) -> None:
    project.cases(
        "name: good",
        f"name: bad, {BAD}",
        "name: missing, cassette: other",
        "name: misfit, input: Where is order 7?",
        f"name: known, xfail: later, {BAD}",
        "name: known-miss, xfail: later, cassette: other",
        "name: better, xfail: later",
    )
    words = {"passed": "PASSED", "failed": "FAILED", "missed": "FAILED", "xfailed": "XFAIL"}
    expected = {name: words[verdict.status] for name, verdict in project.verdicts().items()}
    assert set(expected.values()) == set(words.values())
    assert outcomes(project.run("-rA")) == expected


def test_skipped_case_shows_its_reason(project: Project) -> None:
    project.cases("name: default, skip: the shop is closed", "name: other")
    result = project.run("-rs")
    result.assert_outcomes(skipped=1, passed=1)
    result.stdout.fnmatch_lines(["SKIPPED * specs/desk.cases.yaml:3: the shop is closed"])


def test_xfail_case_that_fails(project: Project) -> None:
    project.cases(f"name: default, xfail: the shop moves, {BAD}")
    result = project.run("-rx")
    assert result.ret == 0
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["XFAIL specs/desk.cases.yaml::default - the shop moves*"])


def test_xfail_case_that_passes_fails(project: Project) -> None:
    project.cases("name: default, xfail: the shop moves")
    result = project.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*the shop moves*"])


def test_invalid_spec_fails_despite_xfail(project: Project) -> None:
    project.cases("name: default, xfail: the shop moves")
    project.edit("specs/desk.yaml", "orders:look", "orders:lokk")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["specs/desk.yaml:7:30  spec.python *lokk*", "specs/desk.yaml:7: unreadable"])


def test_runxfail_ignores_xfail(project: Project) -> None:
    project.cases(f"name: bad, xfail: later, {BAD}", "name: good, xfail: later")
    result = project.run("--runxfail")
    result.assert_outcomes(failed=1, passed=1)
    assert "The run:" in result.stdout.str()


def test_failure_shows_assertion_run_and_journal_diff(project: Project) -> None:
    project.cases("name: default, assert: [{type: contains, value: absent}, {type: journal-snapshot}]")
    project.run("--snapshot-update").assert_outcomes(failed=1)
    project.cases("name: default, assert: [{type: journal-snapshot}]")
    project.run("--snapshot-update").assert_outcomes(passed=1)
    project.edit("specs/__snapshots__/desk/default.journal", "late", "here")
    project.cases("name: default, assert: [{type: contains, value: absent}, {type: journal-snapshot}]")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ desk/default _*",
            "contains: *absent*",
            "journal-snapshot: the journal differs from the accepted one",
            "  → *",
            "The run:",
            "  desk: Where is order 1042?",
            "  turn 1",
            "    → look *1042*",
            "journal-snapshot:",
            "  --- accepted",
            "  +++ now",
            "  -*here*",
            "  +*late*",
            "specs/desk.cases.yaml:3: failed",
            "FAILED specs/desk.cases.yaml::default - contains: *",
        ]
    )


@pytest.mark.parametrize("style", ["auto", "long", "short", "native", "line"])
def test_failure_shows_no_internal_frames(project: Project, style: str) -> None:
    project.cases(f"name: default, {BAD}", "name: other, cassette: other")
    said = project.run(f"--tb={style}", "-l").stdout.str()
    assert "Traceback" not in said
    assert "agentrun/testing" not in said
    assert "runner/agentrun" not in said
    assert "verdict" not in said


def test_miss_shows_the_change_and_the_command(project: Project) -> None:
    project.cases("name: default")
    project.edit("specs/desk.yaml", "You help with orders.", "You help with late orders.")
    result = project.run()
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "cassette.miss" in said
    assert "late orders" in said
    assert "--record" in said


def test_case_without_a_cassette_shows_the_record_command(project: Project) -> None:
    project.cases("name: default, cassette: other")
    result = project.run()
    result.stdout.fnmatch_lines(
        [
            "cassette.miss: there is no cassette cassettes/desk/other.yaml",
            "  → record it: agentrun specs/desk.yaml --case default --record new",
            "specs/desk.cases.yaml:3: missed",
        ]
    )


def test_cassette_path_that_is_a_directory_fails(project: Project) -> None:
    project.cases("name: default")
    project.cassette.unlink()
    project.cassette.mkdir()
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the cassette cassettes/desk/default.yaml cannot be read: it is a directory"])


def test_keys_and_control_characters_are_not_shown(project: Project) -> None:
    secret = r"sk-proj-abcdefghij0123456789 \e[31m"
    project.cases(
        f'name: default, assert: [{{type: contains, value: "{secret}"}}]',
        f'name: later, skip: "{secret}"',
        f'name: known, xfail: "{secret}", {BAD}',
        f'name: better, xfail: "{secret}"',
    )
    said = project.run("-rA").stdout.str()
    assert "contains: " in said
    assert "sk-proj-abcdefghij0123456789" not in said.split("FAILURES")[1]
    assert "\x1b" not in said


def test_junit_report_names_the_failed_assertion(project: Project) -> None:
    project.cases(f"name: default, {BAD}")
    project.run("--junit-xml=report.xml")
    report = (project.root / "report.xml").read_text(encoding="utf-8")
    assert 'classname="specs.desk.cases.yaml" name="default"' in report or 'name="default"' in report
    assert re.search(r'<failure message="contains: ', report)
