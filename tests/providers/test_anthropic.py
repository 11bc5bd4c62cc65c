"""Anthropic Messages: encoding of requests."""

import json
from typing import Any

import pytest

from agentrun.core.effects import ModelRequest
from agentrun.core.messages import Assistant, Message, Text, ToolCall, ToolResult, user_message
from agentrun.core.model_texts import SCHEMA_GUIDANCE
from agentrun.core.package_tools import Tool
from agentrun.errors import PackageError
from agentrun.providers.anthropic import (
    ANTHROPIC_FIELDS,
    BINDING_BETA,
    CLAUDE_THINKING_BUDGETS,
    DEFAULT_MAX_TOKENS,
    Anthropic,
)
from agentrun.providers.codec import Codec, codec_for
from agentrun.wire import HttpAuth

from ..core.script import mcp_tool, pins
from ..packages import TRIAGE, package
from . import exchange
from .exchange import NOW, SEARCH, check_golden_file, encode, request_json

CODEC = Anthropic()
HAIKU = "claude-haiku-4-5"
LOOSE = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
"""A schema that no provider promises to keep."""


def request(*messages: Message, name: str = HAIKU, **more: Any) -> ModelRequest:
    return exchange.request("anthropic", name, *messages, **more)


def body(asked: ModelRequest) -> dict[str, Any]:
    return exchange.body(CODEC, asked)


def test_it_is_registered() -> None:
    codec: Codec = codec_for("anthropic")
    assert isinstance(codec, Anthropic)


@pytest.mark.parametrize(
    ("story", "asked"),
    [
        ("plain", request()),
        ("streamed", request(stream=True, name="claude-opus-5-5", reasoning="low", output=TRIAGE)),
        (
            "settings",
            request(
                top_p=0.9,
                stop=["END"],
                max_output_tokens=100,
                reasoning="none",
                tool_choice="docs.search",
                tools=(SEARCH,),
                output=LOOSE,
                route={"options": {"top_k": 5, "metadata": {"user_id": "u"}}, "headers": {"X-B": "${B}", "x-a": "1"}},
            ),
        ),
    ],
)
def test_request_matches_the_golden_file(story: str, asked: ModelRequest) -> None:
    check_golden_file(exchange.GOLDEN / "anthropic" / f"{story}.request.json", request_json(encode(CODEC, asked)))


def test_bytes_are_compact_and_sorted() -> None:
    assert encode(CODEC, request()).body == (
        b'{"max_tokens":16000,"messages":[{"content":[{"text":"Hi","type":"text"}],"role":"user"}],'
        b'"model":"claude-haiku-4-5","system":"Be brief."}'
    )


# --- where it goes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:8091", "http://127.0.0.1:8091/v1/messages"),
        ("http://127.0.0.1:8091/v1/", "http://127.0.0.1:8091/v1/messages"),
        ("${GATEWAY}/claude", "${GATEWAY}/claude/v1/messages"),
    ],
)
def test_url_is_built_from_the_base_url(base: str | None, url: str) -> None:
    assert encode(CODEC, request(route={"base_url": base})).url == url


def test_headers_have_version_accept_and_beta() -> None:
    plain = dict(encode(CODEC, request()).headers)
    assert plain == {
        "accept": "application/json",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
    }
    theirs = {"Anthropic-Version": "2026-10-21", "anthropic-beta": "context-1m"}
    own = dict(encode(CODEC, request(stream=True, route={"headers": theirs})).headers)
    assert own == plain | {
        "accept": "text/event-stream",
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "context-1m",
    }
    bound = dict(encode(CODEC, request(name="claude-opus-5-5", route={"headers": theirs})).headers)
    assert bound["anthropic-beta"] == f"context-1m,{BINDING_BETA}"


def test_request_contains_no_credential() -> None:
    call = encode(CODEC, request(route={"api_key": "${MY_KEY}"}))
    assert b"KEY" not in call.body
    assert not {"x-api-key", "authorization"} & dict(call.headers).keys()
    assert call.auth == HttpAuth("x-api-key", "", "MY_KEY")
    assert encode(CODEC, request()).auth == HttpAuth("x-api-key", "", "ANTHROPIC_API_KEY")
    assert encode(CODEC, request(route={"base_url": "http://127.0.0.1"})).auth is None


# --- settings ----------------------------------------------------------------------------------------------


def test_max_tokens_is_always_there() -> None:
    assert body(request())["max_tokens"] == DEFAULT_MAX_TOKENS
    assert body(request(max_output_tokens=7))["max_tokens"] == 7
    assert max(CLAUDE_THINKING_BUDGETS.values()) < DEFAULT_MAX_TOKENS
    assert min(CLAUDE_THINKING_BUDGETS.values()) >= 1024


@pytest.mark.parametrize(
    ("name", "reasoning", "thinking", "effort"),
    [
        (HAIKU, None, None, None),
        (HAIKU, "none", {"type": "disabled"}, None),
        (HAIKU, "low", {"type": "enabled", "budget_tokens": 1024}, None),
        (HAIKU, "medium", {"type": "enabled", "budget_tokens": 4096}, None),
        (HAIKU, "high", {"type": "enabled", "budget_tokens": 10000}, None),
        ("claude-opus-4-6", None, None, None),
        ("claude-opus-4-6", "none", {"type": "disabled"}, None),
        ("claude-opus-4-6", "medium", {"type": "adaptive"}, "medium"),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("some-model", "low", {"type": "enabled", "budget_tokens": 1024}, None),
    ],
)
def test_reasoning_becomes_thinking_or_effort(
    name: str, reasoning: str | None, thinking: Any, effort: str | None
) -> None:
    asked = body(request(name=name, reasoning=reasoning))
    assert asked.get("thinking") == thinking
    assert asked.get("output_config", {}).get("effort") == effort


@pytest.mark.parametrize("reasoning", [None, "high"])
def test_models_with_bound_reasoning_drop_mismatched_blocks(reasoning: str | None) -> None:
    """A summary changes what stood before a thought; a model with bound thoughts would refuse the request."""
    thinking = body(request(name="claude-fable-5-1", reasoning=reasoning))["thinking"]
    assert thinking == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ("docs.search", {"type": "tool", "name": "docs__search"}),
        ("hidden", None),
    ],
)
def test_tool_choice_is_sent_only_with_tools(choice: str, expected: Any) -> None:
    assert body(request(tool_choice=choice, tools=(SEARCH,))).get("tool_choice") == expected
    assert "tool_choice" not in body(request(tool_choice=choice))


def test_tools_have_wire_name_description_and_schema() -> None:
    assert body(request(tools=(SEARCH, NOW)))["tools"] == [
        {"name": "docs__search", "description": "Search the docs.", "input_schema": SEARCH.args},
        {"name": "now", "input_schema": NOW.args},
    ]


def test_tools_of_the_history_are_declared_in_a_summary_request() -> None:
    """The request for a summary offers no tools, and the API wants every tool of the history declared."""
    calls = (ToolCall("c1.0", "docs.search", "{}"), ToolCall("c1.1", "now", "{}"), ToolCall("c1.2", "now", "{}"))
    asked = body(request(user_message("Hi"), Assistant(calls), *(ToolResult(call.id, (Text("x"),)) for call in calls)))
    assert asked["tools"] == [
        {"name": "docs__search", "input_schema": {"type": "object"}},
        {"name": "now", "input_schema": {"type": "object"}},
    ]
    assert asked["tool_choice"] == {"type": "none"}


def test_supported_output_schema_is_sent_as_format() -> None:
    asked = body(request(output=TRIAGE))
    assert asked["output_config"] == {"format": {"type": "json_schema", "schema": TRIAGE}}
    assert asked["system"] == "Be brief."


@pytest.mark.parametrize(("name", "schema"), [(HAIKU, LOOSE), ("claude-opus-4-1", TRIAGE), ("some-model", TRIAGE)])
def test_unsupported_output_schema_is_sent_in_the_instructions(name: str, schema: dict[str, Any]) -> None:
    asked = body(request(name=name, output=schema))
    assert "output_config" not in asked
    start, _, told = asked["system"].partition(f"\n\n{SCHEMA_GUIDANCE}")
    assert (start, json.loads(told)) == ("Be brief.", schema)
    assert body(request(name=name, output=schema, instructions=""))["system"].startswith(SCHEMA_GUIDANCE)


def test_empty_instructions_are_not_sent() -> None:
    assert "system" not in body(request(instructions=""))


# --- problems ----------------------------------------------------------------------------------------------


def problems(**more: Any) -> list[str]:
    return exchange.problems(CODEC, request(**more))


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({}, []),
        ({"seed": 1}, ["model.seed"]),
        ({"stop": ["a", " "]}, ["model.stop"]),
        ({"temperature": 1.0}, []),
        ({"temperature": 1.01}, ["model.temperature"]),
        ({"temperature": 0.5, "name": "claude-opus-4-6"}, []),
        ({"temperature": 1.0, "name": "claude-opus-4-7"}, ["model.temperature"]),
        ({"top_p": 0.5, "name": "claude-fable-5"}, ["model.top_p"]),
        ({"temperature": 0.5, "top_p": 0.5}, ["model.top_p"]),
        ({"temperature": 0.5, "top_p": 0.5, "name": "claude-opus-4-0"}, []),
        ({"temperature": 0.9, "reasoning": "low"}, ["model.temperature"]),
        ({"temperature": 1.0, "reasoning": "low"}, []),
        ({"temperature": 0.9, "reasoning": "none"}, []),
        ({"top_p": 0.94, "reasoning": "low"}, ["model.top_p"]),
        ({"top_p": 0.95, "reasoning": "low"}, []),
        ({"reasoning": "none", "name": "claude-opus-5"}, []),
        ({"reasoning": "none", "name": "claude-opus-5-5"}, ["model.reasoning"]),
        ({"reasoning": "none", "name": "claude-mythos-preview"}, ["model.reasoning"]),
        ({"reasoning": "high", "max_output_tokens": 10_000}, ["model.max_output_tokens"]),
        ({"reasoning": "high", "max_output_tokens": 10_001}, []),
        ({"reasoning": "high", "max_output_tokens": 100, "name": "claude-opus-5"}, []),
        ({"tool_choice": "required"}, []),
        ({"tool_choice": "required", "reasoning": "low"}, ["model.tool_choice"]),
        ({"tool_choice": "now", "reasoning": "low"}, ["model.tool_choice"]),
        ({"tool_choice": "none", "reasoning": "low"}, []),
        ({"tool_choice": "required", "name": "claude-sonnet-5-5", "reasoning": "none"}, ["model.tool_choice"]),
        ({"tool_choice": "required", "name": "claude-haiku-5-5"}, ["model.tool_choice"]),
        ({"tool_choice": "required", "name": "claude-haiku-5-5", "reasoning": "none"}, []),
    ],
)
def test_unsupported_settings_are_problems(more: dict[str, Any], keys: list[str]) -> None:
    assert problems(**more) == keys


@pytest.mark.parametrize("key", sorted(ANTHROPIC_FIELDS))
def test_options_cannot_override_fields_of_the_codec(key: str) -> None:
    asked = request(route={"options": {key: "x", "top_k": 1}})
    assert exchange.problems(CODEC, asked) == [f"model.options cannot set {key}"]
    with pytest.raises(PackageError) as caught:
        encode(CODEC, asked)
    assert caught.value.fields["pointer"] == f"/model/options/{key}"


def test_every_sent_field_is_reserved() -> None:
    every: dict[str, Any] = {"top_p": 1.0, "stop": ["a"], "max_output_tokens": 99, "reasoning": "high", "stream": True}
    asked = request(output=TRIAGE, tools=(SEARCH,), tool_choice="none", **every)
    assert body(asked).keys() <= ANTHROPIC_FIELDS


def test_tools_with_clashing_names_or_schemas_are_problems() -> None:
    made = package(tools={"a.b": _tool({}), "a__b": _tool({"type": "object", "anyOf": []})}).tools
    asked = request()
    found = CODEC.problems(asked.settings, asked.route, made, output=False)
    assert [problem.split(":")[0] for problem in found] == ["tools", "tools.a__b.args"]


def test_mcp_tools_with_clashing_names_or_schemas_are_problems() -> None:
    made = package(
        tools={"a": mcp_tool("b", pinned=pins("b", args={"type": "object", "oneOf": []})), "a__b": _tool({})}
    )
    asked = request()
    found = CODEC.problems(asked.settings, asked.route, made.tools, output=False)
    assert [problem.split(":")[0] for problem in found] == ["tools", "tools.a.b.args"]


def _tool(args: dict[str, Any]) -> dict[str, Any]:
    fixed = {"effect": "read", "parallel": True, "timeout": 1, "visible": None, "observation": False, "terminal": False}
    source = {"module": "m", "function": "f", "source": "s", "isolation": "thread", "actions": {}, "description": ""}
    return {"kind": "python", "aborts_siblings": False, "on_denied": "tell", "args": args, **fixed, **source}


def test_request_without_special_settings_has_no_problems() -> None:
    tools: dict[str, Tool] = {}
    asked = request()
    assert CODEC.problems(asked.settings, asked.route, tools, output=True) == []
