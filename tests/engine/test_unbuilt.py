"""Keys of a package that nothing implements yet: listed here, refused there."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.engine.unbuilt import BUILT, UNBUILT, refuse_unbuilt, unbuilt, unbuilt_problems
from agentrun.errors import HostError
from agentrun.spec.document import parse
from agentrun.spec.problems import Problem, Source
from agentrun.spec.tree import Mapping

from ..packages import package

HTTP = {
    "kind": "http",
    "description": "Looks an order up.",
    "effect": "read",
    "parallel": True,
    "timeout": 1000,
    "visible": None,
    "observation": False,
    "terminal": False,
    "aborts_siblings": False,
    "on_denied": "tell",
    "args": {},
    "actions": {},
    "url": "https://shop.example",
    "method": "GET",
    "query": {},
    "headers": {},
    "body": None,
    "auth": None,
    "result": None,
    "hosts": [],
    "private_network": False,
    "max_bytes": 1000,
}
HOOK = {
    "id": "h",
    "at": "on_input",
    "module": "m",
    "function": "f",
    "source": "sha256:0",
    "order": 0,
    "timeout": 1000,
    "on_failure": "deny",
}

ASKING: dict[str, dict[str, Any]] = {
    "tools": {"tools": {"lookup": HTTP}},
    "sinks": {"sinks": {"out": {"kind": "stdout", "delivery": "required", "timeout": 1000}}},
    "hooks": {"hooks": [HOOK]},
}


def test_list() -> None:
    """Shorten this list with the part that implements a key. It may not grow."""
    assert list(ASKING) == list(UNBUILT)


@pytest.mark.parametrize("key", ASKING)
def test_refused(key: str) -> None:
    with pytest.raises(HostError) as caught:
        refuse_unbuilt(package(**ASKING[key]))
    assert (caught.value.code, caught.value.fields) == ("host.missing", {"name": key, "keys": [key]})
    assert key in caught.value.message


def test_all_at_once() -> None:
    both = package(**ASKING["hooks"], **ASKING["tools"])
    assert unbuilt(both) == ["tools", "hooks"]


def test_the_rest_runs() -> None:
    refuse_unbuilt(package())
    disabled = {"out": {"kind": "stdout", "delivery": "disabled", "timeout": 1000}}
    assert unbuilt(package(sinks=disabled, budgets={"tool_calls": 1, "tokens": 1000})) == []


# --- specs as they are written -----------------------------------------------------------------------------

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "agent.schema.json").read_text())

NOT_BUILT = ["hooks", "sinks", "limits.depth"]
"""Shorten this list with the part that implements a key. It may not grow."""


def keys() -> list[str]:
    """Every key of the spec language, down to the keys of its sections."""
    found = []
    for key, part in SCHEMA["properties"].items():
        section = SCHEMA["$defs"].get(part.get("$ref", "").rpartition("/")[2] or key.title(), {})
        below = BUILT.get(key)
        found += [f"{key}.{name}" for name in section["properties"]] if below is not None else [key]
    return found


def problems(text: str) -> list[Problem]:
    root = parse(Source(Path("/project/a.yaml"), "a.yaml", text))
    assert isinstance(root, Mapping)
    return unbuilt_problems(root)


def written(key: str) -> str:
    first, _, second = key.partition(".")
    return f"{first}:\n  {second}: 1\n" if second else f"{first}: {{a: 1}}\n"


def test_every_key_is_built_or_listed() -> None:
    refused = [key for key in keys() if problems(written(key))]
    assert sorted(refused) == sorted(NOT_BUILT)


@pytest.mark.parametrize("key", NOT_BUILT)
def test_problem_at_the_key(key: str) -> None:
    (problem,) = problems(written(key))
    assert (problem.code, problem.line, problem.column) == (
        "spec.not_built",
        1 + key.count("."),
        1 + 2 * key.count("."),
    )
    assert key in problem.message


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ("kind: python", []),
        ("kind: python, isolation: thread", []),
        ("kind: python, isolation: process", ["isolation: process"]),
        *((f"kind: {kind}", [f"a tool of kind {kind}"]) for kind in ("http", "shell", "mcp", "agent")),
    ],
)
def test_tools_by_kind(tool: str, found: list[str]) -> None:
    assert [each.message.partition(" cannot")[0] for each in problems(f"tools:\n  t: {{{tool}}}\n")] == found


def test_an_empty_section_asks_for_nothing() -> None:
    assert problems("tools: {}\nhooks: []\n") == []


def test_built_names_only_keys_that_exist() -> None:
    assert set(BUILT) <= set(SCHEMA["properties"])
    named = {f"{key}.{name}" for key, inner in BUILT.items() for name in inner or ()}
    assert named <= set(keys())
