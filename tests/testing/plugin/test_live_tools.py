"""--agentrun-live-tools: the tools are run for real, the model is replayed."""

from __future__ import annotations

from agentrun.engine.worlds import mixed

from .projects import KEPT, Project

IMPORTED = mixed


def test_tools(project: Project) -> None:
    project.cases(f"name: default, {KEPT}")
    project.run("--snapshot-update").assert_outcomes(passed=1)
    assert project.traces() == []
    project.run("--agentrun-live-tools").assert_outcomes(passed=1)
    assert project.traces() == ["look 1042"]


def test_tools_that_do_otherwise(project: Project) -> None:
    project.cases("name: default")
    project.edit("specs/orders.py", 'return "late"', 'return "lost"')
    project.run().assert_outcomes(passed=1)
    result = project.run("--agentrun-live-tools")
    result.assert_outcomes(failed=1)
    assert "lost" in result.stdout.str()


def test_what_tools_print_is_output_of_the_test(project: Project) -> None:
    """Without what acts on a terminal, and without what looks like a key."""
    project.cases("name: default")
    project.edit(
        "specs/orders.py", 'return "late"', 'print("\\x1b[31m sk-proj-abcdefghij0123456789ABCDEFGHIJ"); return "late"'
    )
    said = project.run("--agentrun-live-tools", "-rP").stdout.str()
    assert "Captured stdout" in said
    assert "\\x1b[31m ***" in said
