"""--agentrun-repeat N: each case is run N times and must give the same result."""

from __future__ import annotations

import pytest

from .projects import SNAPSHOT_ASSERTION, Project

FLAKY = '''
calls = []

def seldom(evidence):
    """Holds two times, and then not."""
    calls.append(evidence.outcome)
    return len(calls) < 3
'''
ASSERTION = 'assert: [{type: python, value: "flaky:seldom"}]'


def test_stable_case_passes_every_time(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}", "name: other")
    project.run("--agentrun-repeat", "3", "--snapshot-update").assert_outcomes(passed=2)
    assert project.kept() == ["default.journal"]
    project.run("--agentrun-repeat=3").assert_outcomes(passed=2)


@pytest.mark.parametrize(("times", "outcome"), [(2, "passed"), (3, "failed")])
def test_flaky_case_fails(project: Project, times: int, outcome: str) -> None:
    project.write("specs/flaky.py", FLAKY)
    project.cases(f"name: default, {ASSERTION}")
    result = project.run(f"--agentrun-repeat={times}")
    result.assert_outcomes(**{outcome: 1})
    if outcome == "failed":
        result.stdout.fnmatch_lines(["repeat: *3*", "*first*passed*"])


@pytest.mark.parametrize("times", ["0", "-1", "x"])
def test_invalid_repeat_value_is_refused(project: Project, times: str) -> None:
    project.cases("name: default")
    assert project.run(f"--agentrun-repeat={times}").ret == pytest.ExitCode.USAGE_ERROR
