"""Worlds are created in one package and runs begin in one module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .layers import under
from .sources import Module, Tree, assert_no_findings, plant, product

WORLDS = "agentrun.engine.worlds"
BEGIN = "agentrun.engine.begin"
TYPE_FIELDS = {
    (ast.AnnAssign, "annotation"),
    (ast.arg, "annotation"),
    (ast.FunctionDef, "returns"),
    (ast.AsyncFunctionDef, "returns"),
    (ast.MatchClass, "cls"),
    (ast.Dict, "keys"),
}
"""Where a name is only compared with, or read by a type checker."""


def values_elsewhere(tree: Tree, name: str, place: str) -> list[str]:
    """Calls of a class or function, and uses as a value, which could be called later, outside its only place."""
    return [
        module.at(line, f"{name} outside {place}")
        for module in tree.values()
        if name in module.text and not under(module.name, place)
        for line in _values(module.tree, name, _local_names(module, name))
    ]


def _local_names(module: Module, name: str) -> set[str]:
    """The name, and what it is called in a module that imports it under an alias."""
    imports = (node for node in module.nodes if isinstance(node, ast.ImportFrom))
    return {name, *(alias.asname for node in imports for alias in node.names if alias.name == name and alias.asname)}


def _values(node: ast.AST, name: str, names: set[str]) -> Iterator[int]:
    match node:
        case ast.Name(id=id) if id in names:
            yield node.lineno
        case ast.Attribute(attr=attribute) if attribute == name:
            yield node.lineno
    for field, value in ast.iter_fields(node):
        if (type(node), field) in TYPE_FIELDS or _is_type(node, field):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _values(child, name, names)


def _is_type(node: ast.AST, field: str) -> bool:
    match node:
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return field == "value"
        case ast.Call(func=ast.Name(id="isinstance")):
            return field == "args"
        case ast.BinOp(op=ast.BitOr()):
            return True
    return False


@pytest.mark.parametrize(("name", "place"), [("World", WORLDS), ("make_run_started", BEGIN), ("RunStarted", BEGIN)])
def test_worlds_and_runs_are_created_in_one_place(name: str, place: str) -> None:
    assert_no_findings(values_elsewhere(product(), name, place))


@pytest.mark.parametrize(
    "text",
    [
        "World(clock=1)",
        "world.World(clock=1)",
        "make = World",
        "make = world.World",
        "from agentrun.engine.world import World as W; W(clock=1)",
        "from agentrun.engine.world import World as W; make = partial(W, clock=1)",
        "from agentrun.engine import world as w; w.World(clock=1)",
        "import agentrun.engine.world as w; worlds = [w.World]",
        "def make(kind=World): ...",
        "same = isinstance(made, World), World(clock=1)",
    ],
)
def test_value_outside_its_place_is_found(tmp_path: Path, text: str) -> None:
    tree = plant(tmp_path, {"engine/runtime.py": text, "engine/worlds/live.py": text})
    assert values_elsewhere(tree, "World", WORLDS) == [f"agentrun.engine.runtime:1: World outside {WORLDS}"]


@pytest.mark.parametrize(
    "text",
    [
        "def use(world: World) -> World: ...",
        "same = isinstance(made, World)",
        "Either: TypeAlias = World | None",
        "table = {World: 1}",
        "match made:\n    case World(): ...",
    ],
)
def test_type_outside_its_place_is_allowed(tmp_path: Path, text: str) -> None:
    assert values_elsewhere(plant(tmp_path, {"engine/runtime.py": text}), "World", WORLDS) == []
