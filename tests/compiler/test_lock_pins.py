"""Pinned tools of MCP servers in a lock: missing pins, invalid pins and changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.compile import compile, compile_spec
from agentrun.compiler.lock_file import escape_invisible_json, parse_lock
from agentrun.compiler.package_diff import describe_pin_changes
from agentrun.core.package_tools import McpTool, PinnedTool
from agentrun.spec.problems import DocumentError, Source

from ..locks import DIGEST, lock_of, pin
from ..projects import agent, find_problems, remove_marks, write_project

HEAD = "policy: {default: allow}\ntools:\n  "


@pytest.mark.parametrize(
    ("server", "messages"),
    [
        ("srv: {kind: mcp, command: [x]}", []),
        ("srv: {kind: mcp, command: [x], tools: [find, 'd*']}", []),
        ("srv: {kind: mcp, command: [x], tools: [find, «fnid]}", ['the lock file has no tool "fnid" of "srv"']),
        (
            "«srv: {kind: mcp, command: [x], tools: ['z*']}",
            ['the lock file has no tool that matches `tools:` of "srv"'],
        ),
        ("«other: {kind: mcp, command: [x]}", ['the tools of "other" are not in the lock']),
        (
            "srv: {kind: mcp, command: [x], tools: [«a, «b]}",
            ['the lock file has no tool "a"', "the lock file has"],
        ),
        ("«srv: {kind: mcp}", ["an MCP server needs either `command` or `url`"]),
    ],
)
def test_tool_that_is_not_pinned_is_reported(tmp_path: Path, server: str, messages: list[str]) -> None:
    text, places = remove_marks(HEAD + server)
    reported = find_problems(tmp_path, text, {"spec.lock": lock_of({"srv": ["find", "drop"]})})
    assert [problem.at for problem in reported] == [f"spec.yaml:{place}" for place in places]
    for problem, message in zip(reported, messages, strict=True):
        assert problem.message.startswith(message)
        assert problem.hint is not None


def test_unpinned_tool_gets_a_hint(tmp_path: Path) -> None:
    text = HEAD + "srv: {kind: mcp, command: [x], tools: [fnid]}"
    (problem,) = find_problems(tmp_path, text, {"spec.lock": lock_of({"srv": ["find", "drop"]})})
    assert problem.hint == 'did you mean "find"?'


def test_mcp_server_without_a_lock_is_reported(tmp_path: Path) -> None:
    path = write_project(tmp_path, {"spec.yaml": agent(HEAD + "srv: {kind: mcp, command: [x]}")})
    (tmp_path / "spec.lock").unlink()
    assert [problem.code for problem in compile_spec(path).problems] == ["spec.unpinned"]


def test_pins_of_unlisted_tools_are_left_out(tmp_path: Path) -> None:
    text = HEAD + "srv: {kind: mcp, command: [x], tools: [find]}"
    path = write_project(
        tmp_path, {"spec.yaml": agent(text), "spec.lock": lock_of({"srv": ["find", "drop"], "gone": ["x"]})}
    )
    package = compile_spec(path).package
    assert package is not None
    server = package.tools["srv"]
    assert isinstance(server, McpTool)
    assert server.pinned == {"find": PinnedTool(**pin())}


def test_pinned_tools_change_the_fingerprint(tmp_path: Path) -> None:
    """Each thing that is pinned is part of the package."""
    changes: list[dict[str, Any]] = [
        {},
        {"description": "Other."},
        {"args": {"type": "object", "title": "t"}},
        {"digest": DIGEST[:-1] + "1"},
    ]
    seen = set()
    for change in changes:
        lock = {"agentrun_lock": "1", "origin": "o", "routes": {}, "servers": {"srv": {"find": pin(**change)}}}
        text = agent(HEAD + "srv: {kind: mcp, command: [x]}")
        seen.add(compile(write_project(tmp_path, {"spec.yaml": text, "spec.lock": json.dumps(lock)})).fingerprint)
    assert len(seen) == len(changes)


DEEP: Any = {"type": "object"}
for _ in range(13):
    DEEP = {"type": "object", "properties": {"x": DEEP}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"a b": pin()}, "is not a valid tool name"),
    "long name": ({"a" * 129: pin()}, "is not a valid tool name"),
    "path": ({"../a": pin()}, '"../a" of "srv" is not a valid tool name'),
    "parent": ({"a..b": pin()}, "is not a valid tool name"),
    "many": ({f"t{index}": pin() for index in range(257)}, "has more than 256 tools"),
    "description": ({"t": pin(description="x" * 16_385)}, "is longer than 16,384 bytes"),
    "digest": ({"t": pin(digest="sha256:0")}, "is invalid"),
    "deep": ({"t": pin(args=DEEP)}, "is nested deeper than 24 levels"),
    "large": ({"t": pin(args={"type": "object", "title": "x" * 65_536})}, "is larger than 65,536 bytes"),
    "no object": ({"t": pin(args={"type": "string"})}, "is not the schema of an object"),
    "reference": ({"t": pin(args={"$ref": "http://a.example/"})}, "cannot refer to other files or hosts"),
    "cycle": ({"t": pin(args={"type": "object", "not": {"$ref": "#"}})}, "is circular"),
    "keyword": ({"t": pin(args={"type": "object", "x": 1})}, "is not a keyword"),
    "pattern": ({"t": pin(args={"type": "object", "properties": {"x": {"pattern": "(?=a)"}}})}, "cannot be used"),
    "unknown": ({"t": pin(more=1)}, "not a lock"),
    "missing": ({"t": {"description": "x"}}, "not a lock"),
    "no mapping": ({"t": []}, "not a lock"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_pin_is_refused(name: str) -> None:
    tools, message = WRONG[name]
    text = json.dumps({"agentrun_lock": "1", "origin": "o", "routes": {}, "servers": {"srv": tools}})
    with pytest.raises(DocumentError) as caught:
        parse_lock(Source(Path("/a.lock"), "a.lock", text))
    assert message in caught.value.problems[0].message


def test_pins_that_differ_only_by_case_are_reported(tmp_path: Path) -> None:
    """It is refused if the agent may see both."""
    lock: dict[str, str | bytes] = {"spec.lock": lock_of({"srv": ["find", "Find"]})}
    (problem,) = find_problems(tmp_path, HEAD + "srv: {kind: mcp, command: [x]}", lock)
    assert "srv.Find and srv.find differ only by case" in problem.message
    assert find_problems(tmp_path, HEAD + "srv: {kind: mcp, command: [x], tools: [find]}", lock) == []


def test_invisible_characters_of_a_lock_are_escaped() -> None:
    text = 'a\n "é 漢 \u202e\u200b\x7f\u2028\U000e0041 👋"'
    assert escape_invisible_json(text) == 'a\n "é 漢 \\u202e\\u200b\\u007f\\u2028\\udb40\\udc41 👋"'


def test_pin_changes_are_described() -> None:
    """Every change in words, and none where there is none."""
    old = PinnedTool(
        description="Finds.", args={"type": "object", "properties": {"a": {}, "b": {"type": "string"}}}, digest="1"
    )
    new = PinnedTool(
        description="Finds\nmore.", args={"type": "object", "properties": {"b": {"type": "number"}}}, digest="2"
    )
    other = PinnedTool(description="Finds.", args=old.args, digest="3")
    assert list(describe_pin_changes({"srv": {"t": old}}, {"srv": {"t": old}})) == []
    assert list(describe_pin_changes({"srv": {"t": old}}, {"srv": {"t": new}})) == [
        "srv.t.args.properties.a: removed",
        'srv.t.args.properties.b.type: "string" → "number"',
        "srv.t.description: changed\n    @@ -1 +1,2 @@\n    -Finds.\n    +Finds\n    +more.",
    ]
    assert list(describe_pin_changes({"srv": {"t": old}}, {"srv": {"t": other}})) == [
        "srv.t: changed, but not in what a model reads"
    ]
    assert list(describe_pin_changes({"a": {}, "srv": {"t": old}}, {"b": {}, "srv": {"u": old}})) == [
        "a: removed",
        "b: added",
        "srv.t: removed",
        "srv.u: added",
    ]
