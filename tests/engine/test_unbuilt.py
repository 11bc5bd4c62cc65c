"""Keys of a package that nothing implements yet: listed here, refused there."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.engine.unbuilt import UNBUILT, refuse_unbuilt, unbuilt, unbuilt_problems
from agentrun.errors import HostError
from agentrun.spec.document import parse
from agentrun.spec.problems import Problem, Source
from agentrun.spec.tree import Mapping

from ..packages import ROUTE, package

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
RULE: dict[str, Any] = {
    "id": "r",
    "ruling": "deny",
    "targets": [],
    "on": "input",
    "when": None,
    "set": {},
    "mask": [],
    "reason": None,
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
REDACTION = {"name": "n", "path": "a", "pattern": None}

ASKING: dict[str, dict[str, Any]] = {
    "tools": {"tools": {"lookup": HTTP}},
    "policy.rules": {"policy": {"rules": [RULE]}},
    "model.stream": {"model": {"stream": True}},
    "model.fallback": {"model": {"routes": [ROUTE, ROUTE]}},
    "budgets.cost": {"budgets": {"cost": 1000}},
    "budgets.time": {"budgets": {"time": 1000}},
    "budgets.grace": {"budgets": {"grace": 1}},
    "guards.empty_outcome": {"guards": {"empty_outcome": 0}},
    "context.overflow": {"context": {"overflow": "compact"}},
    "admission.dedupe": {"admission": {"dedupe": True}},
    "sinks": {"sinks": {"out": {"kind": "stdout", "delivery": "required", "timeout": 1000}}},
    "hooks": {"hooks": [HOOK]},
    "replay.redact": {"replay": {"redact": [REDACTION]}},
    "replay.volatile": {"replay": {"volatile": ["user"]}},
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
    both = package(**ASKING["hooks"], **ASKING["model.stream"])
    assert unbuilt(both) == ["model.stream", "hooks"]


def test_the_rest_runs() -> None:
    refuse_unbuilt(package())
    disabled = {"out": {"kind": "stdout", "delivery": "disabled", "timeout": 1000}}
    assert unbuilt(package(sinks=disabled, budgets={"tool_calls": 1, "tokens": 1000})) == []


# --- specs as they are written -----------------------------------------------------------------------------


def problems(text: str) -> list[Problem]:
    root = parse(Source(Path("/project/a.yaml"), "a.yaml", text))
    assert isinstance(root, Mapping)
    return unbuilt_problems(root)


WRITTEN: dict[str, Any] = {
    "tools": {"lookup": {"kind": "http"}},
    "policy.rules": [{"id": "r", "deny": "*"}],
    "model.stream": True,
    "model.fallback": ["openai/gpt-4.1"],
    "budgets.cost": 0.5,
    "budgets.time": "2m",
    "budgets.grace": 1,
    "guards.empty_outcome": 0,
    "context.overflow": "compact",
    "admission.dedupe": True,
    "sinks": {"out": {"kind": "stdout"}, "off": {"kind": "stdout", "delivery": "disabled"}},
    "hooks": [{"id": "h"}],
    "replay.redact": [{"name": "n"}],
    "replay.volatile": ["user"],
}
HARMLESS: dict[str, Any] = {
    "tools": {},
    "policy.rules": [],
    "model.stream": False,
    "model.fallback": [],
    "guards.empty_outcome": False,
    "context.overflow": "fail",
    "admission.dedupe": False,
    "sinks": {"off": {"kind": "stdout", "delivery": "disabled"}},
    "hooks": [],
}


def written(key: str, value: Any) -> str:
    *above, last = key.split(".")
    data = {last: value}
    for name in reversed(above):
        data = {name: data}
    return yaml.safe_dump({"agentrun": "1", **data}, sort_keys=False)


def test_specs_and_packages_are_refused_alike() -> None:
    assert list(WRITTEN) == list(UNBUILT)


@pytest.mark.parametrize("key", WRITTEN)
def test_problem(key: str) -> None:
    text = written(key, WRITTEN[key])
    (problem,) = problems(text)
    assert problem.code == "spec.not_built"
    assert key in problem.message
    assert text.splitlines()[problem.line - 1].strip().startswith(key.rpartition(".")[2])


@pytest.mark.parametrize("key", HARMLESS)
def test_no_problem(key: str) -> None:
    assert problems(written(key, HARMLESS[key])) == []


def test_no_problem_without_the_key() -> None:
    assert problems("agentrun: '1'\nmodel: {name: a}\n") == []
