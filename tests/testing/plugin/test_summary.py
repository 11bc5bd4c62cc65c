"""pytest shows failed assertions at their own line, and reports a cause that several cases share once."""

from __future__ import annotations

import re

from .projects import Project

LONG = """\
agentrun: "1"
cases:
  - name: default
    assert:
      - {type: turns, max: 9}
      - {type: contains, value: absent}
"""


def test_failed_assertion_is_placed_at_its_own_line(project: Project) -> None:
    (project.root / "specs/desk.cases.yaml").write_text(LONG, encoding="utf-8")
    result = project.run()
    result.stdout.fnmatch_lines(["contains: *  (specs/desk.cases.yaml:6)", "specs/desk.cases.yaml:6: failed"])
    line = project.run("--tb=line").stdout.str()
    assert re.search(r"specs/desk\.cases\.yaml:6: contains: ", line)


def test_cause_that_several_cases_share_is_reported_once(project: Project) -> None:
    project.cases("name: default", "name: again, cassette: default", "name: other, input: Where?, cassette: default")
    project.edit("specs/desk.yaml", "You help with orders.", "You like to help with orders.")
    result = project.run()
    result.stdout.fnmatch_lines(["*- agentrun causes -*", "3 cases: instructions line 1 changed  (specs/desk.yaml:4)"])
    assert result.stdout.str().count("cases: ") == 1
    alone = project.run("-k", "again")
    alone.stdout.no_fnmatch_line("*agentrun causes*")


def test_tool_whose_source_changed_is_mentioned_once(project: Project) -> None:
    project.cases("name: default", "name: again, cassette: default")
    project.run().stdout.no_fnmatch_line("*source changed*")
    cassette = project.root / "cassettes/desk/default.yaml"
    text = cassette.read_text(encoding="utf-8")
    cassette.write_text(
        text.replace("metadata:\n", "metadata:\n  tool_sources: {look: 'sha256:0'}\n", 1), encoding="utf-8"
    )
    result = project.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*- agentrun tools whose source changed since the recording -*", "look (2 cases)"])
