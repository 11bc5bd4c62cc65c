"""Worlds are created in one package and runs begin in one module."""

import ast
from pathlib import Path

import pytest

from .layers import under
from .sources import Tree, assert_no_findings, plant, product

WORLDS = "agentrun.engine.worlds"
BEGIN = "agentrun.engine.begin"


def called_elsewhere(tree: Tree, name: str, place: str) -> list[str]:
    """Calls of a function outside the only place that may call it."""
    return [
        module.at(node.lineno, f"{name}( outside {place}")
        for module in tree.values()
        if not under(module.name, place)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and _name(node.func) == name
    ]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@pytest.mark.parametrize(("name", "place"), [("World", WORLDS), ("make_run_started", BEGIN), ("RunStarted", BEGIN)])
def test_worlds_and_runs_are_created_in_one_place(name: str, place: str) -> None:
    assert_no_findings(called_elsewhere(product(), name, place))


@pytest.mark.parametrize("text", ["World(clock=1)", "world.World(clock=1)"])
def test_call_outside_its_place_is_found(tmp_path: Path, text: str) -> None:
    tree = plant(tmp_path, {"engine/runtime.py": text, "engine/worlds/live.py": text})
    assert called_elsewhere(tree, "World", WORLDS) == [f"agentrun.engine.runtime:1: World( outside {WORLDS}"]
