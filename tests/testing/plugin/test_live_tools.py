"""--agentrun-live-tools: tools run for real, the model is replayed."""

from __future__ import annotations

from agentrun.engine.worlds import live

from .projects import SNAPSHOT_ASSERTION, Project

IMPORTED = live


def test_live_tools_run_and_the_model_is_replayed(project: Project) -> None:
    project.cases(f"name: default, {SNAPSHOT_ASSERTION}")
    project.run("--snapshot-update").assert_outcomes(passed=1)
    assert project.traces() == []
    project.run("--agentrun-live-tools").assert_outcomes(passed=1)
    assert project.traces() == ["look 1042"]


def test_changed_result_of_a_live_tool_fails_the_case(project: Project) -> None:
    project.cases("name: default")
    project.edit("specs/orders.py", 'return "late"', 'return "lost"')
    project.run().assert_outcomes(passed=1)
    result = project.run("--agentrun-live-tools")
    result.assert_outcomes(failed=1)
    assert "lost" in result.stdout.str()


def test_output_of_live_tools_is_captured_and_masked(project: Project) -> None:
    """Without what acts on a terminal, and without what looks like a key."""
    project.cases("name: default")
    project.edit(
        "specs/orders.py", 'return "late"', 'print("\\x1b[31m sk-proj-abcdefghij0123456789ABCDEFGHIJ"); return "late"'
    )
    said = project.run("--agentrun-live-tools", "-rP").stdout.str()
    assert "Captured stdout" in said
    assert "\\x1b[31m ***" in said
