"""Which tools of MCP servers can be pinned, and what a pin contains."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.canonical_json import sorted_json
from agentrun.compiler.lock_file import UnusableSchema, adopt_schema, escape_invisible_lines
from agentrun.core.json_validation import schema_validator
from agentrun.core.package_tools import PinnedTool
from agentrun.spec.problems import DocumentError, escape_invisible

from ..locks import DIGEST
from .mcp_desk import McpDesk, pins, reload_pins, tool


def tool_with_schema(**schema: Any) -> dict[str, Any]:
    return tool("t", schema={"type": "object", **schema})


def nest_schema(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


HEAVY = [
    tool(f"t{index}", schema={"type": "object", "properties": {"p": {"pattern": f"(a|b){{900}}{index}"}}})
    for index in range(200)
]
UNPINNABLE: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "recursive": ([tool_with_schema(properties={"x": {"$ref": "#"}})], {}, "is circular"),
    "remote": ([tool_with_schema(properties={"x": {"$ref": "http://a.example/"}})], {}, "other files or hosts"),
    "file": ([tool_with_schema(properties={"x": {"$ref": "file:///etc/passwd"}})], {}, "other files or hosts"),
    "deep": ([tool("t", schema=nest_schema(13))], {}, "is nested deeper than 24 levels"),
    "very deep": ([tool("t", schema=nest_schema(60))], {}, "is nested deeper than 24 levels"),
    "huge": ([tool_with_schema(enum=["x" * 70_000])], {}, "is larger than 65,536 bytes"),
    "doubling": (
        [
            tool_with_schema(
                properties={"x": {"$ref": "#/$defs/d0"}},
                **{"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}},
            )
        ],
        {},
        "the schema has more than",
    ),
    "no object": ([tool("t", schema={"type": "string"})], {}, "the reply does not follow the protocol"),
    "no schema": ([tool_with_schema(properties={"x": {"type": "sting"}})], {}, '"sting" is not a JSON type'),
    "long": ([tool("t", "x" * 20_000)], {}, "longer than 16,384 bytes"),
    "name": ([tool("a b")], {}, "is not a valid tool name"),
    "no name": ([tool("")], {}, "is not a valid tool name"),
    "slash": ([tool("fine"), tool("a/b")], {}, 'of "srv" cannot be pinned: "a/b" is not a valid tool name'),
    "backslash": ([tool("a\\b")], {}, "is not a valid tool name"),
    "parent": ([tool("..")], {}, '".." is not a valid tool name'),
    "parent inside": ([tool("a..b")], {}, "single dots between them"),
    "hidden file": ([tool(".a")], {}, "is not a valid tool name"),
    "dot at the end": ([tool("a.")], {}, "is not a valid tool name"),
    "end of a C string": ([tool("a\0b")], {}, '"a\\x00b" is not a valid tool name'),
    "escape": ([tool("a\x1b[2J")], {}, '"a\\x1b[2J" is not a valid tool name'),
    "colon": ([tool("c:a")], {}, "is not a valid tool name"),
    "long name": ([tool("a" * 129)], {}, "up to 128"),
    "case": ([tool("Find"), tool("find")], {}, 'of "srv" cannot be pinned: srv.Find and srv.find differ only by case'),
    "case on the wire": ([tool("a.B"), tool("a__b")], {}, "srv.a.B and srv.a__b differ only by case"),
    "case of long names": ([tool("a" * 100), tool("A" + "a" * 99)], {}, "differ only by case"),
    "one on the wire": ([tool("a.b"), tool("a__b")], {}, "srv.a.b and srv.a__b would both be called srv__a__b"),
    "twice": ([tool("a"), tool("a")], {}, "it lists the tool 'a' twice"),
    "too many": (
        [tool(f"t{n}") for n in range(10_000)],
        {},
        "`tools` names 10,000 of its tools, but at most 256 can be",
    ),
    "far too many": ([tool(f"t{n}") for n in range(20_001)], {}, "it lists more than 20,000 tools"),
    "none": ([tool("a")], {"tools": ["b*"]}, "it has no tool that `tools` names"),
    "missing": ([tool("search")], {"tools": ["serch"]}, 'it has no tool "serch"'),
    "heavy": (HEAVY, {}, "all patterns together are too large"),
    "large": ([tool(f"t{n}", "x" * 16_000) for n in range(80)], {}, "1 MiB"),
}


@pytest.mark.parametrize("name", UNPINNABLE)
def test_unusable_tools_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    tools, server, message = UNPINNABLE[name]
    desk = McpDesk(tmp_path, plan={"tools": tools}, locked=False, **server)
    with pytest.raises(DocumentError) as caught:
        pins(desk)
    assert message in caught.value.problems[0].message, caught.value.problems
    assert caught.value.problems[0].place.source.path.name in ("desk.yaml", "desk.lock")


def test_valid_names_are_pinned_and_unselected_names_ignored(tmp_path: Path) -> None:
    """The other side of each rule for names. Tools that the agent may not see may have any name."""
    names = ["a", "A-b_9", "docs.search.v2", "-", "_", "a" * 128]
    others = ["a/b", "..", "a\0b", "A"]
    desk = McpDesk(tmp_path, *names, *others, locked=False, tools=names)
    assert sorted(pins(desk)["srv"]) == sorted(names)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("hangs", "it did not answer within 300 ms"),
        ("exits", "it ended with exit code 2: no licence"),
        ("garbage", "it wrote something that is not a message: Welcome!"),
    ],
)
def test_server_that_does_not_start_is_reported(tmp_path: Path, start: str, message: str) -> None:
    limit = "300ms" if start == "hangs" else "60s"
    desk = McpDesk(tmp_path, "t", plan={"start": start}, locked=False, start_timeout=limit)
    with pytest.raises(DocumentError) as caught:
        pins(desk)
    (problem,) = caught.value.problems
    assert problem.message == f'the tools of "srv" cannot be pinned: the server did not start: {message}'


def test_tools_of_all_pages_are_pinned(tmp_path: Path) -> None:
    desk = McpDesk(tmp_path, *(f"t{index:03}" for index in range(95)), plan={"page": 10}, locked=False)
    assert list(pins(desk)["srv"]) == [f"t{index:03}" for index in range(95)]
    assert len(desk.asked("tools/list")) == 10


def test_foreign_dialects_and_keywords_are_adopted(tmp_path: Path) -> None:
    """Dialects, keywords and patterns that are not ours are no reason to refuse a server."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://a.example/x",
        "x-vendor": {"a": 1},
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date", "nullable": True, "pattern": "^(?=a)b$", "title": "a\u200bb"},
            "size": {"type": "integer", "maximum": 9223372036854775807, "exclusiveMinimum": 0},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
            "more": {"type": "object", "patternProperties": {"(?!x)": {}}, "additionalProperties": False},
            "sign": {"enum": ["\t", "\u2028", "é"]},
            "it": {"$ref": "#/definitions/It"},
        },
        "definitions": {"It": {"const": 1}},
    }
    desk = McpDesk(tmp_path, plan={"tools": [tool("t", schema=schema) | {"inputSchema": schema}]}, locked=False)
    args = pins(desk)["srv"]["t"].args
    assert args == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date", "title": "a\\u200bb"},
            "size": {"type": "integer", "maximum": 9223372036854775807.0, "exclusiveMinimum": 0},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
            "more": {"type": "object"},
            "sign": {"enum": ["\t", "\u2028", "é"]},
            "it": {"const": 1},
        },
    }


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(TEXTS)
def test_pinned_description_is_visible_text_and_survives_the_lock_file(text: str) -> None:
    """And a person can see all of it."""
    shown = escape_invisible_lines(text)
    assert all(escape_invisible(line.replace("\t", "")) == line.replace("\t", "") for line in shown.split("\n"))
    pin = PinnedTool(description=shown, args={"type": "object"}, digest=DIGEST)
    assert reload_pins({"srv": {"t": pin}})["srv"]["t"] == pin


@given(
    st.dictionaries(st.sampled_from(["properties", "enum", "const", "default", "description", "x", "not"]), JSON_VALUES)
)
def test_any_schema_is_refused_or_can_be_used(schema: dict[str, Any]) -> None:
    try:
        args = adopt_schema(schema)
    except UnusableSchema:
        return
    schema_validator(sorted_json(args))
    pin = PinnedTool(description="", args=args, digest=DIGEST)
    assert reload_pins({"srv": {"t": pin}})["srv"]["t"] == pin


@given(JSON_VALUES)
def test_any_value_as_schema_is_refused_or_adopted(value: Any) -> None:
    try:
        adopt_schema(value)
    except UnusableSchema:
        return


def test_a_value_of_the_environment_is_never_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a description nor in a schema, however it is written there."""
    value = "Zq8-hunter2-Zq8-hunter2"
    monkeypatch.setenv("SHOP_TOKEN", value)
    tools = [
        tool("a", f"Logs in with {value}."),
        tool_with_schema(default={"key": value}) | {"name": "b"},
        tool("c", f"Logs in with {b64encode(value.encode()).decode()}."),
        tool("d"),
    ]
    desk = McpDesk(tmp_path, plan={"tools": tools}, locked=False, env={"TOKEN": "${SHOP_TOKEN}"})
    with pytest.raises(DocumentError) as caught:
        pins(desk)
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == 3
    for name, message in zip("abc", messages, strict=True):
        assert message.endswith(f'the description or schema of "{name}" contains a secret value of the environment')
    assert value not in str(messages)
