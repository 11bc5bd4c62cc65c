"""Stubs, faults and assertions match tools by the same rule."""

from __future__ import annotations

import pytest

from agentrun.compiler.lint_cases import parse_fault_place
from agentrun.spec.v1.cases import StubSpec
from agentrun.testing.suite.stubs_and_faults import CaseStubs, RunPath, matches_place, matches_target

TOP = RunPath("", ())
READER = RunPath("c1.0", ("read",))

TARGETS = [
    ("search", TOP, "search", True),
    ("sea*", TOP, "search", True),
    ("search", READER, "search", False),
    ("*", READER, "search", False),
    ("read/search", READER, "search", True),
    ("read/*", READER, "search", True),
    ("read/search", TOP, "search", False),
    ("docs.*", TOP, "docs.a/b", True),
    ("docs.a/b", TOP, "docs.a/b", True),
    ("docs.a/*", TOP, "docs.a/b", True),
    ("docs.*", READER, "docs.a/b", False),
    ("read/docs.*", READER, "docs.a/b", True),
]
"""A target, the agent, one of its tools, and whether they match. `docs.a/b` is the tool `a/b` of a server."""


@pytest.mark.parametrize(("target", "member", "tool", "matches"), TARGETS)
def test_stubs_faults_and_assertions_match_the_same_tools(
    target: str, member: RunPath, tool: str, matches: bool
) -> None:
    name = member.full_name(tool)
    assert matches_target(target, name) is matches, "an assertion"
    assert CaseStubs({target: StubSpec(result="x")}).find_target(name) == (target if matches else None)
    assert matches_place(parse_fault_place(f"tool:{target}"), member, "tool", tool) is matches, "a fault"


def test_fault_place_of_a_sub_agent_uses_the_plain_tool_name() -> None:
    place = parse_fault_place("c1.0/tool:docs.a/b#2")
    assert matches_place(place, READER, "tool", "docs.a/b")
    assert not matches_place(place, TOP, "tool", "docs.a/b")
    assert not matches_place(place, RunPath("c2.0", ("read",)), "tool", "docs.a/b")
