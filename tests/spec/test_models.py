"""The models of the spec language: documentation, safe unions and defaults."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Struct

import agentrun.compiler
import agentrun.core
import agentrun.journal
import agentrun.spec
from agentrun.spec.v1.agent import Agent

from ..schemas import ROOT

DOCUMENTED = sorted(
    [*(ROOT / "runner/agentrun/spec/v1").glob("*.py"), *(ROOT / "runner/agentrun/core").glob("package*.py")]
)


def undocumented(source: str) -> Iterator[str]:
    """The fields of classes that have no text under them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for field, text in pairwise([*node.body, ast.Pass()]):
                described = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                if isinstance(field, ast.AnnAssign) and not described:
                    yield f"{node.name}.{ast.unparse(field.target)}"


@pytest.mark.parametrize("path", DOCUMENTED, ids=lambda path: path.stem)
def test_fields_are_documented(path: Path) -> None:
    assert list(undocumented(path.read_text(encoding="utf-8"))) == []


def test_undocumented_field_is_found() -> None:
    assert list(undocumented('class A:\n    x: int\n    """Fine."""\n    y: int\n    z: int\n    """Fine."""\n')) == [
        "A.y"
    ]
    assert list(undocumented("class A:\n    x: int = 1\n")) == ["A.x"]


# --- unions that break msgspec ------------------------------------------------------------------------------

_COLLECTIONS = (
    msgspec.inspect.CollectionType,
    msgspec.inspect.TupleType,
    msgspec.inspect.DictType,
    msgspec.inspect.TypedDictType,
)


def is_unsafe_union(info: Any) -> bool:
    """Has a type a union of a text that has a pattern with a list or dict? msgspec 0.22 frees the pattern twice."""
    inside = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    inside += [getattr(info, slot, None) for slot in ("type", "item_type", "key_type", "value_type")]
    patterns = [one for one in inside if isinstance(one, msgspec.inspect.StrType) and one.pattern]
    if (
        isinstance(info, msgspec.inspect.UnionType)
        and patterns
        and any(isinstance(one, _COLLECTIONS) for one in inside)
    ):
        return True
    return any(is_unsafe_union(one) for one in inside if isinstance(one, msgspec.inspect.Type))


def unsafe_union_fields(model: type[Struct]) -> Iterator[str]:
    """The fields of a model that have such a union."""
    try:
        info = msgspec.inspect.type_info(model)
    except TypeError:
        return  # a union that msgspec cannot decode at all: such a struct is only ever made by hand
    assert isinstance(info, msgspec.inspect.StructType)
    yield from (f"{model.__name__}.{field.name}" for field in info.fields if is_unsafe_union(field.type))


def models(*packages: ModuleType) -> list[type[Struct]]:
    """Every struct that is defined in these packages."""
    names = [
        found.name for package in packages for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    found = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return sorted(
        {one for one in found if inspect.isclass(one) and issubclass(one, Struct) and one is not Struct}, key=str
    )


ALL = models(agentrun.spec, agentrun.core, agentrun.journal, agentrun.compiler)


def test_no_model_has_an_unsafe_union() -> None:
    assert len(ALL) > 80, "the search no longer finds the models"
    assert [where for model in ALL for where in unsafe_union_fields(model)] == []


TEXT = msgspec.inspect.StrType(pattern="^a$")
LIST = msgspec.inspect.ListType(msgspec.inspect.IntType())
MAP = msgspec.inspect.DictType(msgspec.inspect.StrType(), TEXT)
UNION = msgspec.inspect.UnionType
# Made by hand: asking msgspec for a type like these would free a pattern twice in this process.
PLANTED_UNIONS = [UNION((TEXT, LIST)), UNION((MAP, TEXT)), msgspec.inspect.ListType(UNION((TEXT, LIST)))]
HARMLESS = [UNION((TEXT, msgspec.inspect.IntType())), UNION((msgspec.inspect.StrType(min_length=1), LIST)), LIST, MAP]


def test_unsafe_union_is_found() -> None:
    assert [is_unsafe_union(info) for info in PLANTED_UNIONS] == [True, True, True]
    assert [is_unsafe_union(info) for info in HARMLESS] == [False, False, False, False]


# --- defaults -----------------------------------------------------------------------------------------------

SMALLEST: dict[str, Any] = {
    "agentrun": "1",
    "name": "a",
    "model": {"provider": "p", "name": "m"},
    "instructions": "x",
    "tools": {
        "python": {"kind": "python", "call": "m:f"},
        "http": {"kind": "http", "url": "https://a.example"},
        "shell": {"kind": "shell", "argv": ["x"]},
        "mcp": {"kind": "mcp"},
        "agent": {"kind": "agent", "spec": "a.yaml"},
    },
    "policy": {"rules": [{"id": "r"}]},
    "sinks": {"sink": {"kind": "stdout"}},
    "hooks": [{"id": "h", "at": "on_stop", "call": "m:f"}],
}

DEFAULTS: dict[str, Any] = {
    # SEMANTICS 2: admission is off unless asked for.
    "admission.max_chars": UNSET,
    "admission.dedupe": False,
    # SEMANTICS 3: budgets, limits, guards.
    "budgets.turns": 20,
    "budgets.on_turns": "fail",
    "budgets.grace": UNSET,
    "budgets.tokens": UNSET,
    "budgets.cost": UNSET,
    "budgets.time": UNSET,
    "budgets.tool_calls": UNSET,
    "limits.parallel_tools": 8,
    "limits.on_oversize_batch": "fail",
    "limits.tool_timeout": "30s",
    "limits.stream_gap": "60s",
    "limits.call_time": "600s",
    "limits.on_truncated": "continue",
    "limits.truncations": 3,
    "guards.repeated_call": 3,
    "guards.cycle": 3,
    "guards.repeated_batch": 2,
    "guards.stagnation": 5,
    "guards.empty_outcome": "off",
    "guards.observation": 15,
    "context.overflow": "fail",
    "context.compaction.failures": 3,
    # SEMANTICS 4: tools.
    "limits.output_lines": 2000,
    "limits.output_bytes": "50KiB",
    **{
        f"tools.{kind}.{key}": value
        for kind in ("python", "http", "shell", "mcp", "agent")
        for key, value in {
            "parallel": UNSET,
            "timeout": UNSET,
            "observation": False,
            "terminal": False,
            "aborts_siblings": False,
            "on_denied": "tell",
        }.items()
    },
    # by kind and method: tests/compiler/test_package_file.py
    **{f"tools.{kind}.effect": UNSET for kind in ("python", "http", "shell", "mcp")},
    "tools.http.method": "GET",
    "tools.http.private_network": False,
    # SEMANTICS 5: providers.
    "retry.attempts": 4,
    "retry.first_delay": "1s",
    "retry.max_delay": "15s",
    "retry.max_wait": "60s",
    "model.stream": False,
    "model.fallback": [],
    # SEMANTICS 6: policy.
    "policy.default": UNSET,
    "policy.approval_timeout": "120s",
    "policy.rules.0.on": "tool_call",
    # SEMANTICS 8: replay.
    "replay.redact": [],
    "replay.volatile": [],
    # SEMANTICS 9: output, sinks, hooks, children.
    "output.schema": UNSET,
    "output.max_bytes": "64KiB",
    "output.max_depth": 24,
    "output.repairs": 2,
    "sinks.sink.delivery": "required",
    "hooks.0.on_failure": "deny",
    "hooks.0.order": 0,
    "limits.depth": 3,
}


@pytest.mark.parametrize("key", DEFAULTS)
def test_default_of_each_key(key: str) -> None:
    value: Any = msgspec.convert(SMALLEST, Agent)
    for step in key.split("."):
        value = (
            value[int(step)]
            if isinstance(value, list)
            else value[step]
            if isinstance(value, dict)
            else getattr(value, step)
        )
    assert value == DEFAULTS[key]
    assert type(value) is type(DEFAULTS[key])


def test_repeated_batch_object_has_the_same_defaults() -> None:
    guards = msgspec.convert({**SMALLEST, "guards": {"repeated_batch": {}}}, Agent).guards
    assert (guards.repeated_batch.limit, guards.repeated_batch.scope) == (2, "consecutive")  # type: ignore[union-attr]  # given as an object
