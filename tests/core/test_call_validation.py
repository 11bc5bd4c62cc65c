"""Argument checks of tool calls, and the message the model reads when a call is refused."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentrun.core.call_validation import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENT_DEPTH,
    hidden_tools,
    offered_tools,
    parse_arguments,
)
from agentrun.core.effects import OfferedTool
from agentrun.core.facts import CallRefused, Parent
from agentrun.core.model_texts import MAX_NAMED_TOOLS
from agentrun.core.package import Package
from agentrun.core.spend import BudgetShare
from agentrun.errors import TOOL_RESULT_CODES

from ..packages import package
from .script import RUN_STARTED, Run, agent_tool, calls_reply, mcp_tool, text_reply, tool

ARGS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["city", "days"],
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
ACTIONS = {
    "open": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}},
    "close": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
}


def agent(**tools: dict[str, Any]) -> Package:
    known = {
        "weather": tool(args=ARGS),
        "ticket": tool(actions=ACTIONS),
        "any": tool(args={"type": "object"}),
        "files": mcp_tool("read_it", "read_a.b", "list"),
        "helper": agent_tool(),
    }
    child = msgspec.to_builtins(package(name="child"))
    return package(tools=known | tools, agents={"helper": child}, policy={"default": "allow"})


def refusal(name: str, arguments: str, given: Package | None = None, **changes: Any) -> CallRefused | None:
    """Why one call of a run is refused. None: it ran."""
    run = Run(given or agent(), calls_reply((name, arguments)), text_reply("Done."), **changes)
    assert run.finish().status == "completed", "what a model does wrong ends no run"
    found: list[CallRefused] = run.of(CallRefused)
    assert run.ran == ([] if found else ["c1.0"]), "nothing ran"
    if not found:
        return None
    (one,) = found
    assert one.code in TOOL_RESULT_CODES
    assert one.told.startswith(f"{one.code}: "), "the model reads it"
    return one


def expect_refusal(name: str, arguments: str, given: Package | None = None, **changes: Any) -> CallRefused:
    found = refusal(name, arguments, given, **changes)
    assert found is not None
    return found


# known and visible


def test_unknown_tool_is_refused_with_the_available_names() -> None:
    found = expect_refusal("wether", "{}")
    assert (found.code, found.fields) == ("tool.unknown", {"tool": "wether"})
    names = "any, files.list, files.read_a.b, files.read_it, helper, ticket, weather"
    assert found.told.endswith(f"there is no tool 'wether'; available tools: {names}"), "all that the model can call"
    many = agent(many=mcp_tool(*(f"t{n}" for n in range(200))), secret=tool(visible="1 == 2"))
    told = expect_refusal("wether", "{}", many).told
    assert told.endswith(f" and {200 + 7 - MAX_NAMED_TOOLS} more")
    assert "secret" not in told
    found = expect_refusal("x", "{}", package(policy={"default": "allow"}))
    assert found.told.endswith("tools: none")


@pytest.mark.parametrize(
    "name", ["files", "files.write", "files.lists", "files.list.x", "files.read_", "other.list", "any.list", ".list"]
)
def test_unknown_mcp_tool_is_refused(name: str) -> None:
    assert expect_refusal(name, "{}").code == "tool.unknown"


@pytest.mark.parametrize("name", ["files.list", "files.read_it", "files.read_a.b"])
def test_known_mcp_tool_takes_any_object(name: str) -> None:
    assert refusal(name, '{"anything": [1]}') is None
    assert expect_refusal(name, "[1]").code == "tool.invalid_arguments", "an object all the same"


def test_hidden_tool_is_refused() -> None:
    given = agent(any=tool(visible="spend.turns > 5"), files=mcp_tool("list", visible="false"))
    for name in ("any", "files.list"):
        found = expect_refusal(name, "{}", given)
        assert (found.code, found.fields) == ("tool.hidden", {"tool": name})
    assert expect_refusal("any", "{broken", given).code == "tool.hidden", "visible comes before parsed"
    assert expect_refusal("files", "{}", given).code == "tool.unknown", "known comes before visible"


@pytest.mark.parametrize(
    ("visible", "hidden"),
    [
        (None, False),
        ("true", False),
        ("false", True),
        ("params.team == 'x'", False),
        ("params.nothing == 'x'", True),
        ("spend.turns == 0", False),
        ("args.x == 1", True),
    ],
)
def test_visible_condition_decides_whether_a_tool_is_hidden(visible: str | None, hidden: bool) -> None:
    """What cannot be told hides."""
    given = agent(any=tool(visible=visible))
    run = Run(given, started=replace(RUN_STARTED, params={"team": "x"}))
    assert hidden_tools(given, run.state) == (("any",) if hidden else ())


def test_visible_condition_is_evaluated_every_turn() -> None:
    given = agent(any=tool(visible="has(calls.weather) && calls.weather > 0"))
    fine = ("weather", '{"city":"x","days":1}')
    run = Run(given, calls_reply(fine), calls_reply("any"), text_reply("Done."))
    run.finish()
    offers = [{each.name for each in request.request.tools} for request in run.requests]
    others = offers[0]
    assert offers == [others, others | {"any"}, others | {"any"}]
    assert "any" not in others
    assert [request.hidden for request in run.requests] == [("any",), (), ()]
    assert run.ran == ["c1.0", "c2.0"]


def test_tool_hidden_in_the_request_stays_hidden_for_its_reply() -> None:
    given = agent(any=tool(visible="has(calls.weather) && calls.weather > 0"))
    run = Run(given, calls_reply(("weather", '{"city":"x","days":1}'), "any"), text_reply("Done."))
    run.finish()
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.hidden"]


def test_offered_tools_are_sorted_and_without_hidden_ones() -> None:
    given = agent()
    offered = offered_tools(given, ("ticket",))
    server = ["files.list", "files.read_a.b", "files.read_it"]
    assert offered[1] == OfferedTool("files.list", "A tool.\n\nA tool.", {"type": "object"})
    assert [each.name for each in offered] == ["any", *server, "helper", "weather"]
    assert offered[-1] == OfferedTool("weather", "A tool.", ARGS)


# parsed


@pytest.mark.parametrize("nothing", ["", " \n", "{}"])
def test_empty_arguments_are_an_empty_object(nothing: str) -> None:
    assert parse_arguments(nothing) == {}
    assert refusal("any", nothing) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not valid JSON"),
        ("{'a': 1}", "it is not valid JSON"),
        ('{"a": NaN}', "it is not valid JSON"),
        ('{"a": 1} {}', "it is not valid JSON"),
        ('{"a": "\\ud800"}', "it is not valid JSON"),
        ('{"a": 1, "a": 2}', "an object has the same key twice"),
        ("[]", "it is not an object"),
        ("null", "it is not an object"),
        ('"{}"', "it is not an object"),
        ("1" * 5000, "it is not valid JSON"),
        ("[" * 100_000 + "]" * 100_000, "it is nested deeper than 64 levels"),
    ],
)
def test_arguments_that_are_not_an_object_are_refused(text: str, why: str) -> None:
    assert parse_arguments(text) is None
    found = expect_refusal("any", text)
    assert (found.code, found.fields) == ("tool.invalid_arguments", {"tool": "any"})
    assert found.told.startswith(f"tool.invalid_arguments: the arguments of 'any' are not a JSON object: {why}")


def test_depth_limit_of_arguments() -> None:
    inner = MAX_ARGUMENT_DEPTH - 1
    assert parse_arguments('{"a":' * inner + "[]" + "}" * inner) is not None
    assert parse_arguments('{"a":' * inner + "[[]]" + "}" * inner) is None


def test_size_limit_of_arguments() -> None:
    text = json.dumps({"a": "x" * (MAX_ARGUMENT_BYTES - 9)})
    assert len(text) == MAX_ARGUMENT_BYTES
    assert parse_arguments(text) is not None
    assert parse_arguments(text.replace("xx", "xxx", 1)) is None
    assert "1048577 bytes, but the limit is 1048576" in expect_refusal("any", text.replace("xx", "xxx", 1)).told


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), JSON_VALUES, max_size=4))
def test_every_object_is_parsed(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == value


@given(st.text(max_size=30))
def test_any_text_runs_or_is_refused(text: str) -> None:
    """Nothing a model writes ends a run: the call runs, or is refused."""
    found = refusal("any", text)
    assert (found is None) == (parse_arguments(text) is not None)


# valid


def test_valid_arguments_run() -> None:
    assert refusal("weather", '{"city": "Rome", "days": 1, "tags": ["a"]}') is None


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ('{"city": 7, "days": 1}', "city", "city: "),
        ('{"city": "x", "days": 0}', "days", "days: "),
        ('{"city": "x", "days": 1.5}', "days", "days: "),
        ('{"city": "x", "days": 1, "tags": ["a", 3]}', "tags", "tags/1: "),
        ('{"city": "x", "days": 1, "more": 1}', None, "the arguments: Additional properties"),
    ],
)
def test_invalid_arguments_are_refused_with_field_and_reason(arguments: str, field: str | None, words: str) -> None:
    found = expect_refusal("weather", arguments)
    expected = {"tool": "weather"} | ({"field": field} if field else {})
    assert (found.code, found.fields) == ("tool.invalid_arguments", expected)
    assert f"the arguments of 'weather' are not valid: {words}" in found.told


def test_refusal_does_not_show_argument_values() -> None:
    assert "sk-secret" not in expect_refusal("weather", '{"city": "x", "days": "sk-secret"}').told


def test_refusal_message_has_a_maximum_length() -> None:
    found = expect_refusal("weather", json.dumps({"city": "x", "days": 1, "k" * 5000: 1}))
    assert len(found.told) == 300 + len("tool.invalid_arguments: ")


@pytest.mark.parametrize(("arguments", "field"), [("{}", "city"), ('{"city": 7}', "days"), ('{"days": 1}', "city")])
def test_missing_argument_is_refused_with_its_name(arguments: str, field: str) -> None:
    found = expect_refusal("weather", arguments)
    assert (found.code, found.fields) == ("tool.missing_field", {"tool": "weather", "field": field})
    assert found.told == f"tool.missing_field: 'weather' needs the argument '{field}'"


# actions


def test_valid_action_calls_run() -> None:
    assert refusal("ticket", '{"action": "open", "title": "x"}') is None
    assert refusal("ticket", '{"action": "close", "id": 3}') is None


def test_missing_argument_of_an_action_is_refused() -> None:
    found = expect_refusal("ticket", '{"action": "close", "title": "x"}')
    assert (found.code, found.fields) == ("tool.missing_field", {"tool": "ticket", "action": "close", "field": "id"})
    assert found.told == "tool.missing_field: 'ticket.close' needs the argument 'id'"


@pytest.mark.parametrize("arguments", ["{}", '{"action": null}', '{"title": "x"}'])
def test_missing_action_is_refused(arguments: str) -> None:
    found = expect_refusal("ticket", arguments)
    assert (found.code, found.fields) == ("tool.missing_field", {"tool": "ticket", "field": "action"})


@pytest.mark.parametrize("action", ['"delete"', "7", '["open"]', '{"open": 1}', '""'])
def test_unknown_action_is_refused_with_the_available_actions(action: str) -> None:
    found = expect_refusal("ticket", f'{{"action": {action}}}')
    assert (found.code, found.fields) == ("tool.invalid_arguments", {"tool": "ticket", "field": "action"})
    assert found.told.endswith("'ticket' has no such action; available actions: close, open")


def test_invalid_arguments_of_an_action_are_refused() -> None:
    found = expect_refusal("ticket", '{"action": "close", "id": "x"}')
    expected = {"tool": "ticket", "action": "close", "field": "id"}
    assert (found.code, found.fields) == ("tool.invalid_arguments", expected)
    assert "the arguments of 'ticket.close' are not valid: id: " in found.told


# agents


@pytest.mark.parametrize(("depth", "code"), [(0, None), (2, None), (3, "tool.invalid_call"), (4, "tool.invalid_call")])
def test_sub_agent_deeper_than_the_limit_is_refused(depth: int, code: str | None) -> None:
    parent = Parent("run-0", "c1.0", depth, BudgetShare()) if depth else None
    found = refusal("helper", '{"message": "x"}', started=replace(RUN_STARTED, parent=parent))
    assert (found.code if found else None) == code
    if found:
        assert found.fields == {"tool": "helper", "reason": "depth", "limit": 3}


def test_depth_limit_of_one_allows_one_level_of_sub_agents() -> None:
    given = agent()
    flat = replace(given, limits=replace(given.limits, depth=1))
    assert refusal("helper", '{"message": "x"}', flat) is None
    child = replace(RUN_STARTED, parent=Parent("run-0", "c1.0", 1, BudgetShare()))
    assert expect_refusal("helper", '{"message": "x"}', flat, started=child).fields["limit"] == 1


def test_sub_agent_call_needs_a_message() -> None:
    assert expect_refusal("helper", "{}").fields == {"tool": "helper", "field": "message"}
