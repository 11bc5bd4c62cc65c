"""docs/architecture.md shows the enforced layers and names existing files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ..architecture.layers import GROUND, LAYERS
from ..architecture.sources import Module, Tree, plant, product
from .terminal import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "runner" / "agentrun"


def test_the_layers_drawn_are_the_layers_enforced() -> None:
    drawn = PAGE.partition("do not import each other.\n\n```\n")[2].partition("```")[0]
    assert [set(re.findall(r"\w+", line)) for line in drawn.splitlines()] == LAYERS[1:]


def test_every_package_is_described() -> None:
    described = re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE)
    assert described == sorted(described, key=lambda name: next(i for i, each in enumerate(LAYERS) if name in each))
    assert set(described) == set().union(*LAYERS[1:-1])
    assert not set(described) & GROUND


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))))
def test_named_file_exists(path: str) -> None:
    assert (PACKAGE / path).exists() or (ROOT / path).exists()


def reads_environment(module: Module) -> bool:
    return any(
        isinstance(node, ast.Attribute | ast.Name | ast.alias)
        and {getattr(node, key, None) for key in ("attr", "id", "name")} & {"environ", "environb", "getenv", "getenvb"}
        for node in module.nodes
    )


def environment_findings(tree: Tree, page: str) -> list[str]:
    """Modules that read the environment and are not in the table, and rows without such a module."""
    table = page.partition("These modules read the environment, and no others.")[2].partition("## ")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {f"agentrun/{path}" for cell in first_cells for path in re.findall(r"`([^`]+)`", cell)}
    reading = {
        "agentrun/" + str(module.path).rpartition("/agentrun/")[2]
        for module in tree.values()
        if reads_environment(module)
    }
    return [
        *sorted(file for file in reading if not any(file == path or file.startswith(path) for path in named)),
        *sorted(f"no {path}" for path in named if not any(file.startswith(path) for file in reading)),
    ]


def test_modules_that_read_the_environment_are_those_of_the_page() -> None:
    assert environment_findings(product(), PAGE) == []


@pytest.mark.parametrize("text", ["import os; os.environ.get('A')", "from os import environ", "os.getenv('A')"])
def test_another_module_that_reads_the_environment_is_found(tmp_path: Path, text: str) -> None:
    tree = plant(tmp_path, {"engine/begin.py": text, "engine/ci.py": text})
    page = "These modules read the environment, and no others.\n\n| `engine/ci.py`, `vcr.py` | `CI` |\n"
    assert environment_findings(tree, page) == ["agentrun/engine/begin.py", "no agentrun/vcr.py"]


def unknown_names(page: str) -> list[str]:
    """Names of code on the page that the product does not have."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    known = set(re.findall(r"\w+", source))
    named = re.findall(r"`(_?[A-Za-z]\w*)(?:\(\w*\))?`", page)
    return [name for name in dict.fromkeys(named) if name not in known]


def test_every_name_on_the_page_exists() -> None:
    assert unknown_names(PAGE) == []


def test_name_that_does_not_exist_is_found() -> None:
    assert unknown_names("its row in `TIER_KEYS` and `TIER_DOORS`, a class with `deliver(delivery)`") == ["TIER_DOORS"]


def test_contributing_links_to_the_page() -> None:
    assert "(docs/architecture.md)" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_lines_have_at_most_120_characters() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []
