"""Import rules between the packages of agentrun.

Rule 1  Imports go strictly downwards through LAYERS. Packages of one layer do not know each other.
Rule 2  The driver sees the core, the ports and the world that is made of them, nothing else of the engine.
Rule 3  No import cycles, and a late import does not excuse one.
Rule 4  A late import stands in `cli/`, in the public surface, or beside its reason.
"""

from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .layers import GROUND, layer, part, under
from .sources import Module, Tree, assert_no_findings, imports, plant, product

DRIVER_SEES = (
    "agentrun.core",
    "agentrun.engine.ports",
    "agentrun.engine.world",
    *(f"agentrun.{name}" for name in GROUND),
)
LATE_PLACES = ("agentrun.cli",)


def upward_imports(tree: Tree) -> list[str]:
    found = []
    for module in tree.values():
        here = layer(module.name)
        if here is None:
            found.append(module.at(1, f"`{part(module.name)}` has no place in LAYERS"))
            continue
        for item in imports(module, tree):
            if not under(item.target, "agentrun") or (part(item.target) == part(module.name) != ""):
                continue
            there = layer(item.target)
            downwards = there is not None and there > here
            if not downwards and not {part(module.name), part(item.target)} <= GROUND:
                found.append(module.at(item.line, f"must not import {item.target}"))
    return found


def forbidden_driver_imports(tree: Tree) -> list[str]:
    return [
        module.at(item.line, f"the driver must not know {item.target}")
        for module in tree.values()
        if module.name == "agentrun.engine.driver"
        for item in imports(module, tree)
        if under(item.target, "agentrun") and not under(item.target, *DRIVER_SEES)
    ]


def import_cycle(tree: Tree) -> list[str]:
    graph = {module.name: {item.target for item in imports(module, tree)} for module in tree.values()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def late(tree: Tree) -> list[str]:
    return [
        module.at(item.line, f"late import of {item.target} without `# late: reason`")
        for module in tree.values()
        if module.name != "agentrun" and not under(module.name, *LATE_PLACES)
        for item in imports(module, tree)
        if item.late and not _reason(module, item.line)
    ]


def _reason(module: Module, line: int) -> str:
    return module.lines[line - 1].partition("# late:")[2].strip()


@pytest.mark.parametrize("checker", [upward_imports, forbidden_driver_imports, import_cycle, late])
def test_product_keeps_the_import_rules(checker: Callable[[Tree], list[str]]) -> None:
    assert_no_findings(checker(product()))


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("core/decide.py", "from agentrun.engine import driver"),
        ("core/decide.py", "import agentrun.spec.document_loader"),
        ("spec/document_loader.py", "from agentrun import core"),
        ("tools/http.py", "from agentrun.store.locks import lock"),
        ("journal/storage.py", "def f():\n    from agentrun.net import client"),
        ("journal/storage.py", "from ..net import sender"),
        ("wire.py", "from agentrun.core.facts import Fact"),
        ("engine/driver.py", "from agentrun import Agent"),
        ("engine/driver.py", "importlib.import_module('agentrun.cli')"),
        ("novel/thing.py", ""),
        ("engine/driver.py", "import agentrun.novel"),
    ],
)
def test_upward_imports_are_found(tmp_path: Path, where: str, text: str) -> None:
    assert len(upward_imports(plant(tmp_path, {where: text}))) == 1


def test_downward_imports_are_allowed(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from agentrun.engine.runtime import Agent",
        "cli/__init__.py": "from agentrun.core import facts\nimport agentrun.errors, json",
        "core/__init__.py": "",
        "core/facts.py": "from agentrun.core import state\nfrom agentrun.wire import HttpCall",
        "canonical_json.py": "from agentrun.errors import Fault",
        "spec/document_loader.py": "if TYPE_CHECKING:\n    from agentrun.cli import main",
    }
    assert upward_imports(plant(tmp_path, files)) == []


def test_forbidden_driver_imports_are_found(tmp_path: Path) -> None:
    text = "from agentrun.core.decide import decide\nfrom agentrun.engine import ports, events\n"
    tree = plant(tmp_path, {"engine/driver.py": text, "engine/ports.py": "", "engine/events.py": ""})
    assert forbidden_driver_imports(tree) == [
        "agentrun.engine.driver:2: the driver must not know agentrun.engine.events"
    ]


def test_import_cycle_is_found(tmp_path: Path) -> None:
    tree = plant(
        tmp_path,
        {
            "core/__init__.py": "",
            "core/a.py": "from agentrun.core import b",
            "core/b.py": "def f():\n    from agentrun.core.a import A",
        },
    )
    (found,) = import_cycle(tree)
    assert sorted(set(found.split(" imports "))) == ["agentrun.core.a", "agentrun.core.b"]


def test_late_import_without_a_reason_is_found(tmp_path: Path) -> None:
    text = "def f():\n    import mcp\n    import mcp  # late:\n    import mcp  # late: an extra\n"
    tree = plant(tmp_path, {"tools/mcp.py": text, "cli/run.py": text})
    assert [found.split(": ")[0] for found in late(tree)] == ["agentrun.tools.mcp:2", "agentrun.tools.mcp:3"]
