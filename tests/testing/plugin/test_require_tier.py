"""--agentrun-require-tier: the minimum match tier of requests."""

from __future__ import annotations

import pytest

from .projects import Project


def with_volatile_input(project: Project) -> None:
    """The recording was made with another temperature, and the spec calls it volatile."""
    project.cases("name: default")
    project.edit("specs/desk.yaml", "temperature: 0", "temperature: 1")
    project.edit("specs/desk.yaml", "budgets:", "replay: {volatile: [temperature]}\nbudgets:")


@pytest.mark.parametrize("tier", [[], ["--agentrun-require-tier=normalised"]])
def test_volatile_difference_passes_with_normalised(project: Project, tier: list[str]) -> None:
    with_volatile_input(project)
    project.run(*tier).assert_outcomes(passed=1)


def test_volatile_difference_fails_with_exact(project: Project) -> None:
    with_volatile_input(project)
    result = project.run("--agentrun-require-tier=exact")
    result.assert_outcomes(failed=1)
    assert "cassette.miss" in result.stdout.str()
    project.edit("specs/desk.yaml", "temperature: 1", "temperature: 0")
    project.run("--agentrun-require-tier=exact").assert_outcomes(passed=1)


def test_required_tier_applies_to_the_fixture(project: Project) -> None:
    with_volatile_input(project)
    project.write("test_own.py", 'def test_own(agentrun): agentrun("specs/desk.yaml", case="default")\n')
    project.run("test_own.py").assert_outcomes(passed=1)
    project.run("test_own.py", "--agentrun-require-tier=exact").assert_outcomes(failed=1)


def test_invalid_tier_is_refused(project: Project) -> None:
    project.cases("name: default")
    assert project.run("--agentrun-require-tier=good").ret == pytest.ExitCode.USAGE_ERROR
