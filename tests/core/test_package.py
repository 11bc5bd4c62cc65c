"""Name patterns, and the tools of a package found by name."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.package import Package, argument_schemas, find_tool, matches_pattern, tool_command, tool_effect
from agentrun.core.package_tools import McpTool

from ..packages import package
from ..steps import at_most
from .script import agent_tool, mcp_tool, pins, tool
from .test_package_validation import SHELL

SMALL = st.text(alphabet="ab.", max_size=8)


@pytest.mark.parametrize(
    ("target", "name", "yes"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a", "ab", False),
        ("", "", True),
        ("*", "", True),
        ("*", "a.b", True),
        ("a*", "a", True),
        ("*a", "ba", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("a*bc*c", "abc", False),
        ("**", "", True),
        ("a?", "ab", False),
        ("[ab]", "a", False),
        ("a.c", "abc", False),
    ],
)
def test_pattern_matches_a_name(target: str, name: str, yes: bool) -> None:
    assert matches_pattern(target, name) is yes


@given(st.text(alphabet="ab.*", max_size=8), SMALL)
def test_pattern_agrees_with_a_regular_expression(target: str, name: str) -> None:
    pattern = ".*".join(map(re.escape, target.split("*")))
    assert matches_pattern(target, name) == (re.fullmatch(pattern, name, re.DOTALL) is not None)


@given(SMALL, SMALL)
def test_pattern_without_a_star_matches_only_itself(one: str, two: str) -> None:
    assert matches_pattern(one, two) == (one == two)


def test_pattern_with_many_stars_matches_in_bounded_time() -> None:
    """With backtracking this would not come back."""
    with at_most(1_000):
        assert not matches_pattern("a*" * 60 + "b", "a" * 10_000)
        assert not matches_pattern("a*" * 60 + "b*", "a" * 10_000)


def agent(**server: Any) -> Package:
    tools = {"search": tool(effect="idempotent"), "helper": agent_tool(), "files": mcp_tool("read_a", "list", **server)}
    child = msgspec.to_builtins(package(name="child"))
    return package(tools=tools, agents={"helper": child})


def test_find_tool_by_name_or_server_and_tool() -> None:
    given = agent()
    assert find_tool(given, "search") is given.tools["search"]
    assert find_tool(given, "files.list") is given.tools["files"]
    for name in ("Search", "search.x", "files", "files.write", "nobody", "nobody.list", "", "."):
        assert find_tool(given, name) is None, name


def test_argument_schemas_list_every_callable_tool() -> None:
    """What a model can call: the tools of a server one by one, not the server."""
    assert sorted(argument_schemas(agent().tools)) == ["files.list", "files.read_a", "helper", "search"]
    own = {"type": "object", "required": ["x"]}
    given = agent(pinned=pins("list", args=own))
    assert argument_schemas(given.tools)["files.list"] == own


def test_tool_effect_of_plain_tools_and_sub_agents() -> None:
    given = agent()
    assert tool_effect(given.tools["search"], "search") == "idempotent"
    assert tool_effect(given.tools["helper"], "helper") == "idempotent", "it goes on where its journal ends"


@pytest.mark.parametrize(
    ("effects", "found"),
    [
        ({}, "at_most_once"),
        ({"read_a": "read"}, "read"),
        ({"read_*": "idempotent"}, "idempotent"),
        ({"read_a": "read", "read_*": "idempotent"}, "idempotent"),
        ({"*": "read", "read_a": "at_most_once"}, "at_most_once"),
        ({"list": "read"}, "at_most_once"),
        ({"files.read_a": "read"}, "at_most_once"),
    ],
)
def test_tool_effect_at_an_mcp_server_is_the_most_harmful_match(effects: dict[str, str], found: str) -> None:
    """Of those that match the most harmful; without one, the server's own."""
    server = agent(effect="at_most_once", effects=effects).tools["files"]
    assert isinstance(server, McpTool)
    assert tool_effect(server, "files.read_a") == found


def test_tool_command_is_the_program_a_tool_starts() -> None:
    """The program that a tool starts, if it starts one."""
    made = package(
        tools={
            "shell": {**SHELL, "argv": ["df", "-h"]},
            "started": mcp_tool("x", command=["server", "--stdio"], url=None),
            "reached": mcp_tool("x", command=[], url="https://a.example/mcp"),
            "plain": tool(),
        }
    ).tools
    found = {name: tool_command(each) for name, each in made.items()}
    assert found == {"shell": "df", "started": "server", "reached": None, "plain": None}
